"""SemiAnAgg: silos count more the further their features moved from a shared random anchor model (methods reference, 6.9)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import RANDOM_ANCHOR_DIFFERS
from anchorage.api.fact import Fact
from anchorage.api.method import Count
from anchorage.api.piece import AuxiliaryArray, Need, piece
from anchorage.api.task import CLASSIFICATION, Task
from anchorage.engine.aggregation.weigher import Announcements, BaseWeigher, Evaluations, counts
from anchorage.learning.round_part import RoundPart
from anchorage.pieces.weighting.fedavg_semi import Floats, TwoHalves, normalised, two_halves
from anchorage.transport.messages import Announcement, AuxiliaryData

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from anchorage.api.model import ModelSpec
    from anchorage.learning.server_round import ServerRound
    from anchorage.learning.silo_round import SiloRound
    from anchorage.transport.tensors.model import ModelBytes

_COMPUTED = "semiAnAgg"


@piece("semiAnAgg")
class SemiAnAgg(TwoHalves):
    """FedAvg-Semi whose unlabelled part goes by the distance of features from those of a random anchor model (SemiAnAgg)."""

    tasks: ClassVar[frozenset[str] | None] = CLASSIFICATION
    needs_network: ClassVar[bool] = True

    order: Literal["Paper", "Code"] = Field(
        "Paper",
        description="Order of the calculation. Paper: 1 - similarity, then normalised over silos. Code: normalised first, as in the "
        "published code; weights are nearly uniform.",
    )
    anchor_seed: Annotated[int, Field(ge=1, le=99)] = Field(
        1,
        description="Number of the random anchor model, which is drawn from it and the run's seed.",
    )
    minimum_per_class: Count = Field(
        1, description="Minimum number of confident images of a class, which a silo else reports as absent."
    )

    def needs(self) -> Sequence[Need]:
        """Need pseudo-labels with the received model's features beside them."""
        message = (
            "found semiAnAgg, which compares features of confidently labelled images, but these pseudo-labels tell none; "
            "set pseudoLabels: flexMatch, anchorSimilarity or receivedModel, or weighting: {fedAvgSemi: {}}"
        )
        return (*super().needs(), Need(Fact.RECEIVED_FEATURES, message))

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return the anchor's digest, and the similarities."""
        return (
            AuxiliaryArray(
                "random_anchor",
                "[32] uint8",
                "SHA-256 of the anchor model's weights, which the silo compares with its own",
            ),
            AuxiliaryArray(
                "similarity",
                "[C] float64",
                "mean cosine to the anchor model's features per class, NaN where absent",
                up=True,
            ),
        )

    def weigher(self, task: Task) -> SemiAnAggWeigher:
        """Return the weigher."""
        return SemiAnAggWeigher(self.order, float(self.labelled_share), len(task.outputs))

    def server_auxiliary(self, server_round: ServerRound, model: ModelBytes) -> AuxiliaryData:
        """Return ``random_anchor``, uint8 [32]: SHA-256 of the random encoder's weights."""
        from anchorage.learning.device import calculation

        if _COMPUTED not in server_round.computed:
            with calculation():
                encoder = build_random_anchor(server_round.model, server_round.seed, self.anchor_seed)
                server_round.computed[_COMPUTED] = np.frombuffer(fingerprint(encoder), np.uint8)
        return {"random_anchor": server_round.computed[_COMPUTED]}

    def begin(self, silo_round: SiloRound) -> Similarities:
        """Compare the features of confident images with the anchor's."""
        return Similarities(self, silo_round)

    def anchor_features(self, silo_round: SiloRound) -> Tensor:
        """Return unit features of all images by the random anchor encoder, float32 [n, d]; computed once.

        Raises
        ------
        AnchorageError
            The server's random anchor, whose SHA-256 it sends, is another one.
        """
        from anchorage.algorithms.pseudo_labels import unit_rows
        from anchorage.learning.device import to_device

        images, run = silo_round.images, silo_round.run
        if _COMPUTED not in images.computed:
            encoder = build_random_anchor(run.model, run.seed, self.anchor_seed)
            digest = fingerprint(encoder)
            to_device(encoder, images.views.device)
            everything = np.arange(len(images.views))
            units = unit_rows(images.views.map_batches(everything, lambda i: encoder(images.views.pixels(i))))
            images.computed[_COMPUTED] = digest, units
        digest, features = images.computed[_COMPUTED]
        sent = silo_round.auxiliary_data.get("random_anchor")
        if sent is not None and sent.tobytes() != digest:
            message = f"SHA-256 of the weights is {digest.hex()} here and {sent.tobytes().hex()} at the server"
            raise AnchorageError(RANDOM_ANCHOR_DIFFERS, message)
        return features  # type: ignore[no-any-return]


