"""Failures of MLflow: 40xx."""

