"""What the class moments are to be, and the classifiers that silos guess by (methods reference, N3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from anchorage.api.base import AboveZero, Fraction
from anchorage.api.piece import NEW_OPTION
from anchorage.api.task import CLASSIFICATION
from anchorage.pieces.server_training.recipes import SEVERAL, Recipe
from anchorage.pieces.server_training.sums import SumsOfFeatures

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.algorithms.moments import Second
    from anchorage.learning.network import Network


class MomentOptions(SumsOfFeatures):
    """Options of `anchorage.pieces.server_training.moments.ClassMoments`, and what they mean for silos and server."""

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
    def guessing_heads(self) -> int:
        """How many classifiers travel beside the model's own to guess by: that has a class prior, or is one of several."""
        guessing = sum(recipe.shares is not None for recipe in self.recipes)
        return guessing if self.guesses in ("Estimated", "Measured", "Auto") else 0

    @property
    def second(self) -> Second:
        """Which second moments the classifier needs."""
        return {"NaiveBayes": "Diagonal", "Qda": "PerClass"}.get(self.head, "Pooled")  # type: ignore[return-value]

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

    def shrinkage_of(self, recipe: Recipe, *, has_pseudo_labels: bool) -> float:
        """Return the shrinkage of a recipe's classifier; `has_pseudo_labels`: silos had a classifier to guess by when they counted."""
        alone = recipe.shares is None or not has_pseudo_labels
        return float(self.first_shrinkage if alone and self.first_shrinkage is not None else self.shrinkage)
