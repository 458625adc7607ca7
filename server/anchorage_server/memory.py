"""Whether a model fits, before memory is taken for it."""

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import MODEL_TOO_LARGE
from anchorage.transport.memory import available_bytes

MODELS = 4
"""Copies of the model that a round needs at most: the global model, the sum, the new model, and one that is read or trained."""


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
