"""The hospital's policy file: what may leave, whatever the federation asks."""

from collections.abc import Collection
from typing import Annotated

from pydantic import Field

from anchorage.api.base import Document, PositiveDecimal
from anchorage.api.errors import AnchorageError, silo
from anchorage.api.method import MethodName
from anchorage.transport.messages import Announcement, Evaluation

RAW_IMAGES = ("raw_images", "raw_labels")
"""Auxiliary data that holds the hospital's images themselves (GlobalMixup): it leaves only where the policy names it."""

AuxiliaryName = Annotated[str, Field(min_length=1, max_length=63)]


class Policy(Document):
    """Limits on what leaves; a field that is left out sets none."""

    allowed_methods: tuple[MethodName, ...] | None = Field(None, description="Methods in which the silo takes part.")
    allowed_auxiliary_data: Annotated[tuple[AuxiliaryName, ...], Field(max_length=64)] | None = Field(
        None,
        description="Small arrays that may leave beside an update, by name; `confusion` stands for the counts of an evaluate task, "
        "`control` for SCAFFOLD's control variates. Left out: all but raw_images and raw_labels.",
    )
    minimum_samples: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Fewest images that an announcement, a mean of images or an evaluation may report on."
    )
    maximum_rounds: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Most updates that may be announced, counted over the life of the audit log."
    )
    clip_norm: PositiveDecimal | None = Field(None, description="Largest Euclidean norm of an update's change.")
    noise_std: PositiveDecimal | None = Field(
        None, description="Standard deviation of the Gaussian noise on every number of an update."
    )
    noise_seed: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Seed of the noise, for tests; left out: from the operating system."
    )

    def check_method(self, name: str) -> None:
        """Refuse a method.

        Raises
        ------
        AnchorageError
            It is not allowed.
        """
        if self.allowed_methods is not None and name not in self.allowed_methods:
            allowed = ", ".join(self.allowed_methods) or "none"
            raise AnchorageError(silo.METHOD_REFUSED, f"method {name} is not allowed here (allowedMethods: {allowed})")

    def check_rounds(self, task: str, announced: Collection[str]) -> None:
        """Refuse a train task, given the train tasks that were announced before.

        Raises
        ------
        AnchorageError
            As many updates were announced as may be.
        """
        limit = self.maximum_rounds
        if limit is not None and task not in announced and len(announced) >= limit:
            raise AnchorageError(
                silo.ROUNDS_USED_UP, f"{len(announced)} updates were announced (maximumRounds: {limit})"
            )

    def check_samples(self, samples: int) -> None:
        """Refuse a message about a number of images.

        Raises
        ------
        AnchorageError
            There are too few; the message does not say how many.
        """
        if self.minimum_samples is not None and samples < self.minimum_samples:
            found = f"the message would report on fewer than {self.minimum_samples} images (minimumSamples)"
            raise AnchorageError(silo.TOO_FEW_SAMPLES, found)

    def check_announcement(self, announcement: Announcement) -> None:
        """Refuse an announcement.

        Raises
        ------
        AnchorageError
            It says more than is allowed.
        """
        self.check_auxiliary_data(announcement.side)
        samples = announcement.samples
        self.check_samples(min(samples.get("train", 0), samples.get("smallest_group", samples.get("train", 0))))

    def check_evaluation(self, evaluation: Evaluation) -> None:
        """Refuse an evaluation.

        Raises
        ------
        AnchorageError
            It says more than is allowed.
        """
        self.check_auxiliary_data(("confusion",))
        counts = evaluation.confusion
        self.check_samples(int(counts[1] if counts.ndim == 1 else counts.sum()))

    def check_auxiliary_data(self, names: Collection[str]) -> None:
        """Refuse what would leave beside the network.

        Raises
        ------
        AnchorageError
            One of the names is not allowed.
        """
        allowed = self.allowed_auxiliary_data
        refused = sorted(set(names).difference(allowed) if allowed is not None else set(names).intersection(RAW_IMAGES))
        if refused:
            found = f"auxiliary data {', '.join(refused)} is not allowed here (allowedAuxiliaryData: {', '.join(allowed or ()) or 'none'})"
            raise AnchorageError(silo.SIDE_CHANNEL_REFUSED, found)
