"""A classifier in closed form from class moments of frozen features (methods reference, N3: GH-OFL, FedCGS, ridge)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors.documents import LABELS_MISSING, MEANINGLESS_OVERRIDE
from anchorage.api.fact import Fact
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import AuxiliaryArray, expect, piece
from anchorage.learning.hooks import BatchNormHooks, ServerTrainer
from anchorage.learning.method import TrainingMethod
from anchorage.pieces.server_training.guesses import silo_moments
from anchorage.pieces.server_training.moment_options import MomentOptions
from anchorage.pieces.server_training.recipes import Part

if TYPE_CHECKING:
    from anchorage.api.plan import Plan
    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound, Work

_SCALE = "classifier.scale"
"""Covariances of a classifier of Gaussians: a model that begins the run may have a linear one."""

ROUNDING = 1e-6
"""Images by which shares of images may add up to more than the images."""


@piece("moments")
class ClassMoments(MomentOptions):
    """Classifier computed from class moments of frozen features, without training at silos."""

    def facts(self) -> frozenset[str]:
        """Say that the server makes the classifier, and that no silo trains; `check` asks for labels."""
        used = {Fact.UNLABELLED_MOMENTS} if self.head == "Total" or self.guessing_heads else set()
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
        if self.guessing_heads and self.head != "Lda":
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
        if self.guessing_heads:
            network.add_head(NAME, GuessingHeads(self.guessing_heads, width, classes), optional=True, resizable=True)

    def adopted(self, network: Network, loaded_names: frozenset[str]) -> None:
        """Forget the classifier beside principal components: the stage that finds them makes none, and nobody is to guess by a random one."""
        import torch

        from anchorage.learning.heads import PrincipalComponents

        if isinstance(network.projection, PrincipalComponents):
            with torch.no_grad():
                network.linear.weight.zero_()

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

    def trainer(self, method: TrainingMethod) -> ServerTrainer:
        """Return what makes the classifier."""
        from anchorage.pieces.server_training.closed_form import ClosedForm

        return ClosedForm(self)
