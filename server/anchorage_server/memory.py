"""Whether a model fits, before memory is taken for it."""

from pathlib import Path

import psutil

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import MODEL_TOO_LARGE

MODELS = 4
"""Copies of the model that a round needs at most: the global model, the sum, the new model, and one that is read or trained."""
_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Return the memory that this process may still take: the machine's, or what its control group leaves."""
    machine = int(psutil.virtual_memory().available)
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
    except OSError:
        return machine
    return machine if limit == "max" else min(machine, int(limit) - used)


def require_memory(model_bytes: int) -> None:
    """See that a run with a model of this size fits.

    Raises
    ------
    AnchorageError
        It does not.
    """
    needed, available = MODELS * model_bytes, available_bytes()
    if needed > available:
        message = (
            f"the model has {model_bytes / 1e6:.1f} MB, a round needs {needed / 1e6:.0f} MB for {MODELS} of it, "
            f"{available / 1e6:.0f} MB are free"
        )
        raise AnchorageError(MODEL_TOO_LARGE, message)
