"""Mixup of images whose labels are fixed for a round (methods reference, 6.8)."""
