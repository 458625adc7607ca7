"""FedAnchor's labels: by similarity to the server's labelled anchors (methods reference, 6.8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.errors.documents import CLASS_WITHOUT_ANCHORS, NO_ANCHOR_DATA
from anchorage.api.fact import Fact
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import AuxiliaryArray, Need, piece
from anchorage.pieces.anchor_head import WithAnchorHead, anchor_outputs
from anchorage.pieces.pseudo_labels.calibrated import Validated
from anchorage.pieces.pseudo_labels.fixed_labels import FixedLabels
from anchorage.transport.messages import AuxiliaryData

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from anchorage.api.plan import Plan
    from anchorage.learning.server_round import ServerRound
    from anchorage.learning.silo_round import SiloRound
    from anchorage.transport.tensors.model import ModelBytes

_COMPUTED = "anchorSimilarity"


class Embedded(NamedTuple):
    """What a model makes of the anchors."""

    model: str
    """Digest of the model."""

    auxiliary: AuxiliaryData
    """What silos are told."""

    unreachable: int
    """Classes as which no silo can accept an image."""


@piece("anchorSimilarity")
class AnchorSimilarity(WithAnchorHead, FixedLabels, Validated):
    """Labels by the similarity of an image's embedding to those of the server's labelled anchors (FedAnchor)."""

    needs_every_class: ClassVar[bool] = True
    threshold: Fraction = Field(
        "0.6",
        description="Mean cosine similarity to the anchors of a class above which a label is accepted. Lower it while the metric "
        "`unreachable_classes` counts classes of which no image can be accepted.",
    )
    calibration: Literal["None", "Validation"] = Field(
        "None",
        description="How thresholds are set. None: `threshold` for all classes. Validation: in each round, for each class, the lowest "
        "value from which the share `threshold` of the guesses for the server's validation images is right.",
    )
    anchors: Literal["Prototypes", "Raw"] = Field(
        "Prototypes",
        description="What silos are sent of the anchors; labels are the same. Prototypes: the mean embedding of each class. Raw: the "
        "embedding and class of every anchor.",
    )
    views: Annotated[int, Field(ge=1, le=16)] = Field(
        1,
        description="Number of weakly augmented views of an image whose scores are averaged. 1: the plain image.",
    )

    def facts(self) -> frozenset[str]:
        """Say that silos need no labels and read none."""
        return super().facts() | {Fact.LABELS_FROM_ANCHORS, Fact.LABELS_UNREAD}

    def needs(self) -> Sequence[Need]:
        """Need anchors."""
        message = "found nothing, but pseudo-labels by anchorSimilarity need labelled anchors; add it"
        return (Need(Fact.ANCHORS, message, failure=NO_ANCHOR_DATA, path=("spec", "anchorData")),)

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Need an anchor of every class."""
        yield from super().check(plan)
        yield from anchors_of_every_class(plan)

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return prototypes, or every anchor."""
        thresholds = super().auxiliary()
        if self.anchors == "Prototypes":
            mean = AuxiliaryArray("prototypes", "[C, 128] float32", "class means of the anchors' unit embeddings")
            return (mean, *thresholds)
        return (
            *thresholds,
            AuxiliaryArray("anchors", "[S, 128] float32", "every anchor's unit embedding"),
            AuxiliaryArray("anchor_labels", "[S] int64", "the anchors' classes"),
        )

    def label(self, silo_round: SiloRound, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return each image's best class, int64 [b], and whether its score is above the threshold, bool [b]."""
        scores = self._scores(silo_round, indices)
        if not self.validated:
            return accept(scores, float(self.threshold))
        from anchorage.algorithms.calibration import reaches

        best, labels = scores.max(1)
        return labels, reaches(best, labels, self.thresholds(silo_round))

    def _scores(self, silo_round: SiloRound, indices: NDArray[np.int64]) -> Tensor:
        import torch

        views, network = silo_round.images.views, silo_round.network
        prototypes, present = self._prototypes(silo_round)
        if self.views == 1:
            return views.map_batches(
                indices, lambda i: anchor_scores(anchor_outputs(network, views.plain(i)), prototypes, present)
            )
        augmentation = silo_round.draws.torch("pseudo-labels")

        def scores(batch: Tensor) -> Tensor:
            embeddings = [anchor_outputs(network, views.weak(batch, augmentation)) for _ in range(self.views)]
            return ensemble_scores(torch.stack(embeddings), prototypes, present)

        return views.map_batches(indices, scores)

    def _prototypes(self, silo_round: SiloRound) -> tuple[Tensor, Tensor]:
        if self.anchors == "Raw":
            anchor_data = silo_round.auxiliary("anchors", "anchor_labels")
            return class_prototypes(
                anchor_data["anchors"], anchor_data["anchor_labels"], silo_round.run.model.num_outputs
            )
        prototypes = silo_round.auxiliary("prototypes")["prototypes"]
        return prototypes.nan_to_num(), ~prototypes.isnan().any(1)

    def server_auxiliary(self, server_round: ServerRound, model: ModelBytes) -> AuxiliaryData:
        """Return ``prototypes`` float32 [C, 128] (NaN rows for classes without anchors), or ``anchors`` float32 [S, 128] of unit length and
        ``anchor_labels`` int64 [S].
        """
        return {**self._embed_anchors(server_round, model).auxiliary, **super().server_auxiliary(server_round, model)}

    def server_scores(self, server_round: ServerRound) -> Tensor:
        """Return the validation images' mean cosines to each class's anchors, float [n, C]."""
        images, anchors, network = server_round.validation, server_round.needed, server_round.network
        assert images is not None, "checked with the documents"
        known = anchors.views.map_batches(anchors.indices, lambda i: anchor_outputs(network, anchors.views.plain(i)))
        labels = anchors.views.to_device(anchors.labels)
        prototypes, present = class_prototypes(known, labels, server_round.model.num_outputs)
        views = images.views
        return views.map_batches(
            images.indices, lambda i: anchor_scores(anchor_outputs(network, views.plain(i)), prototypes, present)
        )

    def server_metrics(self, server_round: ServerRound, model: ModelBytes) -> Mapping[str, float]:
        """Return ``unreachable_classes``: as so many classes no silo can accept an image in the next round, because their prototypes are no
        longer than the threshold (methods reference, 9.2, number 4).
        """
        return {} if self.validated else {"unreachable_classes": self._embed_anchors(server_round, model).unreachable}

    def _embed_anchors(self, server_round: ServerRound, model: ModelBytes) -> Embedded:
        """Embed the anchors by a model, once (methods reference, 9.2, number 29)."""
        from anchorage.learning.device import calculation

        known = server_round.computed.get(_COMPUTED)
        if known is None or known.model != model.digest:
            with calculation():
                server_round.take(model)
                known = server_round.computed[_COMPUTED] = self._embed(server_round, model.digest)
        return known

    def _embed(self, server_round: ServerRound, digest: str) -> Embedded:
        from anchorage.algorithms.pseudo_labels import unit_rows

        anchors, network = server_round.needed, server_round.network
        views = anchors.views
        units = unit_rows(views.map_batches(anchors.indices, lambda i: anchor_outputs(network, views.plain(i))))
        classes = server_round.model.num_outputs
        prototypes, present = class_prototypes(units, views.to_device(anchors.labels), classes)
        if self.anchors == "Raw":
            auxiliary_data: AuxiliaryData = {"anchors": units.cpu().numpy(), "anchor_labels": anchors.labels}
        else:
            auxiliary_data = {"prototypes": prototypes.masked_fill(~present[:, None], float("nan")).cpu().numpy()}
        return Embedded(digest, auxiliary_data, int(unreachable(prototypes, float(self.threshold)).sum()))


