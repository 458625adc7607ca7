"""A classifier in closed form from class moments of frozen features (newer methods reference, N3: GH-OFL, FedCGS, ridge)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import LABELS_MISSING, MEANINGLESS_OVERRIDE, PROTOCOL_REFUSED
from anchorage.api.errors.learning import MOMENTS_UNUSABLE
from anchorage.api.errors.transfer import OUT_OF_BOUNDS
from anchorage.api.fact import Fact
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import AuxiliaryArray, Need, piece
from anchorage.api.task import CLASSIFICATION
from anchorage.engine.aggregation.apart import summed_apart
from anchorage.engine.aggregation.mean import UnusableUpdate
from anchorage.engine.aggregation.single_tensors import TensorReader
from anchorage.learning.hooks import BatchNormHooks, ServerTrainer, expect
from anchorage.learning.method import TrainingMethod
from anchorage.pieces.pseudo_labels.calibrated import unlabelled_shares
from anchorage.pieces.slots import ServerTraining
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import MOMENTS, Layout
from anchorage.transport.tensors.model import ModelBytes

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from anchorage.algorithms.moments import Moments, Second
    from anchorage.api.method import ResolvedMethod
    from anchorage.api.plan import Plan
    from anchorage.learning.models import Network
    from anchorage.learning.server_round import ServerRound
    from anchorage.learning.silo_round import SiloRound, Work
    from anchorage.learning.views import Views

FEW = 5
"""Images of a class below which naive Bayes takes the variances within all classes."""


@piece("moments")
class ClassMoments(ServerTraining):
    """Classifier computed from class moments of frozen features, without training at silos."""

    tasks: ClassVar[frozenset[str] | None] = CLASSIFICATION
    trains: ClassVar[bool] = True
    needs_network: ClassVar[bool] = True
    needs_anchors: ClassVar[bool] = False

    head: Literal["Lda", "NaiveBayes", "Qda", "Ridge", "Total", "FisherMix", "ProtoHyper"] = Field(
        "Lda",
        description="Classifier that the server makes of the moments. Lda: linear discriminant. NaiveBayes: independent features with "
        "variances per class. Qda: a covariance per class. Ridge: ridge regression on one-hot labels. Total: linear "
        "discriminant with the covariance of all images, those without a label included (FedCGS). FisherMix, ProtoHyper: "
        "trained at the server on features that are drawn around the class means (GH-OFL).",
    )
    shrinkage: Fraction = Field(
        "0.05",
        description="Regularisation: share of the identity matrix, times the mean variance, in every covariance; for Ridge, the penalty as "
        "a share of the mean scatter. NaiveBayes has none. Raise it as labels get fewer.",
    )
    prior: Literal["Counts", "Uniform"] = Field(
        "Counts",
        description="Class prior. Counts: shares of the labelled images. Uniform: every class alike. Ridge and FisherMix have none.",
    )
    minimum_count: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        5,
        description="Minimum number of labelled images of a class for which a silo sends sums: the sum over a single image would be that "
        "image's features. Lower it only where silos may show sums over so few images.",
    )

    @property
    def second(self) -> Second:
        """Which second moments the classifier needs."""
        return {"NaiveBayes": "Diagonal", "Qda": "PerClass"}.get(self.head, "Pooled")  # type: ignore[return-value]

    def facts(self) -> frozenset[str]:
        """Say that the server makes the classifier, and that no silo trains; `check` asks for labels."""
        used = {Fact.UNLABELLED_MOMENTS} if self.head == "Total" else set()
        return frozenset({Fact.SERVER_TRAINING, Fact.LABELS_UNREAD, Fact.LABELS_UNNEEDED, Fact.UNTRAINED, *used})

    def needs(self) -> Sequence[Need]:
        """Need rounds, and silos that train on nothing."""
        mode = "found Asynchronous, but moments are summed over a round's silos; set Synchronous"
        alone = "found {}, but with serverTraining moments no silo trains; set {{none: {{}}}}"
        return (
            Need(Fact.ROUNDS, mode, failure=PROTOCOL_REFUSED, path=("spec", "protocol", "mode")),
            *(
                Need(fact, alone.format(slot), refused=True, path=("spec", "method", slot))
                for fact, slot in ((Fact.PSEUDO_LABELS, "pseudoLabels"), (Fact.SELF_SUPERVISION, "selfSupervised"))
            ),
        )

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Need labels that the classifier can use, and features that stay as they were counted."""
        method = plan.spec.method
        if method.local is not None:
            message = "found local training, but with serverTraining moments no silo trains; remove it"
            yield Mistake(MEANINGLESS_OVERRIDE, ("spec", "method", "local"), message)
        norms = expect(plan.method.batch_norm, BatchNormHooks)
        if norms.finishes_model(judged=True):
            message = f"found {norms.name}, which changes the features after their moments are taken; set average"
            yield Mistake(MEANINGLESS_OVERRIDE, norms.path, message)
        if not plan.silos or Fact.LABELLED_SILOS in plan.facts:
            return
        if Fact.ANCHORS not in plan.facts:
            message = "found labels nowhere; label a silo, or give the server spec.anchorData"
            yield Mistake(LABELS_MISSING, self.option("head"), message)
        elif (
            self.head != "Total" and not plan.warms_up
        ):  # before a method that trains silos, the anchors' own classifier is of use
            message = f"found {self.head}, to which silos without labels add nothing; set Total, or label a silo"
            yield Mistake(LABELS_MISSING, self.option("head"), message)

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return the moments."""
        shapes = {"Diagonal": "[C, d]", "PerClass": "[C, d (d + 1) / 2]", "Pooled": "[d (d + 1) / 2]"}
        counted = "class histogram: labelled images per class, then those without a label"
        second = "products of two features, summed over images"
        return tuple(
            AuxiliaryArray(MOMENTS + name, f"{shape} float64", meaning, up=True)
            for name, shape, meaning in (
                ("counts", "[C + 1]", counted),
                ("sums", "[C + 1, d]", "features, summed over the images of each class"),
                ("seconds", shapes[self.second], second),
            )
        )

    def add_heads(self, network: Network) -> None:
        """Put a classifier with covariances in the linear one's place, where the head needs it."""
        from anchorage.learning.gaussian_head import GaussianHead

        if self.second != "Pooled":
            linear = network.classifier
            whole = self.second == "PerClass"
            network.classifier = GaussianHead(linear.in_features, linear.out_features, whole=whole)

    def down_layout(self, layout: Layout, network: Network) -> Layout:
        """Add the moments, which are zero on their way down."""
        from anchorage.algorithms.moments import second_shape

        classes, width = network.classifier.out_features, network.classifier.in_features
        shapes = {
            "counts": (classes + 1,),
            "sums": (classes + 1, width),
            "seconds": second_shape(self.second, classes, width),
        }
        own = [(t.name, t.dtype, t.shape) for t in layout.tensors]
        return Layout.of([*own, *((MOMENTS + name, "F64", shape) for name, shape in shapes.items())])

    def up_layout(self, layout: Layout, method: ResolvedMethod) -> Layout:
        """Leave nothing but the moments."""
        return layout.select(t.name for t in layout.tensors if t.name.startswith(MOMENTS))

    def travels_beside(self, layout: Layout, model: ModelBytes | None) -> Mapping[str, NDArray[Any]]:
        """Return zeros: what the server summed up goes no further."""
        return {t.name: np.zeros(t.shape) for t in layout.tensors if t.name.startswith(MOMENTS)}

    def silo_work(self, silo_round: SiloRound) -> Work:
        """Return the moments of the silo's images, without a step; those without a label count as what the received classifier guesses."""
        from anchorage.learning.silo_round import Work

        images, classes = silo_round.images, silo_round.run.model.num_outputs
        labels = guessed_labels(silo_round)
        counts = np.bincount(labels[labels >= 0], minlength=classes)
        withheld = (counts > 0) & (counts < self.minimum_count)
        used = np.where(labels < 0, self.head == "Total", ~withheld[labels])
        chosen = images.train[used]
        known = labels[used]
        samples = {
            "train": len(chosen),
            "labelled": int((known >= 0).sum()),
            "unlabelled": int((known < 0).sum()),
            "smallest_group": int(min(np.unique(known, return_counts=True)[1], default=0)),
        }
        arrays = None
        if len(chosen):
            found = moments_of(silo_round.network, images.views, chosen, known, self.second)
            arrays = {MOMENTS + name: array for name, array in found.arrays().items()}
        metrics = {"withheld_classes": float(withheld.sum())}
        return Work(iter(()), 0, samples, untrained=arrays, metrics=lambda: metrics)

    def refine(
        self,
        mean: ModelBytes,
        updates: Sequence[ChunkSource],
        weights: Sequence[float],
        announcements: Sequence[Announcement],
    ) -> ModelBytes:
        """Sum the moments up.

        Raises
        ------
        UnusableUpdate
            A silo's counts are not those of the images that it announced.
        """
        entry = mean.layout.by_name[MOMENTS + "counts"]
        for index, (update, announcement) in enumerate(zip(updates, announcements, strict=True)):
            counts = TensorReader(update)(entry)
            announced = announcement.samples.get("labelled", 0), announcement.samples.get("unlabelled", 0)
            whole = bool((counts >= 0).all() and (counts == np.floor(counts)).all())
            if not whole or (counts[:-1].sum(), counts[-1]) != announced:
                found = f"tensor {entry.name} does not count the {sum(announced)} images announced"
                raise UnusableUpdate(index, OUT_OF_BOUNDS, found)
        return summed_apart(mean, updates, MOMENTS)

    def trainer(self, method: TrainingMethod) -> ClosedForm:
        """Return what makes the classifier."""
        return ClosedForm(self)


