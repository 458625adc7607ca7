"""Training at the server on its anchors."""
