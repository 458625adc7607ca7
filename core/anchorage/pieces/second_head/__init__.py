"""Second classifiers beside the one that is evaluated (methods reference, 6.12)."""