class ClosedForm(ServerTrainer):
    """Makes the classifier of a round's moments and those of the server's own anchors."""

    def __init__(self, slot: ClassMoments) -> None:
        self._slot = slot

    def train(self, server_round: ServerRound) -> Mapping[str, float]:
        """Set the classifier and return how many classes no image was counted of.

        Raises
        ------
        AnchorageError
            MOMENTS_UNUSABLE: fewer than two classes have images, or the covariance is none.
        """
        import torch

        from anchorage.algorithms.moments import Moments
        from anchorage.learning.stepping import on_trial

        second, network = self._slot.second, server_round.network
        told = {name.removeprefix(MOMENTS): array for name, array in server_round.beside.items()}
        moments, anchors = Moments.from_arrays(told, second), server_round.anchors
        if anchors is not None:
            moments = moments + moments_of(network, anchors.views, anchors.indices, anchors.labels, second)
        present = moments.labelled > 0
        if not present.any() and on_trial():
            return {}
        if int(present.sum()) < 2:
            message = (
                f"{int(present.sum())} of {len(present)} classes have labelled images that count; give more labels"
            )
            raise AnchorageError(MOMENTS_UNUSABLE, message)
        with torch.no_grad():
            drawn = server_round.draws.torch("synthetic features")
            for name, values in classifier_of(moments, self._slot, drawn).items():
                getattr(network.classifier, name).copy_(values)
        return {"absent_classes": float((~present).sum())}


