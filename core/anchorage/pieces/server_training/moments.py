"""A classifier in closed form from class moments of frozen features (methods reference, N3: GH-OFL, FedCGS, ridge)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import AboveZero, Fraction
from anchorage.api.errors.documents import LABELS_MISSING, MEANINGLESS_OVERRIDE
from anchorage.api.fact import Fact
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import NEW_OPTION, AuxiliaryArray, expect, piece
from anchorage.api.task import CLASSIFICATION
from anchorage.learning.hooks import BatchNormHooks, ServerTrainer
from anchorage.learning.method import TrainingMethod
from anchorage.pieces.server_training.guesses import SEVERAL, Part, Recipe, silo_moments
from anchorage.pieces.server_training.sums import SumsOfFeatures

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.algorithms.moments import Second
    from anchorage.api.plan import Plan
    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound, Work

_SCALE = "classifier.scale"
"""Covariances of a classifier of Gaussians: a model that begins the run may have a linear one."""

ROUNDING = 1e-6
"""Images by which shares of images may add up to more than the images."""


@piece("moments")
class ClassMoments(SumsOfFeatures):
    """Classifier computed from class moments of frozen features, without training at silos."""

    tasks: ClassVar[frozenset[str] | None] = CLASSIFICATION
    head: Literal["Lda", "NaiveBayes", "Qda", "Ridge", "Total", "FisherMix", "ProtoHyper"] = Field(
        "Lda",
        description="Classifier that the server makes of the moments. Lda: linear discriminant. NaiveBayes: independent features with "
        "variances per class. Qda: a covariance per class. Ridge: ridge regression on one-hot labels. Total: linear "
        "discriminant with the covariance of all images, also those without a label (FedCGS). FisherMix, ProtoHyper: trained "
        "at the server on features drawn around the class means (GH-OFL).",
    )
    shrinkage: Fraction = Field(
        "0.05",
        description="Regularisation: share of the identity matrix, times the mean variance, in every covariance; for Ridge, the penalty as "
        "a share of the mean scatter. NaiveBayes has none. Raise it for fewer labels.",
    )
    first_shrinkage: Annotated[Fraction | None, NEW_OPTION] = Field(
        None,
        description="Shrinkage of classifiers of the labels alone, where guesses count in later rounds: in the first round, and as what "
        "Auto compares with. A few labels need much, such as 0.9; many guesses need little, such as 0.1. Default: shrinkage.",
    )
    prior: Literal["Counts", "Uniform"] = Field(
        "Counts",
        description="Class prior. Counts: shares of the labelled images. Uniform: every class alike. Ridge and FisherMix have none.",
    )
    minimum_count: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        5,
        description=(
            "Minimum number of labelled images of a class for which a silo sends sums: the sum over one image would be its "
            "features."
        ),
    )

    guesses: Annotated[Literal["None", "Stated", "Estimated", "Measured", "Auto"], NEW_OPTION] = Field(
        "Stated",
        description="How silos count images without labels from the second round on. None: not at all. Stated: as what the classifier "
        "guesses, corrected to the silo's classCounts; silos that state none count no guesses. Estimated: corrected to class "
        "shares that each silo estimates by expectation maximisation and tells nobody. Measured: the same, by how the "
        "classifier confuses classes on the server's validation images. Auto: all three, at the temperatures 1, 2 and 3; after "
        "each round the best on the validation images is the model, or that of the labels alone where none is better by more "
        "than the standard error without a lower macro AUC. Estimated, Measured and Auto need the head Lda. 10 rounds are enough.",
    )
    counting: Annotated[Literal["Hard", "Soft"], NEW_OPTION] = Field(
        "Hard",
        description="What a guess counts as. Hard: one image of its best class. Soft: a share of an image of every class, by probability.",
    )
    temperature: Annotated[AboveZero, NEW_OPTION] = Field(
        "1",
        description="Divisor of the classifier's log densities before they guess. Densities of hundreds of features are far too sure; "
        "raise it to 2 or 3 where `guesses: Estimated` or `counting: Soft` should doubt them. Not used by Auto.",
    )

    @property
    def recipes(self) -> Sequence[Recipe]:
        """Every way in which silos count their images, the labels alone first where there are several."""
        if self.guesses == "Auto":
            return SEVERAL
        return (Recipe(None if self.guesses == "None" else self.guesses, float(self.temperature)),)

    @property
    def validated(self) -> bool:
        """Whether the server's validation images choose among recipes, or measure a classifier."""
        return self.guesses in ("Measured", "Auto")

    @property
    def _own_heads(self) -> int:
        """How many classifiers travel beside the model's own to guess by: that has a class prior, or is one of several."""
        guessing = sum(recipe.shares is not None for recipe in self.recipes)
        return guessing if self.guesses in ("Estimated", "Measured", "Auto") else 0

    @property
    def second(self) -> Second:
        """Which second moments the classifier needs."""
        return {"NaiveBayes": "Diagonal", "Qda": "PerClass"}.get(self.head, "Pooled")  # type: ignore[return-value]

    def facts(self) -> frozenset[str]:
        """Say that the server makes the classifier, and that no silo trains; `check` asks for labels."""
        used = {Fact.UNLABELLED_MOMENTS} if self.head == "Total" or self._own_heads else set()
        if self.guesses == "Stated":
            used.add(Fact.STATED_MOMENTS)
        return frozenset({Fact.SERVER_TRAINING, Fact.LABELS_UNREAD, Fact.LABELS_UNNEEDED, Fact.UNTRAINED, *used})

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
        yield from self._of_guesses(plan)
        if not plan.silos or Fact.LABELLED_SILOS in plan.facts:
            return
        if Fact.ANCHORS not in plan.facts:
            message = "found labels nowhere; label a silo, or give the server spec.anchorData"
            yield Mistake(LABELS_MISSING, self.option("head"), message)
        elif Fact.UNLABELLED_MOMENTS not in plan.facts and not plan.warms_up and not self._states(plan):
            # before a method that trains silos, the anchors' own classifier is of use
            message = (
                f"found guesses {self.guesses}, with which silos without labels add nothing here; set Estimated or Auto, or state "
                "the classCounts of silos, or label a silo"
            )
            yield Mistake(LABELS_MISSING, self.option("guesses"), message)

    def _of_guesses(self, plan: Plan) -> Iterator[Mistake]:
        """Yield what guesses need."""
        if self._own_heads and self.head != "Lda":
            message = f"found {self.guesses} beside head {self.head}, whose outputs are no log densities without a prior; set head: Lda"
            yield Mistake(MEANINGLESS_OVERRIDE, self.option("guesses"), message)
        if self.validated and "validation" not in plan.spec.server_data:
            message = f"found {self.guesses}, which needs validation images at the server; add evaluation.validation, or set Stated or Estimated"
            yield Mistake(MEANINGLESS_OVERRIDE, self.option("guesses"), message)

    def _states(self, plan: Plan) -> bool:
        """Return whether a silo states its class counts, or may: nobody knows what a silo states that is no part of the documents."""
        managed = [silo.spec.managed for silo in plan.silos]
        return self.guesses == "Stated" and any(each is None or each.data.stated_counts for each in managed)

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return the moments."""
        shapes = {"Diagonal": "[C, d]", "PerClass": "[C, d (d + 1) / 2]", "Pooled": "[d (d + 1) / 2]"}
        counted = "class histogram: images per class, as labelled or guessed, then those without a class"
        second = "products of two features, summed over images"
        sent: dict[Part, tuple[str, str]] = {
            "counts": ("[C + 1]", counted),
            "sums": ("[C + 1, d]", "features, summed over the images of each class"),
            "seconds": (shapes[self.second], second),
        }
        arrays = {
            recipe.tensor(part): AuxiliaryArray(recipe.tensor(part), f"{shape} float64", meaning, up=True)
            for recipe in self.recipes
            for part, (shape, meaning) in sent.items()
        }
        return tuple(arrays.values())

    def add_heads(self, network: Network) -> None:
        """Put a classifier with covariances in the linear one's place, where the head needs it."""
        from anchorage.algorithms.guessing_heads import NAME, GuessingHeads
        from anchorage.learning.heads import GaussianHead

        width, classes = network.linear.in_features, network.linear.out_features
        if self.second != "Pooled":
            network.classifier = GaussianHead(width, classes, full_covariance=self.second == "PerClass")
            network.optional += (_SCALE,)
        if self._own_heads:
            network.add_head(NAME, GuessingHeads(self._own_heads, width, classes), optional=True, resizable=True)

    def adopted(self, network: Network, loaded_names: frozenset[str]) -> None:
        """Forget the classifier beside principal components: the stage that finds them makes none, and nobody is to guess by a random one."""
        import torch

        from anchorage.learning.heads import PrincipalComponents

        if isinstance(network.projection, PrincipalComponents):
            with torch.no_grad():
                network.linear.weight.zero_()

    def has_guessers(self, network: Network, round_number: int) -> bool:
        """Return whether a classifier came by which silos can guess; to the first round comes none, nor does one with new components."""
        from anchorage.algorithms.guessing_heads import guessers_of

        guessers = guessers_of(network)
        if guessers is not None:
            return guessers.made
        return round_number > 1 and bool(network.linear.weight.any())

    def guess(self, network: Network, images: Tensor) -> Tensor:
        """Return the scores of images by every recipe that guesses, [K, n, C]."""
        from anchorage.algorithms.guessing_heads import guessers_of

        z, guessers = network.represent(images), guessers_of(network)
        scores: Tensor = network.classifier(z)[None] if guessers is None else guessers(z)
        return scores

    def chosen_recipe(self, network: Network) -> int:
        """Return which recipe made the model's classifier."""
        from anchorage.algorithms.guessing_heads import guessers_of

        guessers = guessers_of(network)
        return 0 if guessers is None else int(guessers.chosen)

    def shapes(self, network: Network) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of the moments of every recipe."""
        from anchorage.algorithms.moments import second_shape

        classes, width = network.linear.out_features, network.linear.in_features
        shapes: dict[Part, tuple[int, ...]] = {
            "counts": (classes + 1,),
            "sums": (classes + 1, width),
            "seconds": second_shape(self.second, classes, width),
        }
        return {recipe.tensor(part): shape for recipe in self.recipes for part, shape in shapes.items()}

    def silo_work(self, silo_round: SiloRound) -> Work:
        """Return the moments of the silo's images, without a step."""
        return silo_moments(self, silo_round)

    @property
    def counted(self) -> Sequence[str]:
        """Names of the counts of every recipe."""
        return [recipe.tensor("counts") for recipe in self.recipes]

    def miscounted(self, samples: Mapping[str, int], counts: Mapping[str, NDArray[np.float64]]) -> str | None:
        """Return how counts are none of the images that were announced; None where they may be."""
        without = samples.get("unlabelled", 0)
        most = samples.get("labelled", 0) + without
        for name, class_counts in counts.items():
            is_integral = self.counting == "Soft" or bool((class_counts == np.floor(class_counts)).all())
            apart = most - class_counts.sum()
            fits = (
                apart >= -ROUNDING if len(counts) > 1 else abs(apart) <= ROUNDING
            )  # the labels alone are fewer images
            if not (is_integral and fits and (class_counts >= 0).all() and class_counts[-1] <= without):
                return f"tensor {name} does not count the {most} images announced"
        return None

    def shrinkage_of(self, recipe: Recipe, *, has_pseudo_labels: bool) -> float:
        """Return the shrinkage of a recipe's classifier; `has_pseudo_labels`: silos had a classifier to guess by when they counted."""
        alone = recipe.shares is None or not has_pseudo_labels
        return float(self.first_shrinkage if alone and self.first_shrinkage is not None else self.shrinkage)

    def trainer(self, method: TrainingMethod) -> ServerTrainer:
        """Return what makes the classifier."""
        from anchorage.pieces.server_training.closed_form import ClosedForm

        return ClosedForm(self)
