"""A classification task for tests that only need its number of classes."""

from anchorage.pieces.task.classification import Classification


def classes(count: int) -> Classification:
    """Return a task of so many classes, called 0, 1, and so on."""
    return Classification.model_construct(classes=tuple(map(str, range(count))))  # of one class, too
