"""How updates travel."""
