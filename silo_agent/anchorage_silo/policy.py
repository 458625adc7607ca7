"""The hospital's policy file: limits on what leaves the hospital, whatever the federation asks for; `verdict` judges requests by it."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from anchorage.api.base import AboveZero, Document, PositiveDecimal, Share
from anchorage.api.method import MethodName, ResolvedMethod
from anchorage.api.piece import expect
from anchorage.api.single import read_document
from anchorage.engine.hooks import AggregationHooks
from anchorage_silo.ledger import PrivacyLedger
from anchorage_silo.limits import Limits
from anchorage_silo.protection import Protection

RAW_IMAGES = ("raw_images", "raw_labels")
"""Auxiliary data that contains the hospital's images (GlobalMixup): sent only if the policy names it."""

DEFAULT_NOISE_RATIO = 1.0
"""`relativeNoise` of a policy that states no noise: what the known attacks do not get through, measured in docs/privacy.md."""
DEFAULT_MINIMUM_IMAGES = 16
"""Images that an update must come from then, unless `minimumSamples` states another number: of 4 or 6, some were found
through the noise, of 10 to 20 none."""
UNASKED_UPDATES = 1
"""Updates with relative noise that leave, over the whole audit log, before a person at the hospital has decided on more. A server that chooses the
weights reads at most one image out of each, and so many count by chance (docs/privacy.md)."""

AuxiliaryName = Annotated[str, Field(min_length=1, max_length=63)]


class DpSgd(Document):
    """DP-SGD in the silo's training: the gradient of each image is clipped, and noise is added to their sum in every step."""

    clip_norm: AboveZero = Field(
        description="Maximum L2 norm of the gradient of one image; larger gradients are scaled down to it."
    )
    noise_multiplier: AboveZero = Field(
        description="Standard deviation of the noise in the sum of a step's gradients, as a multiple of `clipNorm`. A larger value spends "
        "less of the budget per update."
    )


class PrivacyBudget(Document):
    """Differential privacy of all updates of the silo together."""

    epsilon: AboveZero = Field(
        description="Maximum privacy loss epsilon of all updates together; an update that would exceed it is refused before training."
    )
    delta: Share = Field(
        description="Value of delta for which epsilon is accounted. Choose it far below 1 divided by the number of images."
    )
    dp_sgd: DpSgd | None = Field(
        None,
        description="DP-SGD, which protects single images, in place of `clipNorm` and `noiseStd` of the policy, which protect all images "
        "of the silo together.",
    )
    ledger: Path | None = Field(
        None,
        description="Folder of the ledger of what was spent. Put it on a volume that outlives the agent; agents with the same images share "
        "it. Left out: the agent's state folder.",
    )

    def open(self, state: Path) -> PrivacyLedger:
        """Return its ledger; `state` is the agent's folder."""
        return PrivacyLedger(self.ledger or state, float(self.epsilon), float(self.delta))


