"""Pseudo-labels of several findings per image, each by itself: FixMatch, UDA, or labels by the received model, with care for rare findings.

With rare findings nearly all confident guesses are negatives, and a model that learns them forgets the finding. Therefore positives are as many as
the shares of labels say, or what the validation images prove; negatives are few for each positive; and a finding that hardly anybody has labels of
gets none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import Fraction, PositiveDecimal
from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE, PROTOCOL_REFUSED
from anchorage.api.fact import Fact
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import AuxiliaryArray, Need, piece
from anchorage.api.task import MULTI_LABEL, Task
from anchorage.pieces.finding_counts import ALL, FindingCounts, LabelledFindings, count_findings, declare_arrays
from anchorage.pieces.pseudo_labels.viewed import Viewed

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.api.plan import Plan
    from anchorage.learning.local_training import Batching
    from anchorage.learning.server_round import ServerRound
    from anchorage.learning.silo_round import SiloRound, Work
    from anchorage.transport.messages import AuxiliaryData
    from anchorage.transport.tensors.model import ModelBytes

FEWEST_POSITIVES = 5
"""Labelled positives in the federation below which a finding gets no pseudo-label."""
ANCHORS, THRESHOLDS = "anchor_finding_counts", "finding_thresholds"
_STREAM = "batches-unlabelled"


@piece("perFinding")
class PerFinding(Viewed):
    """Confident guesses of each unknown finding are learnt on strong views; what is known of an image stays."""

    tasks: ClassVar[frozenset[str] | None] = MULTI_LABEL
    needs_network: ClassVar[bool] = True
    labels_images: ClassVar[bool] = False

    labelled_by: Literal["Training", "Received"] = Field(
        "Training",
        description="What guesses. Training: the model in training, on a weak view of each batch (FixMatch). Received: the received model, "
        "on the images as they are, once per round (SemiFL).",
    )
    calibration: Literal["Shares", "Validation", "None"] = Field(
        "Shares",
        description="What decides from which probability on a finding is present. Shares: as many images have it as the site's "
        "`classCounts`, else the share among all labelled images, say. Validation: in each round, the lowest from which on the "
        "share `threshold` of the server's validation images has it; it is absent up to the highest at which no more than "
        "`negativeThreshold` have it. None: `threshold`.",
    )
    threshold: Fraction = Field(
        "0.8",
        description="Probability from which on a finding is present, or with calibration Validation the share that must have it.",
    )
    negative_threshold: Fraction = Field(
        "0.05",
        description="Probability up to which a finding is absent, or with calibration Validation the share that may have it.",
    )
    negatives_per_positive: Annotated[int, Field(ge=1, le=10_000)] = Field(
        10,
        description="Most negatives of a finding for each positive, the least probable ones. Raise it for findings that are easy to tell.",
    )
    temperature: PositiveDecimal = Field(
        "0",
        description="Temperature of soft guesses (UDA), which are learnt in place of yes and no; below 1, it sharpens them. 0: yes and no "
        "(FixMatch).",
    )
    weight: PositiveDecimal = Field("1", description="Factor of the loss on guesses beside that on labels.")

    @property
    def validated(self) -> bool:
        """Whether the server's validation images set the thresholds."""
        return self.calibration == "Validation"

    def facts(self) -> frozenset[str]:
        """Say that there are pseudo-labels, batch by batch."""
        return frozenset({Fact.PSEUDO_LABELS, Fact.PSEUDO_LABELS_BY_STEP})

    def needs(self) -> Sequence[Need]:
        """Need rounds: what silos count in one is told to all in the next."""
        detail = "found Asynchronous, but perFinding needs what all silos of the round before announced"
        message = f"{detail}; set Synchronous, or pseudoLabels: {{none: {{}}}}"
        rounds = Need(Fact.ROUNDS, message, failure=PROTOCOL_REFUSED, path=("spec", "protocol", "mode"))
        return (*super().needs(), rounds)

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Need validation images, where they set the thresholds."""
        yield from super().check(plan)
        if self.validated and "validation" not in plan.spec.server_data:
            message = (
                "found Validation, but the server has no validation images; add evaluation.validation, or set Shares"
            )
            yield Mistake(MEANINGLESS_OVERRIDE, self.option("calibration"), message)

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return the counts of labels, and the thresholds."""
        anchors = AuxiliaryArray(ANCHORS, "[2, L] int64", "the server's anchors without each finding, and with it")
        meaning = (
            "probabilities up to which, and from which on, findings are guessed, by the server's validation images"
        )
        thresholds = [AuxiliaryArray(THRESHOLDS, "[2, L] float64", meaning)] if self.validated else []
        return (*super().auxiliary(), *declare_arrays(), anchors, *thresholds)

    def memory(self, task: Task, seed: int) -> LabelledFindings:
        """Remember the federation's counts."""
        return LabelledFindings(len(task.outputs))

    def begin(self, silo_round: SiloRound) -> FindingCounts:
        """Tell the silo's counts."""
        return FindingCounts(silo_round)

    def server_auxiliary(self, server_round: ServerRound, model: ModelBytes) -> AuxiliaryData:
        """Return ``anchor_finding_counts``, int64 [2, L], and ``finding_thresholds``, float64 [2, L], of a global model."""
        from anchorage.algorithms.finding_thresholds import fit_thresholds
        from anchorage.learning.device import calculation

        none = np.zeros((2, server_round.model.num_outputs), np.int64)
        anchors = none if server_round.anchors is None else count_findings(server_round.anchors.labels)
        if not self.validated:
            return {ANCHORS: anchors}
        known = server_round.computed.get(THRESHOLDS)
        if known is None or known[0] != model.digest:
            images, network = server_round.validation, server_round.network
            assert images is not None, "checked with the documents"
            with calculation():
                server_round.take(model)
                model_outputs = images.views.map_batches(
                    images.indices, lambda i: network(images.views.plain(i)).sigmoid()
                )
            anchor_probabilities = model_outputs.double().cpu().numpy()
            thresholds = fit_thresholds(
                images.labels, anchor_probabilities, float(self.threshold), float(self.negative_threshold)
            )
            known = server_round.computed[THRESHOLDS] = (model.digest, thresholds)
        return {ANCHORS: anchors, THRESHOLDS: known[1]}

    def objective(self, silo_round: SiloRound) -> Work | None:
        """Return the losses of guesses beside those of labelled images; None in a round in which nothing is guessed."""
        from anchorage.learning.silo_round import Work

        guesses = Guesses(self, silo_round)
        if not len(guesses.indices):
            return None
        batching = silo_round.batching()
        losses, steps = silo_round.beside_labelled(guesses.losses(batching), batching, len(guesses.indices))
        accepted = guesses.accepted
        return Work(
            losses, steps, silo_round.counts(), lambda: len(accepted), resumes=True, state=accepted, divides=False
        )


