"""What the server and a silo tell each other. Plain values: every transport carries the same ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.transport.signed_head import SignedHead
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.layout import NOTHING, Layout

AuxiliaryData = Mapping[str, NDArray[Any]]
"""Named arrays that a method sends beside the model: prototypes down, scalars per class or confusion counts up. Small ones travel in messages,
large ones in chunks, as bytes behind those of the model or the update."""

Bytes = NDArray[np.uint8]
"""Bytes of a model or an update, shape [nbytes]."""
Out = Callable[[int], Bytes]
"""``out(nbytes)`` returns the writable buffer for an update."""
Progress = Callable[[int, int], int]
"""``progress(done, total)`` in steps; returns the newest number of committed steps heard of."""

VALIDATION = "validation"
"""What a silo announces that scored its own update, and the array of `Evaluation.tally` in which others score it, int64."""
SYSTEM = "system/"
"""What names of metrics begin with that tell what a silo's training used, such as ``system/memory_mb``."""
MOST_REPETITIONS = 100
"""No silo trains more often in a round, as no method may draw more groups (`weighting.groups`)."""


class TaskKind(StrEnum):
    """What a silo is asked to do."""

    TRAIN = "Train"
    EVALUATE = "Evaluate"
    SHOW_KEYS = "ShowKeys"
    SHARE_SECRETS = "ShareSecrets"
    CONFIRM_SURVIVORS = "ConfirmSurvivors"
    REVEAL_SHARES = "RevealShares"

    @property
    def step(self) -> bool:
        """Whether it is a step of secure aggregation, about no model."""
        return self not in (TaskKind.TRAIN, TaskKind.EVALUATE)


class UpdateFormat(StrEnum):
    """How a silo's update travels."""

    PLAIN = ""
    """As it is."""
    DIFFERENCES = "Differences"
    """As differences from the task's model (`anchorage.transport.tensors.differences`)."""
    ENCODED = "Encoded"
    """In the encoding of the run's method (`anchorage.transport.tensors.encoded`)."""


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of work for one silo."""

    id: str
    """The same for the same work after a restart of either side: round, kind and model digest."""
    kind: TaskKind
    """Train on the model, or score it on images that the silo does not train on."""
    round: int
    """The round, from 1."""
    model: Manifest
    """The bytes to fetch before the work."""
    auxiliary_data: AuxiliaryData = field(default_factory=dict)
    """Auxiliary data of the method."""
    behind: Layout = NOTHING
    """Large auxiliary data, whose bytes are the last of `model`."""
    update_format: UpdateFormat = UpdateFormat.PLAIN
    """How the update travels."""
    model_encoded: bool = False
    """Whether the model travels in the run's encoding of models (`anchorage.transport.tensors.encoded_model`)."""
    held_out: bool = False
    """Whether the model is scored on the images that the silo never trains on, and not on its validation split."""
    repetitions: int = 1
    """How often the silo trains in this round, 1 to `MOST_REPETITIONS`."""
    repetition: int | None = None
    """Of a silo that trains more than once, for its learner: which time it is, from 0."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a silo says about its update before it sends it."""

    task: str
    """The task's id."""
    samples: Mapping[str, int]
    """``train`` (images trained on or available for it), ``labelled``, ``unlabelled``, ``selected`` (accepted pseudo-labels)."""
    auxiliary_data: AuxiliaryData
    """What the method's weighting needs, such as SemiAnAgg's similarity per class."""
    metrics: Mapping[str, float]
    """``loss``, ``acceptance``, ``seconds`` and the like, for people."""
    update: Manifest | None
    """The bytes to come; None where there are none. Without an update's own bytes (the silo had nothing to train on) it is inactive, which
    excludes it from the average."""
    behind: Layout = NOTHING
    """Large auxiliary data, whose bytes are the last of `update`."""
    audit_head: SignedHead | None = field(default=None, compare=False)
    """The head of the silo's audit log with the line of this message; another one where it is said again."""

    @property
    def trained(self) -> bool:
        """Whether an update comes, and not only large auxiliary data."""
        return self.update is not None and self.update.nbytes > self.behind.nbytes

    @property
    def auxiliary(self) -> frozenset[str]:
        """Names of all auxiliary data, small and large."""
        return frozenset({*self.auxiliary_data, *self.behind.by_name})


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A model's score on one silo's images."""

    task: str
    """The task's id."""
    tally: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Named sums over the images. Held-out images: those that the run's task declares (`anchorage.api.task.Task.tally_arrays`); the
    validation split: ``validation``, as the weighting needs it."""
    images: int = 0
    """How many images were scored."""
    answer: bytes = b""
    """In place of a tally, the answer to a step of secure aggregation."""
    audit_head: SignedHead | None = field(default=None, compare=False)
    """As of an announcement."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a silo says of itself when it joins."""

    labels: str
    """``None``, ``All`` or ``Partial``."""
    samples: int
    """Images that can be trained on."""
    version: str
    """Version of the agent."""
    fingerprint: str = ""
    """Keyed digest of its images and labels (32 hex digits), by which a change of them is seen; empty where it has no images."""
    clock: str = ""
    """By how much its clock differs from the server's, with both times; empty where they agree, or it did not say."""
    packages: tuple[str, ...] = ()
    """Packages of other authors that the run uses there, each with its version: ``acme 0.1.0``."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A silo connected, for the first time or again."""

    silo: str
    profile: Profile


