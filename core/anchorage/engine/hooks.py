"""What the round engine asks of a method's pieces, at the server."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from anchorage.api.piece import Piece
from anchorage.api.task import Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from anchorage.engine.aggregation.mixing import Mixing
    from anchorage.engine.aggregation.noised_mean import NoisedMean
    from anchorage.engine.aggregation.round_memory import RoundMemory
    from anchorage.engine.aggregation.server_step import ServerStep
    from anchorage.engine.aggregation.weigher import BaseWeigher
    from anchorage.transport.messages import Announcement
    from anchorage.transport.tensors.chunks import ChunkSource
    from anchorage.transport.tensors.codings import Coding
    from anchorage.transport.tensors.layout import Layout
    from anchorage.transport.tensors.model import ModelBytes


class EngineHooks(Piece):
    """Hooks that a piece of any slot may have; each does nothing unless overridden."""

    needs_network: ClassVar[bool] = False
    """Whether the server must build the network for it."""

    def memory(self, task: Task, seed: int) -> RoundMemory | None:
        """Return what the server remembers of a round's announcements for the next round's tasks."""
        return None

    def task_layout(self, down: Layout) -> Layout:
        """Return the layout of the largest model that a train task carries, of that of the global model."""
        return down

    def refine(
        self,
        mean: ModelBytes,
        updates: Sequence[ChunkSource],
        weights: Sequence[float],
        announcements: Sequence[Announcement],
    ) -> ModelBytes:
        """Return the aggregated update with what this piece aggregates otherwise.

        Parameters
        ----------
        mean : ModelBytes
            The aggregated update.
        updates, weights, announcements : sequence
            What it was made of, in one order.
        """
        return mean


class EncodingHooks(EngineHooks):
    """How updates travel."""

    def coding(self) -> Coding | None:
        """Return how an update's change of the received model is written; None: the update travels as it is."""
        return None


class WeightingEngineHooks(EngineHooks):
    """How much an update counts."""

    repeats: ClassVar[bool] = False
    """Whether a silo may be asked to train more than once in a round."""

    @abstractmethod
    def weigher(self, task: Task) -> BaseWeigher:
        """Return the weigher of one run."""

    def suppressed(self, counts: NDArray[Any], minimum: int) -> NDArray[Any]:
        """Return what a silo tells of a model on its validation images without what fewer images than `minimum` are behind.

        All of it is of no fewer images; override it where parts of it are of some of them.
        """
        return counts


class AggregationHooks(EngineHooks):
    """How weighted updates become one."""

    compares_norms: ClassVar[bool] = True
    """Whether updates that are far longer than the round's others are taken out before."""

    @property
    def bound(self) -> float | None:
        """Euclidean norm to which silos scale the changes of the model that they send; None: they send them as they are."""
        return None

    @property
    def server_noise(self) -> str:
        """What noise the server adds before others get the model, in words for a hospital, which cannot check it; empty: none."""
        return ""

    def start(self) -> AggregationHooks | NoisedMean:
        """Return what aggregates in one run: this piece, unless it has to remember something."""
        return self

    def select(
        self, updates: Sequence[ChunkSource], layout: Layout, model: ModelBytes, loss: Callable[[ModelBytes], float]
    ) -> Sequence[int]:
        """Return the positions of the updates that are aggregated, ascending: by default all.

        Parameters
        ----------
        updates, layout, model
            As `aggregate` takes them.
        loss : callable
            A whole model's loss on the server's validation images; infinite where it has none.

        Raises
        ------
        NonFiniteUpdate
            An update holds a number that is not finite.
        """
        return range(len(updates))

    @abstractmethod
    def aggregate(
        self, updates: Sequence[ChunkSource], weights: Sequence[float], layout: Layout, model: ModelBytes
    ) -> ModelBytes:
        """Return the aggregated update.

        Parameters
        ----------
        updates : sequence of ChunkSource
            Whole updates in `layout`.
        weights : sequence of float
            One per update, not negative, not all zero.
        layout : Layout
            Of every update and of the result.
        model : ModelBytes
            The global model that the silos received; has every tensor of `layout`.

        Raises
        ------
        NonFiniteUpdate
            An update with a weight holds a number that is not finite.
        """


class ServerStepHooks(EngineHooks):
    """How the aggregated update changes the global model."""

    def step(self) -> ServerStep | None:
        """Return the server optimiser of one run; None where the aggregated update is the new model."""
        return None

    def mixing(self) -> Mixing | None:
        """Return how each update is mixed into the model as it arrives; None where silos' last updates are averaged."""
        return None
