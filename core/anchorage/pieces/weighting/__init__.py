"""How much each update counts."""