def anchors_of_every_class(plan: Plan) -> Iterator[Mistake]:
    """Find that fewer anchors are taken than there are classes."""
    data, classes = plan.spec.anchor_data, len(plan.spec.task.outputs)
    if data is not None and data.use == "Anchors" and 0 < data.anchors < classes:
        message = f"found {data.anchors}, but the model has {classes} classes and each needs an anchor; take more"
        yield Mistake(CLASS_WITHOUT_ANCHORS, ("spec", "anchorData", "anchors"), message)


def class_prototypes(anchors: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return the mean unit anchor of every class. It is *not* scaled to length 1: its length is how close the class's anchors are.

    Parameters
    ----------
    anchors : Tensor of float, shape [S, d]
        Embeddings of the anchors, scaled or not.
    labels : Tensor of int64, shape [S]
        Their classes.
    num_classes : int
        Classes C.

    Returns
    -------
    prototypes : Tensor of float, shape [C, d]
        Zeros for a class without anchors.
    present : Tensor of bool, shape [C]
        Classes that have an anchor.
    """
    import torch

    member = (labels[:, None] == torch.arange(num_classes, device=labels.device)).to(anchors.dtype)
    counts = member.sum(0)
    from anchorage.algorithms.pseudo_labels import unit_rows

    return member.T @ unit_rows(anchors) / counts.clamp(min=1)[:, None], counts > 0


def anchor_scores(queries: Tensor, prototypes: Tensor, present: Tensor) -> Tensor:
    """Return each query's mean cosine to the anchors of each class, exactly as against every single anchor.

    Parameters
    ----------
    queries : Tensor of float, shape [n, d]
        Embeddings; scaling them does not change the scores.
    prototypes : Tensor of float, shape [C, d]
        Of `class_prototypes`.
    present : Tensor of bool, shape [C]
        Classes that have an anchor.

    Returns
    -------
    Tensor of float, shape [n, C]
        Minus infinity for classes without anchors, 0 for a query of zeros.
    """
    import torch

    lengths = torch.linalg.vector_norm(queries, dim=1, keepdim=True).clamp(min=1e-12)
    return _hide_absent(queries @ prototypes.T / lengths, present)


def ensemble_scores(views: Tensor, prototypes: Tensor, present: Tensor) -> Tensor:
    """Return the mean of `anchor_scores` over several views of each image, by one score of the mean unit query.

    Parameters
    ----------
    views : Tensor of float, shape [K, n, d]
        Embeddings of K views of n images.
    prototypes, present : Tensor
        As for `anchor_scores`.
    """
    from torch.nn import functional

    return _hide_absent(functional.normalize(views, dim=2, eps=1e-12).mean(0) @ prototypes.T, present)


def unreachable(prototypes: Tensor, threshold: float) -> Tensor:
    """Return which classes no image can be accepted as, bool [C]: a score is at most the prototype's length (methods reference, 9.2, number 4).

    Such a class can still be an image's best one, which is then not accepted, so it is no less a class of `anchor_scores`.

    Parameters
    ----------
    prototypes : Tensor of float, shape [C, d]
        Of `class_prototypes`; a class without anchors has zeros.
    threshold : float
        Acceptance threshold t, at least 0.
    """
    import torch

    lengths = torch.linalg.vector_norm(prototypes, dim=1)
    lost: Tensor = lengths <= torch.tensor(threshold, dtype=lengths.dtype, device=lengths.device)
    return lost


def _hide_absent(scores: Tensor, present: Tensor) -> Tensor:
    """Put minus infinity where a class has no anchor."""
    return scores.masked_fill(~present, float("-inf"))


def accept(scores: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Return the best class of every image and whether its score is above the threshold, strictly and in the scores' dtype.

    Parameters
    ----------
    scores : Tensor of float, shape [n, C]
        Of `anchor_scores`.
    threshold : float
        Acceptance threshold t.

    Returns
    -------
    labels : Tensor of int64, shape [n]
        The first best class.
    accepted : Tensor of bool, shape [n]
        Score > t.
    """
    import torch

    best, labels = scores.max(1)
    return labels, best > torch.tensor(threshold, dtype=scores.dtype, device=scores.device)