class Policy(Document):
    """Limits on what leaves the hospital. For a field that is left out, what the shown federation needs is allowed."""

    require_approval: bool = Field(
        False,
        description="Whether nothing runs before `anchorage-silo approve` of what the federation would do at this silo, and again after "
        "any change of it.",
    )
    allowed_methods: tuple[MethodName, ...] | None = Field(
        None,
        description="Names of the methods in which the silo takes part, with the auxiliary data that leaves in them as they are defined; other "
        "pieces under such a name may send no more. Left out: all.",
    )
    allowed_auxiliary_data: Annotated[tuple[AuxiliaryName, ...], Field(max_length=64)] | None = Field(
        None,
        description="Names of the auxiliary data (arrays beside an update) that may leave. `validation` stands for what DVW counts of other "
        "silos' models, `confusion` (or what else the task names) for what is counted on images kept from training, `control` for SCAFFOLD's "
        "control variates. Left out: all but raw_images and raw_labels.",
    )
    minimum_samples: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Minimum number of images from which an announcement, a mean of images or an evaluation may be made. Of several findings per "
        "image (multiLabel) it holds for the images with each finding, and for those without it, that an evaluation counts; a finding of fewer is "
        "left out of it. Left out: 16 for "
        "an update where no noise is stated, else none.",
    )
    maximum_rounds: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Maximum number of updates that may be announced, counted over the whole audit log. Left out: as many as the run's "
        "description needs, counted for the run; with `relativeNoise` only where a person has approved the run, else 1 over the whole audit log.",
    )
    maximum_evaluations: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Maximum number of models that may be scored on the silo's images for the server, counted over the whole audit log. Left "
        "out: as many as `maximumRounds`, or else as the run's description needs.",
    )
    clip_norm: PositiveDecimal | None = Field(
        None,
        description="Maximum L2 norm of an update's change of the model; larger changes are scaled down to it. Left out: no limit but the "
        "method's.",
    )
    noise_std: PositiveDecimal | None = Field(
        None,
        description="Standard deviation of the Gaussian noise that is added to every number of an update. 0 states that the server is "
        "trusted with the images. Left out: `relativeNoise` decides.",
    )
    relative_noise: PositiveDecimal | None = Field(
        None,
        description="L2 norm of the Gaussian noise that is added to each array of an update, as a multiple of the norm of that array's "
        "change. 0 states that the server is trusted with the images. Not used where `noiseStd` or `privacyBudget` is set. "
        "Left out: 1, or none where `noiseStd` is stated.",
    )
    noise_seed: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Seed of the noise, for tests only. Left out: random noise from the operating system."
    )
    require_secure_aggregation: bool = Field(
        False,
        description="Whether the silo takes part only in runs with secure aggregation, in which the server learns sums of updates and no "
        "single update.",
    )
    system_metrics: bool = Field(
        False,
        description="Whether each update tells the server how much processor, memory and GPU memory its training used.",
    )
    store_pictures: bool = Field(
        True,
        description="Whether decoded images may be stored on disk, in the agent's state folder, where they are too many for memory. With false "
        "nothing is stored, what was stored before is removed when the trainer starts, and images that do not fit into memory are refused, as "
        "are volumes.",
    )
    privacy_budget: PrivacyBudget | None = Field(
        None,
        description="Differential privacy: needs `clipNorm` and `noiseStd`, or `dpSgd` in it. Nothing leaves then but updates with noise. Left out: "
        "nothing is accounted.",
    )

    @model_validator(mode="after")
    def _budget_has_noise(self) -> "Policy":
        if self.privacy_budget is None:
            return self
        noised = [float(text or 0) > 0 for text in (self.clip_norm, self.noise_std)]
        if self.noise_seed is not None:
            raise ValueError(
                "found privacyBudget with noiseSeed; noise that is known protects nothing: remove noiseSeed"
            )
        if self.privacy_budget.dp_sgd is None and not all(noised):
            raise ValueError(
                "found privacyBudget without noise; set clipNorm and noiseStd above 0, or privacyBudget.dpSgd"
            )
        if self.privacy_budget.dp_sgd is not None and any(noised):
            raise ValueError("found privacyBudget.dpSgd with clipNorm or noiseStd; remove one of them")
        if float(self.privacy_budget.delta) >= 1:
            raise ValueError("found a delta of 1, which protects nothing; take one far below 1 / number of images")
        return self

    def bound(self, method: ResolvedMethod) -> float | None:
        """Return the norm to which an update's change is scaled down: the lesser of the policy's and the method's; None: neither has one."""
        asked = expect(method.aggregation, AggregationHooks).bound
        policy_norm = None if self.clip_norm is None else float(self.clip_norm)
        return min((norm for norm in (policy_norm, asked) if norm is not None), default=None)

    def protection(self, method: ResolvedMethod) -> Protection:
        """Return what is done to updates of a method before they leave."""
        return Protection(
            clip_norm=self.bound(method),
            noise_std=float(self.noise_std or 0) or None,
            noise_ratio=self.noise_ratio,
            noise_seed=self.noise_seed,
            always=self.privacy_budget is not None,
        )

    @property
    def undecided(self) -> bool:
        """Whether nothing states how updates are protected (``relativeNoise: "0"`` or ``noiseStd: "0"``: not at all), so that the default does."""
        return self.relative_noise is None and self.noise_std is None and self.privacy_budget is None

    @property
    def noise_ratio(self) -> float | None:
        """Relative noise where it counts; None where there is none, or another noise takes its place."""
        if self.undecided:
            return DEFAULT_NOISE_RATIO
        elsewhere = self.privacy_budget is not None or float(self.noise_std or 0) > 0
        return None if elsewhere else float(self.relative_noise or 0) or None

    @property
    def least_images(self) -> int:
        """Number of images that an update must come from."""
        if self.minimum_samples is not None:
            return self.minimum_samples
        return DEFAULT_MINIMUM_IMAGES if self.undecided else 0

    @property
    def unasked_updates(self) -> float:
        """Number of updates, over the whole audit log, that leave before a person has approved the run: relative noise does not hold over many."""
        return UNASKED_UPDATES if self.noise_ratio is not None and self.maximum_rounds is None else math.inf

    def asks_approval(self, planned: int) -> bool:
        """Return whether a run of so many updates begins only when a person has approved it."""
        return self.require_approval or planned > self.unasked_updates

    def limits(self, needed: Limits) -> Limits:
        """Return what the silo does for a run at most that needs so much."""
        updates = needed.updates if self.maximum_rounds is None else self.maximum_rounds
        most = self.maximum_rounds if self.maximum_evaluations is None else self.maximum_evaluations
        return replace(needed, updates=updates, evaluations=needed.evaluations if most is None else most)

    def refuses(self, name: str) -> bool:
        """Return whether auxiliary data of a name may not leave."""
        return name in RAW_IMAGES if self.allowed_auxiliary_data is None else name not in self.allowed_auxiliary_data


def read_policy(path: Path | None) -> Policy:
    """Read the hospital's policy file; None has no policy.

    Raises
    ------
    AnchorageError
        The file is unreadable, or no policy.
    """
    return Policy() if path is None else read_document(path, Policy)
