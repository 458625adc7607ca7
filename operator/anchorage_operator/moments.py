"""Moments as Kubernetes writes them, and as seconds since the epoch."""

from datetime import datetime


def seconds_of(moment: str) -> float:
    """Read an RFC 3339 moment.

    Raises
    ------
    ValueError
        It is none.
    """
    return datetime.fromisoformat(moment).timestamp()
