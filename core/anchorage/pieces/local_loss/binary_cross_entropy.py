"""Binary cross entropy of several findings: what uncertain entries teach, and how much positives weigh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from anchorage.api.data import Label
from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import piece
from anchorage.api.slot import unknown
from anchorage.api.task import MULTI_LABEL
from anchorage.pieces.slots import LocalLoss

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from anchorage.api.plan import Plan
    from anchorage.learning.local_training import Labelled, Loss
    from anchorage.learning.model_hooks import TaskHooks
    from anchorage.learning.silo_round import SiloRound

Uncertain = Literal["Ignore", "Zero", "One", "Soft"]
SOFT = (0.55, 0.85)
"""Range of the targets of uncertain entries (Pham et al., Neurocomputing 2021, arXiv:1911.06475)."""
MOST_POSITIVE_WEIGHT = 10.0
_UNCERTAIN = 2


@piece("binaryCrossEntropy")
class BinaryCrossEntropy(LocalLoss):
    """Binary cross entropy over the known entries, with a choice for uncertain ones and a weight of positives."""

    tasks: ClassVar[frozenset[str] | None] = MULTI_LABEL
    resumes: ClassVar[bool] = True

    uncertain: Uncertain = Field(
        "Ignore",
        description="Meaning of uncertain entries in training; no score counts them. Ignore: they teach nothing. Zero, One: the finding is absent, "
        "or present. Soft: a fixed target for each image and finding, between 0.55 and 0.85.",
    )
    uncertain_of: Annotated[dict[Label, Uncertain], Field(max_length=1000)] = Field(
        {},
        description="Findings whose uncertain entries mean something else than `uncertain` says.",
    )
    positive_weight: Literal["None", "Silo"] = Field(
        "None",
        description="Factor of the loss of a finding's positives. None: 1. Silo: negatives by positives of the silo's labels, at most 10, "
        "for rare findings.",
    )

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Refuse a choice for what is no finding."""
        names = tuple(plan.spec.task.label_names)
        for name in self.uncertain_of:
            if name not in names:
                path = (*self.option("uncertainOf"), name)
                yield Mistake(MEANINGLESS_OVERRIDE, path, unknown(name, names))

    def targets(self, silo_round: SiloRound, labels: NDArray[Any]) -> NDArray[Any]:
        """Return labels int8 [n, L] with targets in place of uncertain entries, float32 [n, L], NaN where nothing is learnt."""
        names = silo_round.task.outputs
        drawn = generator_of(silo_round).uniform(*SOFT, labels.shape)
        target_labels = np.where((labels == 0) | (labels == 1), labels, np.nan)
        values = {"Ignore": np.full(labels.shape, np.nan), "Zero": np.zeros(labels.shape), "One": np.ones(labels.shape)}
        for place, name in enumerate(names):
            chosen = {**values, "Soft": drawn}[self.uncertain_of.get(name, self.uncertain)]
            rows = labels[:, place] == _UNCERTAIN
            target_labels[rows, place] = chosen[rows, place]
        return target_labels.astype(np.float32)

    def loss(self, data: Labelled, task: TaskHooks) -> Loss:
        """Return the mean over known entries; positives weigh by the silo's own targets."""
        import torch

        from anchorage.algorithms.binary_losses import masked_cross_entropy

        if self.positive_weight == "None":
            return masked_cross_entropy
        weights = torch.from_numpy(positive_weights(data.labels)).to(data.views.device)
        return lambda logits, labels: masked_cross_entropy(logits, labels, weights)


def generator_of(silo_round: SiloRound) -> np.random.Generator:
    """Return the generator of soft targets, the same in every round of a silo."""
    from anchorage.learning.randomness import generator

    return generator(silo_round.draws.seed, "uncertain labels", silo=silo_round.draws.silo)


def positive_weights(targets: NDArray[Any]) -> NDArray[np.float32]:
    """Return negatives by positives of each finding among targets [n, L], at most `MOST_POSITIVE_WEIGHT`, float32 [L]; 1 without a positive."""
    positives, negatives = (targets == 1).sum(0), (targets == 0).sum(0)
    ratio = np.minimum(negatives / np.maximum(positives, 1), MOST_POSITIVE_WEIGHT)
    return np.where(positives > 0, ratio, 1.0).astype(np.float32)
