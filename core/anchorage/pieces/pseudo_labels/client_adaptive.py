"""(FL)^2: thresholds of each silo and class, and consistency under an adversarial perturbation of the weights (methods reference, N2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import tee
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from anchorage.api.base import Fraction, PositiveDecimal
from anchorage.api.fact import Fact
from anchorage.api.piece import piece
from anchorage.pieces.pseudo_labels.viewed import Viewed

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from anchorage.learning.local_training import Batching, Labelled
    from anchorage.learning.silo_round import SiloRound, Work

ETA = 0.01
"""Added to the size of every weight, whose perturbation is in proportion to it (ASAM)."""


@piece("clientAdaptive")
class ClientAdaptive(Viewed):
    """Labels above thresholds of each silo and class, with consistency under perturbed weights ((FL)^2).

    The received model labels weak views of all images once per round.
    """

    threshold: Fraction = Field(
        "0.95",
        description="Minimum confidence of an image for the consistency loss, by which its output must withstand a perturbation of the "
        "weights. Label thresholds follow from the model's predictions at each silo.",
    )
    radius: PositiveDecimal = Field(
        "0.1", description="Radius rho of the perturbation of the weights. 0: no consistency loss."
    )

    def facts(self) -> frozenset[str]:
        """Say that all predictions of the received model are seen once per round, and its features can be compared."""
        learnt = {Fact.PSEUDO_LABELS, Fact.PSEUDO_LABELS_OF_ONE_HEAD, Fact.LABELS_REPLACED}
        return frozenset({*learnt, Fact.RECEIVED_FEATURES, Fact.PREDICTIONS})

    def label(self, silo_round: SiloRound, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return labels of weak views, int64 [b], and whether they are accepted, bool [b], by thresholds of these images."""
        return adaptive_labels(self._probabilities(silo_round, indices))

    def objective(self, silo_round: SiloRound) -> Work:
        """Return the losses of the accepted images."""
        from anchorage.learning.local_training import Labelled
        from anchorage.learning.silo_round import Work

        images, network = silo_round.images, silo_round.network
        probabilities = self._probabilities(silo_round, images.train)
        labels, accepted = adaptive_labels(probabilities)
        for part in silo_round.parts:
            part.predicted(probabilities)
        for part in silo_round.listeners:
            features = images.views.map_batches(images.train, lambda i: network.embed(images.views.plain(i)))
            part.pseudo_labelled(images.views.to_device(images.train), features, labels, accepted)
        chosen, pseudo_labels = accepted.cpu().numpy(), labels.cpu().numpy()
        data = Labelled(self.seen(silo_round), images.train[chosen], pseudo_labels[chosen])
        confident = (probabilities.amax(1) >= float(self.threshold))[accepted]
        batching, count = silo_round.batching(), len(data.indices)
        losses = self._losses(silo_round, data, confident, batching)
        samples = {"train": len(images.train), "labelled": 0, "unlabelled": len(images.train)}
        return Work(losses, batching.steps(count), samples, lambda: count, accepted=lambda: (data.indices, data.labels))

    def _probabilities(self, silo_round: SiloRound, indices: NDArray[np.int64]) -> Tensor:
        """Return the received model's probabilities of weak views, float32 [b, C]."""
        views, network = self.seen(silo_round), silo_round.network
        augmentation = silo_round.draws.torch("pseudo-labels")
        return views.map_batches(indices, lambda i: network(views.weak(i, augmentation)).softmax(1))

    def _losses(self, silo_round: SiloRound, data: Labelled, confident: Tensor, batching: Batching) -> Iterator[Tensor]:
        draws, network, radius = silo_round.draws, silo_round.network, float(self.radius)
        augmentation = draws.torch("augmentation")
        batches, places = tee(batching.positions(len(data.indices), draws.numpy("batches")))
        views = data.iterate_views(batches, lambda indices: data.views.strong(indices, augmentation))
        for positions, (labels, images) in zip(places, views, strict=True):
            chosen = confident[data.views.to_device(positions)]
            supervised, consistency = sacr_losses(network, images, labels, chosen, radius, ETA)
            yield supervised + consistency


