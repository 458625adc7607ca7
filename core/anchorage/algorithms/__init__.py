"""Calculations of single methods and tasks, for the pieces that use them: losses, pseudo-labels, scores, moments. Needs torch."""
