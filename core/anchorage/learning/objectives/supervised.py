"""The loss on labelled images alone, with MOON's contrast where the method has it (METHODS.md 6.1, 6.3)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from anchorage.learning.contrast_models import ModelContrast, kept_models, previous_models
from anchorage.learning.local_training import Batching
from anchorage.learning.local_work import RoundWork, Work
from anchorage.learning.weights import load_arrays


def supervised(work: RoundWork) -> Work:
    """Return the supervised losses; no step where the silo has no label."""
    batching, count = work.batching(), len(work.images.labelled)
    steps = batching.steps(count)
    samples = {"train": count, "labelled": count, "unlabelled": len(work.images.unlabelled)}
    if not steps:
        return Work(iter(()), 0, samples, lambda: 0)
    if work.run.method.regulariser.type in ("Moon", "FeatureDistance"):
        losses, kept = _contrasted(work, batching)
    else:
        losses, kept = work.supervised_losses(batching), dict
    return Work(losses, steps, samples, lambda: 0, work.label_counts, kept)


def _contrasted(
    work: RoundWork, batching: Batching
) -> tuple[Iterator[Tensor], Callable[[], Mapping[str, NDArray[Any]]]]:
    """Return MOON's losses, and what it keeps: the silo's last models."""
    regulariser = work.run.method.regulariser
    if regulariser.type == "FeatureDistance":
        return work.supervised_losses(batching, ModelContrast(regulariser, work.copy_received(), ())), dict
    earlier = previous_models(work.kept, regulariser.previous_models)
    previous = [work.copy_received() for _ in earlier]
    for network, arrays in zip(previous, earlier, strict=True):
        load_arrays(network, arrays)
    contrast = ModelContrast(regulariser, work.copy_received(), previous)
    recent = earlier[: regulariser.previous_models - 1]
    return work.supervised_losses(batching, contrast), lambda: kept_models(work.network, recent)