def guessed_labels(silo_round: SiloRound) -> NDArray[np.int64]:
    """Return the labels of the images to train on, int64 [n]: where the silo states its class counts, guesses in the place of missing ones.

    They are the received classifier's, corrected to these counts; -1 in the first round, to which no classifier comes, and without counts.
    """
    from anchorage.algorithms.calibration import shift_to

    images, network = silo_round.images, silo_round.network
    labels = images.labels[images.train].copy()
    missing = labels < 0
    if silo_round.draws.round == 1 or images.stated_counts is None or not missing.any():
        return labels
    logits = images.views.mapped(images.train[missing], lambda i: network(images.views.plain(i))).double()
    shift = shift_to(logits, unlabelled_shares(images))
    labels[missing] = (logits + shift).argmax(1).cpu().numpy()
    return labels


def moments_of(
    network: Network, views: Views, indices: NDArray[np.int64], labels: NDArray[np.int64], second: Second
) -> Moments:
    """Return the moments of plain images in eval mode, batch by batch.

    Parameters
    ----------
    network : Network
        Its features are what the classifier sees.
    views, indices : Views, ndarray of int64, shape [n]
        Which images; at least one.
    labels : ndarray of int64, shape [n]
        Their classes, -1 without.
    second : Second
        Which second moments.
    """
    import torch

    from anchorage.algorithms.moments import Moments

    total, start, classes = None, 0, network.classifier.out_features
    with torch.no_grad():
        for batch in views.over(indices):
            known = views.to_device(labels[start : start + len(batch)])
            start += len(batch)
            found = Moments.of(network.represent(views.plain(batch)), known, classes, second)
            total = found if total is None else total + found
    assert total is not None, "there is an image"
    return total


def classifier_of(
    moments: Moments, options: ClassMoments, drawn: torch.Generator | None = None
) -> Mapping[str, Tensor]:
    """Return the classifier's parameters by name, float64; a class without images scores `ABSENT` everywhere.

    `drawn` is where FisherMix and ProtoHyper draw features from.
    """
    import torch

    from anchorage.algorithms.moments import ABSENT, discriminant, naive_bayes, quadratic_discriminant

    shrinkage, present = float(options.shrinkage), moments.labelled > 0
    prior = moments.log_prior(uniform=options.prior == "Uniform")
    if options.head == "Qda":
        found = quadratic_discriminant(moments, prior, shrinkage)
    elif options.head == "NaiveBayes":
        found = naive_bayes(moments, prior, FEW)
    elif options.head == "Ridge":
        scale = float(moments.total().diagonal().mean() * moments.counts.sum())
        found = dict(zip(("weight", "bias"), moments.ridge(shrinkage * scale), strict=True))
    elif options.head in ("FisherMix", "ProtoHyper"):
        from anchorage.algorithms.synthetic_heads import synthetic_head

        assert drawn is not None, "the server's training has it"
        with torch.enable_grad():
            trained = synthetic_head(moments, prior, shrinkage, drawn, distilled=options.head == "ProtoHyper")
        found = dict(zip(("weight", "bias"), trained, strict=True))
    else:
        covariance = moments.total() if options.head == "Total" else moments.within()
        head = discriminant(moments.means(), covariance, prior, shrinkage)
        found = dict(zip(("weight", "bias"), head, strict=True))
    found["bias"] = torch.where(present, found["bias"], ABSENT)
    return found
