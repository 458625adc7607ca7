"""Tensors, messages, identities and connections: how bytes travel."""
