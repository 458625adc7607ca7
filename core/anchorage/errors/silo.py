"""Failures of the agent at a hospital: 22xx."""

