"""What the round engine needs from outside."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anchorage.api.model_card import Assessment
from anchorage.api.silo_state import SiloState
from anchorage.engine.embedding_plane import EmbeddingPlane
from anchorage.transport.messages import Announcement, AuxiliaryData, Bytes, Evaluation, Out, Progress, Report, Task
from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


@dataclass(frozen=True, slots=True)
class SiloRecord:
    """One silo's part in a committed round.

    `state` is one in which a round ends. `weight` is the share of its update in the global model when that was made, from 0 to 1.
    `fingerprint` is of its images and `labels` says which of them are labelled, as `Profile` has both; `images` is how many it had when it
    became a member.
    """

    name: str
    state: SiloState
    weight: float = 0.0
    samples: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    code: str = ""
    message: str = ""
    fingerprint: str = ""
    labels: str = ""
    images: int = 0


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """What the journal keeps of a committed round; round 0 is the initial model.

    Parameters
    ----------
    round : int
        Number of the round.
    digest : str
        Content address of the global model after the round.
    time : float
        Seconds since the epoch at the commit.
    metrics : mapping of str to float
        Metrics of the global model on the validation images, and of server training.
    silos : tuple of SiloRecord
        In the order of selection.
    seconds : mapping of str to float
        Time spent per step of the round.
    bytes_up, bytes_down : int
        Model bytes that travelled.
    test : mapping of str to mapping of str to float
        Of the run's last round: metrics of the ``final`` and of the ``best`` model on the test images; empty where there are none.
    embeddings : EmbeddingPlane or None
        Embeddings of validation images in two dimensions, in a few rounds and where the federation asks for them.
    documents : str
        Digest of what in the federation's document decided this round; that of a silo's images and labels is in its own part.
    """

    round: int
    digest: str
    time: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    silos: tuple[SiloRecord, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0
    test: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    documents: str = ""
    embeddings: EmbeddingPlane | None = None


class SpooledUpdate(ChunkSource, ChunkSink, Protocol):
    """An update on its way in: a sink while it arrives, a source once it is whole."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The last committed state."""

    record: RoundRecord
    model: ModelBytes
    state: Mapping[str, NDArray[Any]]


class ServerLearner(Protocol):
    """What happens to the global model at the server; implementations in `anchorage.learning`.

    One whose training needs more than the model of the round before is an `anchorage.engine.engine.Keeper`, too.
    """

    @property
    def down(self) -> Layout:
        """Layout of the global model, as it travels down."""

    @property
    def up(self) -> Layout:
        """Layout of an update (a subset of `down`: FedAnchor's anchor head stays at the server)."""

    def initialise(self) -> ModelBytes:
        """Return the model of round 0, pre-trained where the method says so."""

    def adopt(self, model: ModelBytes) -> ModelBytes:
        """Return the model that a stage begins with: tensors of the stage before by their names, the others as in round 0; then pre-trained."""

    def auxiliary_data(self, model: ModelBytes, round_number: int) -> AuxiliaryData:
        """Return what travels down beside the model (prototypes)."""

    def train(self, model: ModelBytes, round_number: int) -> tuple[ModelBytes, Mapping[str, float]]:
        """Train at the server after aggregation; the same model and no metrics where the method does not."""

    def evaluate(self, model: ModelBytes, round_number: int) -> Report:
        """Score a model on the server's validation images; an empty report where there are none."""

    def test(self, model: ModelBytes, round_number: int) -> Report:
        """Score a model on the server's test images; an empty report where there are none."""

    def assess(self, model: ModelBytes, round_number: int) -> Assessment | None:
        """Score a model in full on the test images, else the validation images; None where there are none."""

    def examples(self, model: ModelBytes, round_number: int) -> NDArray[np.uint8] | None:
        """Return a picture of some of the server's validation images with what is true and predicted, uint8 [h, w, 3]; None: the task draws none."""


class SiloLearner(Protocol):
    """What a silo does with a task; implementations in `anchorage.learning` and the null trainer of the benchmark."""

    def train(self, task: Task, model: Bytes, out: Out, progress: Progress) -> Announcement:
        """Train from `model` (flat bytes in the down layout) and write the update (up layout).

        Parameters
        ----------
        task : Task
            Of kind train.
        model : ndarray of uint8, shape [nbytes]
            Read-only.
        out : callable
            ``out(nbytes)`` returns the writable buffer for the update.
        progress : callable
            ``progress(done, total)`` in steps; returns the newest number of committed steps heard of.

        Raises
        ------
        AnchorageError
            Such as a loss that is not finite; the task is reported as failed.
        """

    def evaluate(self, task: Task, model: Bytes) -> Evaluation:
        """Score a model (flat bytes, down or up layout by its digest) on the validation split, in eval mode, beside a running `train`."""
