"""Failures of images and labels: 12xx."""