class Similarities(RoundPart):
    """Sums of cosines per pseudo-class in one round of a silo; what is announced is of the last pass."""

    wants_pseudo_labels = True
    resumes = True

    def __init__(self, slot: SemiAnAgg, silo_round: SiloRound) -> None:
        self._slot, self._round = slot, silo_round
        self._sums: SimilaritySums | None = None

    def epoch_begins(self) -> None:
        """Start the sums anew."""
        self._sums = SimilaritySums(self._round.run.model.num_outputs, self._round.images.views.device)

    def pseudo_labelled(self, indices: Tensor, features: Tensor, labels: Tensor, confident: Tensor) -> None:
        """Add a batch."""
        if self._sums is None:
            self.epoch_begins()
        assert self._sums is not None, "just made"
        self._sums.add(self._slot.anchor_features(self._round)[indices], features, labels, confident)

    def auxiliary(self) -> Mapping[str, NDArray[Any]]:
        """Return ``similarity``, float64 [C], NaN where too few images were confident."""
        if self._sums is None:
            return {"similarity": np.full(self._round.run.model.num_outputs, np.nan)}
        return {"similarity": self._sums.means(self._slot.minimum_per_class)}


class SemiAnAggWeigher(BaseWeigher):
    """Half of the weight by labelled images, half by distance from the anchor model, class by class (KAT-B1 to B6).

    Reads ``similarity``, float64 of shape [C]: mean cosine to the anchor model per pseudo-class, NaN where nothing was accepted. Only silos
    with unlabelled images share the unlabelled half.
    """

    barrier = True

    def __init__(self, order: str, labelled_share: float, num_classes: int) -> None:
        self._order = order
        self._labelled_share = labelled_share
        self._num_classes = num_classes

    def _sound(self, announcement: Announcement) -> bool:
        similarity = announcement.auxiliary_data.get("similarity")
        if similarity is None:
            return super()._sound(announcement) and announcement.samples.get("selected", 0) == 0
        in_range = similarity.shape == (self._num_classes,) and bool(
            np.all(np.isnan(similarity) | (np.abs(similarity) <= 1 + 1e-6))
        )
        return in_range and super()._sound(announcement)

    def _weigh(self, active: Announcements, evaluations: Evaluations) -> dict[str, float]:
        silos = list(active.values())
        unlabelled = [
            i for i, a in enumerate(silos) if "similarity" in a.auxiliary_data and a.samples.get("unlabelled", 1) > 0
        ]
        similarity = [np.asarray(silos[index].auxiliary_data["similarity"], np.float64) for index in unlabelled]
        labelled = counts(active, "labelled")
        shares = np.zeros(len(active))
        if unlabelled and (not labelled.any() or not np.isnan(similarity).all()):
            shares[unlabelled] = self._shares(np.array(similarity))
        return dict(zip(active, two_halves(labelled, shares, self._labelled_share).tolist(), strict=True))

    def _shares(self, similarity: Floats) -> Floats:
        if self._order == "Code":  # negative cosines would give weights outside [0, 1] (KAT-B2)
            return semianagg_code(np.clip(similarity, 0.0, 1.0))
        return semianagg_paper(np.minimum(similarity, 1.0))


