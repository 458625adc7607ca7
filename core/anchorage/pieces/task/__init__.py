"""Prediction tasks."""
