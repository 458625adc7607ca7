"""Labelled images mixed with others: MAFL's family (METHODS.md 6.4). Means leave once; in the first round, without a pool, silos train plainly."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import MEANS_TOO_LARGE, MODEL_MISMATCH
from anchorage.engine.aggregation.mean_images import DIGEST, POOLED, WANTED, channel_names
from anchorage.learning.draws import Draws
from anchorage.learning.input_mixing import Pool, mixing_losses
from anchorage.learning.local_work import RoundWork, Work
from anchorage.transport.messages import SideChannel

LARGEST_UPLOAD_BYTES = 7 * 2**19
"""What an announcement can carry beside other small arrays."""
KEPT = "pool/"
"""Begins the names of the pool among what a silo keeps."""
_SHORT = ("images", "labels")


def by_input_mixing(work: RoundWork) -> Work:
    """Return the losses of mixed images; the silo's own means go up with the first update, the pool is kept."""
    slot = work.run.method.input_mixing
    batching, (data, loss) = work.batching(), work.labelled()
    count = len(data.indices)
    steps = batching.steps(count)
    samples = {"train": count, "labelled": count, "unlabelled": len(work.images.unlabelled)}
    if not steps:
        return Work(iter(()), 0, samples, lambda: 0)
    kept = _pool(work) if slot.type in POOLED else {}
    sent: dict[str, NDArray[Any]] = {DIGEST: kept[KEPT + DIGEST]} if kept else {}
    if slot.type in POOLED and work.side.get(WANTED, np.zeros(1)).any() and count > 1:
        groups = [np.array([i]) for i in range(count)] if slot.type == "Global" else groups_of(work, slot.group_size)
        sent |= group_means(work, groups)
        samples["smallest_group"] = min(map(len, groups))
    device = work.images.views.device
    tensors = [torch.from_numpy(kept[KEPT + name].copy()).to(device) for name in _SHORT] if kept else []
    pool = Pool(*tensors) if tensors else None
    losses = mixing_losses(work.network, data, loss, batching, slot, pool, work.draws)
    return Work(losses, steps, samples, lambda: 0, lambda: sent, lambda: kept)


def groups_of(work: RoundWork, size: int) -> list[NDArray[np.int64]]:
    """Return the positions of the labelled images in groups of `size`, shuffled once per run; what is left over joins the last group."""
    draws = Draws(work.run.seed, silo=work.draws.silo)
    order = draws.numpy("mean-images").permutation(len(work.images.labelled))
    return np.split(order, np.arange(size, len(order) - size + 1, size))


def group_means(work: RoundWork, groups: list[NDArray[np.int64]]) -> SideChannel:
    """Return the mean image, normalised and not augmented, and the mean label of every group.

    Raises
    ------
    AnchorageError
        They are larger than a message may be.
    """
    images, model = work.images, work.run.model
    nbytes = 4 * len(groups) * (model.channels * model.image_size**2 + model.num_classes)
    if nbytes > LARGEST_UPLOAD_BYTES:
        found = f"{len(groups)} images of {model.image_size} x {model.image_size} pixels have {nbytes} bytes, more than {LARGEST_UPLOAD_BYTES}"
        raise AnchorageError(MEANS_TOO_LARGE, f"{found}; raise inputMixing.groupSize")
    indices, classes = [images.labelled[group] for group in groups], torch.eye(model.num_classes)
    means = means_of(lambda group: images.views.plain(images.views.to_device(group)), indices)
    labels = means_of(lambda group: classes[torch.from_numpy(images.labels[group])], indices)
    first, second = channel_names(work.run.method.input_mixing)
    return {first: means.float().cpu().numpy(), second: labels.float().numpy()}


def means_of(rows: Callable[[NDArray[np.int64]], Tensor], groups: list[NDArray[np.int64]]) -> Tensor:
    """Return the mean over every group of what `rows` gives for its members, float64 [groups, ...] (KAT-J2)."""
    return torch.stack([rows(group).double().mean(0) for group in groups])


def _pool(work: RoundWork) -> Mapping[str, NDArray[Any]]:
    """Return what came or was kept of the pool that the server speaks of, by the names under which it is kept; empty without one."""
    digest, names = work.side.get(DIGEST), channel_names(work.run.method.input_mixing)
    if digest is None:
        return {}
    if any(name not in work.side for name in names):
        kept = {name: array for name, array in work.kept.items() if name.startswith(KEPT)}
        return kept if kept and np.array_equal(kept[KEPT + DIGEST], digest) else {}
    model, (images, labels) = work.run.model, (work.side[name] for name in names)
    shape = (model.channels, model.image_size, model.image_size)
    if images.shape[1:] != shape or labels.shape != (len(images), model.num_classes):
        message = (
            f"the images to mix with are {images.shape[1:]} with {labels.shape[1:]} classes, the model takes {shape}"
        )
        raise AnchorageError(MODEL_MISMATCH, message)
    return {KEPT + "images": images, KEPT + "labels": labels, KEPT + DIGEST: digest}
