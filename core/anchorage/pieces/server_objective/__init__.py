"""What the server learns of its anchors (methods reference, 6.7, 6.8)."""
