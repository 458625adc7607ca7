"""Networks (methods reference, 5.1)."""