@dataclass(frozen=True, slots=True)
class Left:
    """A silo's connection ended."""

    silo: str
    reason: str


@dataclass(frozen=True, slots=True)
class Progressed:
    """A silo is at work."""

    silo: str
    task: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Announced:
    """A silo finished training and waits for leave to upload."""

    silo: str
    announcement: Announcement


@dataclass(frozen=True, slots=True)
class Arrived:
    """Every chunk of a silo's update is in the sink that the engine gave."""

    silo: str
    task: str


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A silo scored a model."""

    silo: str
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A silo could not do a task; `code` is of the catalogue."""

    silo: str
    task: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """From now on these silos, in this order, and no others take part; what any other sent and was not counted is void.

    `gone` are those that were taken out, also where they are members again.
    """

    silos: tuple[str, ...]
    gone: frozenset[str] = frozenset()

    def voids(self, silo: str) -> bool:
        """Return whether the open work of a silo is void."""
        return silo in self.gone or silo not in self.silos


@dataclass(frozen=True, slots=True)
class Broken:
    """The server's own end of the link cannot go on: `error` is of the catalogue, such as for want of disk space, or a defect."""

    error: Exception


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Someone asked for a clean end (a signal, a suspended federation)."""

    reason: str


Event = (
    Joined | Left | Progressed | Announced | Arrived | Evaluated | TaskFailed | MembersChanged | Broken | StopRequested
)


@dataclass(frozen=True, slots=True)
class Assigned:
    """Do this task; a train task replaces the one at hand."""

    task: Task


@dataclass(frozen=True, slots=True)
class Permit:
    """Upload what you announced for this task."""

    task: str


@dataclass(frozen=True, slots=True)
class Dismissed:
    """A task is over: counted, or it does not count any more; forget it."""

    task: str
    why: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The run is over."""

    why: str


Order = Assigned | Permit | Dismissed | Finished


@dataclass(frozen=True)
class Report:
    """What evaluation at the server found."""

    metrics: Mapping[str, float]
    """``accuracy``, ``balanced_accuracy``, ``macro_auc``, ``loss``, ..."""
    tally: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """The sums over the images that the run's task declares; empty where there are none."""
    embeddings: NDArray[np.float32] | None = None
    """float32, shape [n, 2 + d]: embeddings of some test images for the plot: what is true, what is predicted, then the embedding."""
    layer: str = ""
    """Module of the network that they are outputs of, where the federation names one; else they are what the classifier sees."""
