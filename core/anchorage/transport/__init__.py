"""Transport of tensors and messages: formats, identities, connections."""
