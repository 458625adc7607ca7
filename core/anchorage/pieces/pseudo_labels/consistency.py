"""What FixMatch and UDA share: the model in training labels a weak view of each batch and learns that label on a strong one.

Methods reference, 6.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from anchorage.api.fact import Fact
from anchorage.pieces.pseudo_labels.calibrated import Calibrated
from anchorage.pieces.pseudo_labels.pixels import pixel_work
from anchorage.pieces.pseudo_labels.viewed import Viewed

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.algorithms.calibration import Acceptance
    from anchorage.learning.device_group import DeviceGroup
    from anchorage.learning.draws import Draws
    from anchorage.learning.local_training import Batching
    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound, Work
    from anchorage.learning.views import Views


class Consistency(Viewed, Calibrated):
    """Labels by the model in training, batch by batch."""

    def soft_temperature(self) -> float | None:
        """Return the temperature of soft targets; None for hard labels."""
        return None

    def facts(self) -> frozenset[str]:
        """Say that a round may be of so many steps."""
        return super().facts() | {Fact.PSEUDO_LABELS_BY_STEP}

    def objective(self, silo_round: SiloRound) -> Work | None:
        """Return the consistency losses of images, or of their pixels, beside those of labelled images."""
        from anchorage.learning.silo_round import Work

        if silo_round.task.gives_maps:
            return pixel_work(silo_round, float(self.threshold), self.soft_temperature())
        images, batching = silo_round.images, silo_round.batching()
        if not len(images.unlabelled):
            return None
        consistency = self.consistency(silo_round)
        unlabelled = consistency.losses(batching, silo_round.draws, silo_round.devices)
        losses, steps = silo_round.beside_labelled(unlabelled, batching)
        accepted = consistency.accepted
        return Work(
            losses,
            steps,
            silo_round.counts(),
            lambda: len(accepted),
            accepted=accepted.labels,
            resumes=True,
            state=accepted,
            divides=consistency.divides,
        )

    def consistency(self, silo_round: SiloRound) -> ConsistencyLosses:
        """Return the losses of the unlabelled images."""
        images, temperature = silo_round.images, self.soft_temperature()
        shares = silo_round.method.local_loss.log_shares(silo_round)
        return ConsistencyLosses(
            silo_round.network,
            self.seen(silo_round),
            images.unlabelled,
            self.acceptance(silo_round),
            temperature,
            shares,
        )


def consistency_targets(weak: Tensor, threshold: float | Tensor, temperature: float | None) -> tuple[Tensor, Tensor]:
    """Return what a batch is taught, and which of its images are confident enough (KAT-L2).

    Parameters
    ----------
    weak : Tensor of float, shape [n, C]
        Logits of the weak views.
    threshold : float or Tensor of float64, shape [C]
        An image counts where its largest probability is at least so large; each class's, where there are several.
    temperature : float or None
        UDA: soft targets ``softmax(logits / temperature)``; None for FixMatch's hard labels.

    Returns
    -------
    targets : Tensor of float, shape [n, C]
        Rows that sum to one.
    confident : Tensor of bool, shape [n]
        Images that enter the loss.
    """
    hard, confident = confident_labels(weak.softmax(1), threshold)
    return hard if temperature is None else (weak / temperature).softmax(1), confident


def confident_labels(probabilities: Tensor, threshold: float | Tensor) -> tuple[Tensor, Tensor]:
    """Return the most probable classes as rows of 0 and 1, and which of them are confident enough.

    Parameters
    ----------
    probabilities : Tensor of float, shape [n, C]
        Of the images' classes.
    threshold : float or Tensor of float64, shape [C]
        A label is confident where its probability is at least so large; each class's, where there are several.

    Returns
    -------
    labels : Tensor of float, shape [n, C]
        One 1 in each row.
    confident : Tensor of bool, shape [n]
        Images whose label counts.
    """
    import torch

    from anchorage.algorithms.calibration import reaches

    largest, labels = probabilities.max(1)
    rows = labels[:, None] == torch.arange(probabilities.shape[1], device=probabilities.device)
    return rows.to(probabilities.dtype), reaches(largest, labels, threshold)


def consistency_loss(strong: Tensor, targets: Tensor, confident: Tensor) -> Tensor:
    """Return the cross entropy of confident images, averaged over the whole batch (methods reference, section 12, pitfall 10).

    Parameters
    ----------
    strong : Tensor of float, shape [n, C]
        Logits of the strong views.
    targets, confident : Tensor
        Of `consistency_targets`.
    """
    from torch.nn import functional

    return (functional.cross_entropy(strong, targets, reduction="none") * confident).mean()


class ConsistencyLosses:
    """Yields the losses of a silo's unlabelled images and notes those that were confident in the last epoch (`accepted`).

    Parameters
    ----------
    network : Network
        The model in training, which labels as well; in eval mode while it labels.
    views : Views
        All images of the silo, as they are labelled and learnt.
    indices : ndarray of int64, shape [n]
        Those without a label.
    acceptance : Acceptance
        Which images enter the loss.
    temperature : float or None
        UDA's; None for FixMatch.
    log_shares : Tensor of float, shape [C], optional
        What the loss adds to the logits of strong views (`LocalLossHooks.log_shares`).
    """

    divides: ClassVar[bool] = True
    """Whether `loss` is the mean over all images of a batch, so that devices may learn parts of it."""

    def __init__(
        self,
        network: Network,
        views: Views,
        indices: NDArray[np.int64],
        acceptance: Acceptance,
        temperature: float | None,
        log_shares: Tensor | None = None,
    ) -> None:
        from anchorage.algorithms.pseudo_labels import Accepted

        self.network, self._views, self._indices = network, views, indices
        self.acceptance, self._temperature, self._log_shares = acceptance, temperature, log_shares
        self.accepted = Accepted()

    def losses(self, batching: Batching, draws: Draws, devices: DeviceGroup) -> Iterator[Tensor]:
        """Yield the loss of each batch; each of `devices` learns its part, and all note the whole."""
        stream, place = "batches-unlabelled", draws.place
        augmentation = place.track("augmentation-unlabelled", draws.torch("augmentation-unlabelled"))
        in_pass = batching.in_pass(len(self._indices))
        for positions in batching.rest(len(self._indices), draws, stream):
            if place.behind[stream] % in_pass == 0:
                self.accepted.begin()
            place.take(stream)
            indices = self._views.to_device(self._indices[positions])
            part = devices.part(len(indices), batching.smallest)
            weak, strong = self._views.weak(indices, augmentation), self._views.strong(indices, augmentation)
            targets, confident = self.targets(weak[part.images])
            labels, accepted = devices.gather(part, targets.argmax(1)), devices.gather(part, confident)
            self.accepted.add(indices, labels, accepted)
            logits = self.network(strong[part.images])
            shifted = logits if self._log_shares is None else logits + self._log_shares
            yield part.weigh(self.loss(shifted, targets, confident))

    def loss(self, strong: Tensor, targets: Tensor, confident: Tensor) -> Tensor:
        """Return the loss of a batch; see `consistency_loss`."""
        return consistency_loss(strong, targets, confident)

    def targets(self, weak: Tensor) -> tuple[Tensor, Tensor]:
        """Return what weak views of a batch are to teach, and which of them do; see `consistency_targets`."""
        import torch

        self.network.eval()
        try:
            with torch.no_grad():
                logits = self.acceptance.shift_logits(self.network(weak))
                return consistency_targets(logits, self.acceptance.threshold, self._temperature)
        finally:
            self.network.train()
