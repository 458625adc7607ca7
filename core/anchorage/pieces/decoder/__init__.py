"""Kinds of image files (docs/writing-a-decoder.md)."""
