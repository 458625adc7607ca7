"""Which values of an image become black and white (docs/data.md)."""
