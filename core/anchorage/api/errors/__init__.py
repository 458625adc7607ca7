"""The catalogue of failures that a user can meet: a code, a reason, one line that says what to do, an entry of docs/errors.md."""

from anchorage.api.errors import (
    cluster,
    commands,
    data,
    documents,
    identity,
    learning,
    rounds,
    silo,
    storage,
    tracking,
    transfer,
)
from anchorage.api.errors.catalogue import CATALOGUE, Failure
from anchorage.api.errors.raised import AnchorageError

__all__ = [
    "CATALOGUE",
    "AnchorageError",
    "Failure",
    "cluster",
    "commands",
    "data",
    "documents",
    "identity",
    "learning",
    "rounds",
    "silo",
    "storage",
    "tracking",
    "transfer",
]
