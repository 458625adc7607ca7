"""Optimisers of silos and server."""