class Guesses:
    """The unknown findings of a silo's images in one round, and which guesses of them are learnt.

    Parameters
    ----------
    slot : PerFinding
        The options.
    silo_round : SiloRound
        The round, whose network is as received.
    """

    def __init__(self, slot: PerFinding, silo_round: SiloRound) -> None:
        from anchorage.algorithms.pseudo_labels import Accepted

        self._slot, self._round = slot, silo_round
        self._network, self._views = silo_round.network, slot.seen(silo_round)
        totals = {name: array.cpu().numpy() for name, array in silo_round.auxiliary(ALL, ANCHORS).items()}
        self._totals = totals[ALL] + totals[ANCHORS]
        known = self._totals[1] >= FEWEST_POSITIVES
        labels = silo_round.images.labels
        train = silo_round.images.train
        self._unknown = (labels == -1) & known
        self.indices: NDArray[np.int64] = train[self._unknown[train].any(1)]
        self.accepted = Accepted()
        if not len(self.indices):
            return
        network, views = self._network, self._views
        received_probabilities = views.map_batches(self.indices, lambda i: network(views.plain(i)).sigmoid())
        probabilities, unknown = received_probabilities.double().cpu().numpy(), self._unknown[self.indices]
        self.low, self.high = self.thresholds(probabilities, unknown)
        self._received = probabilities.astype(np.float32)

    def thresholds(
        self, probabilities: NDArray[np.float64], unknown: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return up to which probability each finding is absent, and from which on it is present, float64 [L] each.

        Parameters
        ----------
        probabilities : ndarray of float64, shape [n, L]
            By the received model.
        unknown : ndarray of bool, shape [n, L]
            Entries that are guessed.
        """
        from anchorage.algorithms.finding_thresholds import by_shares, few_negatives

        slot = self._slot
        low = np.full(unknown.shape[1], float(slot.negative_threshold))
        high = np.full(unknown.shape[1], float(slot.threshold))
        if slot.validated:
            low, high = self._round.auxiliary(THRESHOLDS)[THRESHOLDS].cpu().numpy()
        elif slot.calibration == "Shares":
            high = by_shares(probabilities, unknown, self._count_expected(unknown))
        return few_negatives(probabilities, unknown, high, low, slot.negatives_per_positive), high

    def _count_expected(self, unknown: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return how many of the unknown entries of each finding are positive, by the site's records, else by all labels."""
        images = self._round.images
        if images.stated_counts is not None:
            known_positives = count_findings(images.labels[images.labelled])[1]
            remaining: NDArray[np.float64] = np.maximum(
                images.stated_counts[: len(known_positives)] - known_positives, 0
            ).astype(np.float64)
            return remaining
        shares = self._totals[1] / np.maximum(self._totals.sum(0), 1)
        return np.asarray(shares * unknown.sum(0), np.float64)

    def losses(self, batching: Batching) -> Iterator[Tensor]:
        """Yield the loss of each batch: over what is guessed, divided by all entries of the batch, as FixMatch divides by all images."""
        import torch

        from anchorage.algorithms.binary_losses import guess_loss

        draws, views = self._round.draws, self._views
        place, weight = draws.place, float(self._slot.weight)
        augmentation = place.track("augmentation-unlabelled", draws.torch("augmentation-unlabelled"))
        shift = self._round.method.local_loss.log_shares(self._round)
        unknown, low, high = (
            torch.from_numpy(array).to(views.device)
            for array in (self._unknown[self.indices], self.low.astype(np.float32), self.high.astype(np.float32))
        )
        received = torch.from_numpy(self._received).to(views.device)
        in_pass = batching.in_pass(len(self.indices))
        for positions in batching.rest(len(self.indices), draws, _STREAM):
            if place.behind[_STREAM] % in_pass == 0:
                self.accepted.begin()
            place.take(_STREAM)
            indices, rows = views.to_device(self.indices[positions]), views.to_device(positions)
            by_received = self._slot.labelled_by == "Received"
            probabilities = received[rows] if by_received else self._predict(views.weak(indices, augmentation))
            present = probabilities >= high
            chosen = (present | (probabilities <= low)) & unknown[rows]
            self.accepted.add(indices, (chosen & present).sum(1), chosen.any(1))
            logits = self._network(views.strong(indices, augmentation))
            targets = sharpened(probabilities, present, float(self._slot.temperature))
            yield weight * guess_loss(logits if shift is None else logits + shift, targets, chosen)

    def _predict(self, views: Tensor) -> Tensor:
        """Return the probabilities of the model in training, in eval mode, [b, L]."""
        import torch

        self._network.eval()
        try:
            with torch.no_grad():
                probabilities: Tensor = self._network(views).sigmoid()
                return probabilities
        finally:
            self._network.train()


def sharpened(probabilities: Tensor, present: Tensor, temperature: float) -> Tensor:
    """Return what guesses teach: softmax(log p / temperature) of the two answers (UDA's targets, methods reference, 6.5), float [n, L].

    Where shares of labels decide, a finding may be guessed whose probability is below one half: the guess itself is taught there, as it is where a
    finding above one half is guessed to be absent, and everywhere at the temperature 0.

    Parameters
    ----------
    probabilities : Tensor of float, shape [n, L]
        Of the findings.
    present : Tensor of bool, shape [n, L]
        What is guessed.
    temperature : float
        From 0.
    """
    hard = present.to(probabilities.dtype)
    if not temperature:
        return hard
    soft = (probabilities.logit(1e-6) / temperature).sigmoid()
    return soft.where((probabilities >= 0.5) == present, hard)
