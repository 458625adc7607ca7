"""Losses that take no label (methods reference, 6.7, 6.13)."""
