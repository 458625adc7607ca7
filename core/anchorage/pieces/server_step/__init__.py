"""Server optimisers."""
