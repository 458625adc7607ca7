"""Normalisation and views of kinds of images (methods reference, 5.2)."""