def remoteness(similarity: Floats) -> Floats:
    """Return r = 1 - w per silo and class, 0 where the class is absent (w is NaN)."""
    remote: Floats = np.where(np.isnan(similarity), 0.0, 1.0 - similarity)
    return remote


def share_per_class(values: Floats) -> Floats:
    """Divide each class (column) by its sum over the silos; a class whose sum is 0 stays 0."""
    sums = values.sum(0)
    shares: Floats = np.divide(values, sums, out=np.zeros_like(values), where=sums != 0)
    return shares


def semianagg_paper(similarity: Floats) -> Floats:
    """SemiAnAgg's weights in the paper's order: 1 - w first, then each class over the silos, then the sum over classes."""
    return normalised(share_per_class(remoteness(similarity)).sum(1))


def similarity_share(similarity: Floats) -> Floats:
    """Divide each class by its sum over the silos, absent entries counting as 1; uniform where the sum is 0."""
    filled = np.where(np.isnan(similarity), 1.0, similarity)
    sums = filled.sum(0)
    shares: Floats = np.divide(filled, sums, out=np.full_like(filled, 1.0 / len(filled)), where=sums != 0)
    return shares


def semianagg_code(similarity: Floats) -> Floats:
    """SemiAnAgg's weights in the published code's order: each class over the silos first, then 1 - that, then the sum over classes.

    Nearly uniform: between 0 and 1 / (K - 1) where no similarity is negative.
    """
    return normalised((1.0 - similarity_share(similarity)).sum(1))


def build_random_anchor(model: ModelSpec, seed: int, number: int = 1) -> nn.Module:
    """Return the encoder that every silo draws from the run's seed, on the CPU, in eval mode with initial batch statistics.

    `number` tells the random anchors of one run apart.
    """
    from anchorage.learning.models import build_encoder, draw_weights

    encoder = build_encoder(model, seed)
    draw_weights(encoder, seed, "random-anchor" if number == 1 else f"random-anchor-{number}")
    return encoder.eval().requires_grad_(False)


def fingerprint(module: nn.Module) -> bytes:
    """Return SHA-256 over names, shapes and values of a module's tensors, 32 bytes; equal only for equal weights."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.digest()


class SimilaritySums:
    """Sums of cosines per pseudo-class, divided once at the end.

    Parameters
    ----------
    num_classes : int
        Classes C.
    device : torch.device
        Where features come from.
    """

    def __init__(self, num_classes: int, device: torch.device) -> None:
        import torch

        self._classes = torch.arange(num_classes, device=device)
        self._sums = torch.zeros(num_classes, dtype=torch.float64, device=device)
        self._counts = torch.zeros(num_classes, dtype=torch.int64, device=device)

    def add(self, anchor: Tensor, model: Tensor, labels: Tensor, selected: Tensor) -> None:
        """Add a batch.

        Parameters
        ----------
        anchor : Tensor of float, shape [n, d]
            Features q by the random anchor encoder.
        model : Tensor of float, shape [n, d]
            Features q-hat by the received model's encoder.
        labels : Tensor of int64, shape [n]
            Pseudo-labels.
        selected : Tensor of bool, shape [n]
            Whether the pseudo-label is confident; others do not count.
        """
        from anchorage.algorithms.pseudo_labels import unit_rows

        cosines = (unit_rows(anchor) * unit_rows(model)).sum(1).double()
        member = (labels[:, None] == self._classes) & selected[:, None]
        self._sums += (member * cosines[:, None]).sum(0)
        self._counts += member.sum(0)

    def means(self, minimum: int = 1) -> NDArray[np.float64]:
        """Return the mean cosine per class, float64 [C], NaN where fewer than `minimum` were selected (methods reference, section 10)."""
        import torch

        has_enough = self._counts >= minimum
        return torch.where(has_enough, self._sums / self._counts.clamp(min=1), torch.nan).cpu().numpy()

    def counts(self) -> NDArray[np.int64]:
        """Return the selected images per class, int64 [C]."""
        return self._counts.cpu().numpy()
