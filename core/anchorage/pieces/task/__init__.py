"""What a model tells of an image."""
