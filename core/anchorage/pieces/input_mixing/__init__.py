"""Mixing of labelled images with images of others: MAFL's family (methods reference, 6.4)."""