def adaptive_labels(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Return labels, int64 [n], and whether they are accepted, bool [n] (equations N1 to N3).

    Parameters
    ----------
    probabilities : Tensor of float, shape [n, C]
        Of the received model; the most confident image is always accepted.
    """
    confidence, labels = probabilities.double().max(1)
    return labels, confidence >= class_thresholds(probabilities)[labels]


def class_thresholds(probabilities: Tensor) -> Tensor:
    """Return each class's threshold, float64 [C]: the mean confidence, times the class's mean probability over the largest one."""
    each = probabilities.double()
    confidence, shares = each.amax(1), each.mean(0)
    return confidence.mean().clamp(max=confidence.max()) * (shares / shares.max())


def kept_mean(losses: Tensor, keep_mask: Tensor) -> Tensor:
    """Return the mean of the losses [b] of some images, bool [b]; 0 of none."""
    return (losses * keep_mask).sum() / keep_mask.sum().clamp(min=1)


def sacr_losses(
    network: nn.Module, images: Tensor, labels: Tensor, confident: Tensor, radius: float, eta: float
) -> tuple[Tensor, Tensor]:
    """Return cross entropy of a batch, and how far the outputs of its confident images give way to a perturbation of the weights.

    The gradient of the second is that at the perturbed weights: they are the present ones and a constant (equations N4 to N9).

    Parameters
    ----------
    network : Module
        In train mode.
    images, labels : Tensor
        Float [b, ...] and int64 [b].
    confident : Tensor of bool, shape [b]
        The others are left out of the perturbation and of the consistency, which is divided by b all the same.
    radius, eta : float
        As `asam_perturbation` takes them; a radius of 0 leaves the second loss 0.
    """
    import torch
    from torch.func import functional_call
    from torch.nn import functional

    logits = network(images)
    each = functional.cross_entropy(logits, labels, reduction="none")
    if not radius or not bool(confident.any()):
        return each.mean(), each.new_zeros(())
    parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
    slopes = torch.autograd.grad(
        kept_mean(each, confident), list(parameters.values()), retain_graph=True, materialize_grads=True
    )
    apart = asam_perturbation(
        {name: p.detach() for name, p in parameters.items()}, dict(zip(parameters, slopes, strict=True)), radius, eta
    )
    moved = {name: p + apart[name] for name, p in parameters.items()}
    counted = {name: buffer.clone() for name, buffer in network.named_buffers()}  # a perturbed pass counts nothing
    perturbed = functional_call(network, moved | counted, (images,)).log_softmax(1)
    gap = functional.kl_div(perturbed, logits.detach().log_softmax(1), reduction="none", log_target=True).sum(1)
    return each.mean(), (gap * confident).sum() / len(gap)


def asam_perturbation(
    parameters: Mapping[str, Tensor], slopes: Mapping[str, Tensor], radius: float, eta: float
) -> dict[str, Tensor]:
    """Return the perturbation that raises a loss most, to first order, by parameter; nothing where its gradient is 0 (equation N6).

    Parameters
    ----------
    parameters, slopes : mapping of str to Tensor
        Values and gradients by the same names; those of weights, scales of normalisation among them, move in proportion to their size.
    radius : float
        Length of the perturbation, each weight measured in units of its size.
    eta : float
        Added to the size of a weight.
    """
    import torch

    size = {n: p.abs() + eta if "weight" in n else torch.ones_like(p) for n, p in parameters.items()}
    length = torch.stack([(size[n] * slope).norm() for n, slope in slopes.items()]).norm()
    factor = torch.where(length > 0, radius / length, 0.0)
    return {n: factor * size[n].square() * slope for n, slope in slopes.items()}
