"""Formats of images and labels (docs/data.md)."""
