"""Labels for the unlabelled images (methods reference, 6.5 to 6.11)."""
