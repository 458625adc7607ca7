"""FedCon: two weak views of an image look alike to the encoder and to its moving average (METHODS.md 6.7)."""

from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn import functional

from anchorage.learning.local_training import Batching
from anchorage.learning.local_work import RoundWork, Work
from anchorage.learning.moving_average import FEDCON_DECAY, MovingAverage

TARGET = "target/"
"""Prefix of the target encoder in the silo's kept state."""


def byol_loss(prediction: Tensor, target: Tensor) -> Tensor:
    """Return the mean of minus the cosine of rows [n, d]: -1 where they point the same way, 0 where they are orthogonal (KAT-T2)."""
    return -functional.cosine_similarity(prediction, target).mean()


def by_byol(work: RoundWork) -> Work:
    """Return the losses of all images; projector and target encoder stay at the silo.

    The target goes by each batch's own statistics, as in the published code: the encoder's running ones belong to other weights.
    """
    batching = work.batching(smallest=2)
    target = MovingAverage(work.copy_received().encoder.train(), TARGET, work.kept)
    return Work(
        _losses(work, batching, target.network),
        batching.steps(len(work.images.train)),
        work.counts(),
        lambda: 0,
        kept=target.kept,
        after_step=lambda: target.follow(work.network.encoder, FEDCON_DECAY),
    )


def _losses(work: RoundWork, batching: Batching, target: nn.Module) -> Iterator[Tensor]:
    network, images, views = work.network, work.images.train, work.images.views
    assert network.local is not None, "the network has a projector"
    augmentation = work.draws.torch("augmentation")
    for positions in batching.positions(len(images), work.draws.numpy("batches")):
        indices = views.to_device(images[positions])
        one, other = (views.weak(indices, augmentation) for _ in range(2))
        yield (
            byol_loss(network.local(network.encoder(one)), target(other).detach())
            + byol_loss(network.local(network.encoder(other)), target(one).detach())
        ) / 2
