"""FedBarlow, and FedCLR's classifier beside it (METHODS.md 6.13)."""

from collections.abc import Callable, Iterator

import numpy as np
from torch import Tensor

from anchorage.learning.local_training import Batching
from anchorage.learning.local_work import RoundWork, Work
from anchorage.learning.redundancy import redundancy_loss


def by_redundancy(work: RoundWork) -> Work:
    """Return the loss of two views of all images; with an online classifier the loss of its labels beside."""
    batching = work.batching(smallest=2)  # one image has no variance
    losses = _losses(work, batching, _classifier_loss(work))
    return Work(losses, batching.steps(len(work.images.train)), work.counts(), lambda: 0)


def _losses(work: RoundWork, batching: Batching, beside: Callable[[Tensor, Tensor], Tensor] | None) -> Iterator[Tensor]:
    network, images, slot = work.network, work.images, work.run.method.self_supervised
    assert network.projector is not None, "built for this method"
    scale, off_diagonal = float(slot.scale), float(slot.off_diagonal)
    augmentation = work.draws.torch("augmentation")
    for positions in batching.positions(len(images.train), work.draws.numpy("batches")):
        chosen = images.train[positions]
        first, second = images.views.barlow(images.views.to_device(chosen), augmentation)
        features = network.encoder(first)
        one, other = network.projector(features), network.projector(network.encoder(second))
        loss = scale * redundancy_loss(one, other, off_diagonal)
        known = np.flatnonzero(images.labels[chosen] >= 0)
        if beside is not None and len(known):
            labels = images.views.to_device(images.labels[chosen[known]])
            seen = network.projection(features).detach()[images.views.to_device(known)]
            loss = loss + beside(network.classifier(seen), labels)
        yield loss


def _classifier_loss(work: RoundWork) -> Callable[[Tensor, Tensor], Tensor] | None:
    """Return the loss on logits [n, C] and labels [n]; None where no classifier learns here."""
    if work.run.method.self_supervised.online_classifier == "Disabled" or not len(work.images.labelled):
        return None
    return work.labelled()[1]
