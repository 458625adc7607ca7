"""How long a main thread waits at once."""

WAIT_SECONDS = 1.0
"""A signal is handled between two waits where it did not interrupt one: another thread heard it, or it came just before the wait began."""
