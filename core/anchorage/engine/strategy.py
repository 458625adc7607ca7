"""What a method does at the server with a round's announcements and updates: the engine knows nothing else of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.rounds import WRONG_LAYOUT
from anchorage.api.method import SLOTS, ResolvedMethod
from anchorage.api.piece import Piece, expect
from anchorage.api.piece_faults import WrongResultError, check_type, describe_piece, returned_by, shorten
from anchorage.api.task import Task
from anchorage.engine.aggregation.mean import weighted_mean
from anchorage.engine.aggregation.mixing import Mixing
from anchorage.engine.aggregation.noised_mean import NoisedMean
from anchorage.engine.aggregation.result_checks import check_aggregate, check_model, check_positions
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.engine.aggregation.server_step import ServerStep
from anchorage.engine.aggregation.weigher import BaseWeigher, check_weights
from anchorage.engine.hooks import AggregationHooks, EncodingHooks, EngineHooks, ServerStepHooks, WeightingEngineHooks
from anchorage.learning.hook_checks import check_kind, checked_arrays
from anchorage.transport.messages import Announcement, AuxiliaryData, Evaluation
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.codings import Coding
from anchorage.transport.tensors.large_arrays import LargeArrays, joined_behind
from anchorage.transport.tensors.layout import NOTHING, Layout, TensorEntry
from anchorage.transport.tensors.model import ModelBytes

if TYPE_CHECKING:
    from anchorage.engine.store.large_files import LargeFiles


class WeightedMean:
    """Aggregates by the weighted mean."""

    def aggregate(
        self, updates: Sequence[ChunkSource], weights: Sequence[float], layout: Layout, model: ModelBytes
    ) -> ModelBytes:
        """Return the weighted mean of whole updates."""
        return weighted_mean(updates, weights, layout)


@dataclass
class Strategy:
    """Weighs and aggregates updates, steps the global model, and remembers what the next rounds need.

    `state` and `restore` make it survive a restart.
    """

    weigher: BaseWeigher
    """How much each update counts."""

    aggregation: AggregationHooks | WeightedMean | NoisedMean = field(default_factory=WeightedMean)
    """How weighted updates become one."""

    compares_norms: bool = True
    """Synchronous: whether updates that are far longer than the round's others are taken out before."""

    server_step: ServerStep | None = None
    """What becomes of the aggregated update of a synchronous round; None takes it as the new model."""

    mixing: Mixing | None = None
    """Asynchronous: how an update is mixed into the model; None averages every silo's last update."""

    memories: Mapping[str, RoundMemory] = field(default_factory=dict)
    """What is remembered of announcements for the next synchronous round, by slot."""

    refiners: Sequence[EngineHooks] = ()
    """Pieces that aggregate some tensors otherwise."""

    coding: Coding | None = None
    """Synchronous: how an update's change of the model is written; None: it travels as it is."""

    counts_steps: bool = False
    """Asynchronous: whether silos are told how many steps are committed."""

    pieces: Mapping[str, Piece] = field(default_factory=dict)
    """The method's pieces by slot, to name the one that made a mistake."""

    _last: tuple[object, tuple[ChunkSource, Layout]] | None = field(default=None, init=False)

    @classmethod
    def of(cls, method: ResolvedMethod, task: Task, seed: int) -> "Strategy":
        """Return a method's strategy for one run."""
        step, aggregation = (
            expect(method.server_step, ServerStepHooks),
            expect(method.aggregation, AggregationHooks),
        )
        weighting, encoding = expect(method.weighting, WeightingEngineHooks), expect(method.encoding, EncodingHooks)
        pieces = {slot: getattr(method, slot) for slot in SLOTS}
        memories = {slot: memory_of(piece, task, seed) for slot, piece in pieces.items()}
        return cls(
            check_kind(weighting, "weigher", weighting.weigher(task), BaseWeigher, "a BaseWeigher"),
            check_kind(aggregation, "start", aggregation.start(), (AggregationHooks, NoisedMean), "what aggregates"),
            aggregation.compares_norms,
            step.step(),
            check_kind(step, "mixing", step.mixing(), (Mixing, NoneType), "a Mixing or None"),
            {slot: memory for slot, memory in memories.items() if memory is not None},
            [piece for piece in pieces.values() if isinstance(piece, EngineHooks)],
            encoding.coding(),
            method.local.cycle is not None,
            pieces,
        )

    @property
    def keeps_updates(self) -> bool:
        """Whether every silo's last update stays with the server."""
        return any(memory.keeps_updates for memory in self.memories.values())

    @property
    def sparse_updates(self) -> bool:
        """Whether most of an update is as the silo received it, so that it travels as differences from the model."""
        return any(memory.sparse_updates for memory in self.memories.values())

    @property
    def hears_scores(self) -> bool:
        """Whether the server scores every silo's own model for a memory."""
        return any(memory.scores_updates for memory in self.memories.values())

    @property
    def scores_each_update(self) -> bool:
        """Whether every silo's own model is evaluated in place of the global one."""
        return self.server_step is not None and self.server_step.scores_each_update

    def task_for(
        self,
        silo: str,
        round_number: int,
        model: ModelBytes,
        up: Layout,
        updates: Mapping[str, ChunkSource],
        large: Sequence[LargeArrays] = (),
    ) -> tuple[ChunkSource, AuxiliaryData, Layout]:
        """Return the model that a silo is sent in a round, what it alone is told with it, and the layout of what is behind the model.

        Parameters
        ----------
        silo : str
            For whom.
        round_number : int
            Round, from 1.
        model : ModelBytes
            The global model.
        up : Layout
            Of the updates.
        updates : mapping of str to ChunkSource
            Every silo's last update, where they are kept.
        large : sequence of LargeArrays
            What every silo is sent.
        """
        source: ChunkSource = model
        auxiliary_data = dict(self._checked_arrays("weighting", "auxiliary_data", self.weigher.auxiliary_data(silo)))
        for slot, memory in self.memories.items():
            silo_model, further = memory.model_for(silo, round_number, model, up, updates)
            source = source if silo_model is model else silo_model
            auxiliary_data |= self._checked_arrays(slot, "auxiliary_data of its memory", further)
        behind = [arrays for memory in self.memories.values() if (arrays := memory.behind(silo)) is not None]
        source, layout = self._join(source, [*large, *behind])
        return source, auxiliary_data, layout

    def _join(self, model: ChunkSource, large: Sequence[LargeArrays]) -> tuple[ChunkSource, Layout]:
        """Return a model with large arrays behind it: the last one again where the bytes are the same, for that takes a pass over all of them."""
        if not large:
            return model, NOTHING
        bytes_of = (model.manifest.digest, *((arrays.source.manifest.digest, arrays.start) for arrays in large))
        if self._last is None or self._last[0] != bytes_of:
            self._last = (bytes_of, joined_behind(model, large))
        return self._last[1]

    @property
    def gathers_first(self) -> bool:
        """Whether silos announce something before the first local training."""
        return any(memory.gathers_first for memory in self.memories.values())

    def first_auxiliary(self) -> AuxiliaryData:
        """Return what silos are told that shall only announce, before the first local training."""
        return {name: a for memory in self.memories.values() for name, a in memory.first_auxiliary().items()}

    def keep_in(self, large: "LargeFiles[Any]") -> None:
        """Have what is too large for a checkpoint kept there."""
        for slot, memory in self.memories.items():
            memory.large, memory.slot = large, slot

    def refusal(self, behind: Layout) -> AnchorageError | None:
        """Return why large auxiliary data that a silo announces is not taken; None where it is, or there is none."""
        if foreign := behind.by_name.keys() - {name for memory in self.memories.values() for name in memory.takes}:
            return AnchorageError(
                WRONG_LAYOUT, f"the method takes no large auxiliary data {', '.join(sorted(foreign))}"
            )
        refusals = (memory.refusal(_taken_entries(memory, behind)) for memory in self.memories.values())
        return next((refusal for refusal in refusals if refusal is not None), None)

    def conclude(self, announcements: Mapping[str, Announcement], large: Mapping[str, LargeArrays]) -> None:
        """Learn what the silos of a round announced whose updates counted, and read the large auxiliary data of those that sent any."""
        for memory in self.memories.values():
            for silo in announcements:
                if silo in large and _taken_entries(memory, large[silo].layout):
                    memory.receive(silo, large[silo])
            memory.conclude(announcements)

    def scored(self, silo: str, metrics: Mapping[str, float]) -> None:
        """Hear what a silo's own model scores on the server's validation images."""
        for memory in self.memories.values():
            if memory.scores_updates:
                memory.scored(silo, metrics)

    def aggregate(
        self,
        updates: Sequence[ChunkSource],
        weights: Sequence[float],
        announcements: Sequence[Announcement],
        layout: Layout,
        model: ModelBytes,
        loss: Callable[[ModelBytes], float],
    ) -> ModelBytes:
        """Return the aggregated update.

        A result that is not finite is the fault of an update that is not, else of the piece that returned it.

        Parameters
        ----------
        updates, weights, announcements : sequence
            In one order.
        layout : Layout
            Of every update and of the result.
        model : ModelBytes
            The global model that the silos received.
        loss : callable
            As `AggregationHooks.select` takes it.

        Raises
        ------
        UnusableUpdate
            An update with a weight holds a number that is not finite, or a piece refuses it.
        AnchorageError
            PIECE_WRONG: a piece returned something else than the updates' positions, or than a finite model in `layout`.
        """
        if isinstance(self.aggregation, AggregationHooks):
            with returned_by(self.pieces.get("aggregation"), "select"):
                chosen = self.aggregation.select(updates, layout, model, loss)
                check_positions(chosen, len(updates))
            updates, weights = [updates[index] for index in chosen], [weights[index] for index in chosen]
            announcements = [announcements[index] for index in chosen]
        with returned_by(self.pieces.get("aggregation"), "aggregate"):
            aggregated = self.aggregation.aggregate(updates, weights, layout, model)
            check_aggregate(aggregated, layout, updates, weights)
        for piece in self.refiners:
            with returned_by(piece, "refine"):
                refined = piece.refine(aggregated, updates, weights, announcements)
                if refined is not aggregated:
                    check_aggregate(refined, layout, updates, weights)
            aggregated = refined
        return aggregated

    def step(self, model: ModelBytes, aggregated: ModelBytes, round_number: int, share: float) -> ModelBytes:
        """Return the update of the global model; see `ServerStep.apply`.

        Raises
        ------
        AnchorageError
            PIECE_WRONG: the piece returned something else than a finite model in the layout of `aggregated`.
        """
        if self.server_step is None:
            return aggregated
        with returned_by(self.pieces.get("server_step"), "apply"):
            stepped = self.server_step.apply(model, aggregated, round_number, share)
            check_model(stepped, aggregated.layout)
        return stepped

    def weigh(
        self, announcements: Mapping[str, Announcement], evaluations: Mapping[str, Sequence[Evaluation]]
    ) -> Mapping[str, float]:
        """Return an unnormalised weight per silo; see `BaseWeigher.weigh`.

        Raises
        ------
        AnchorageError
            PIECE_WRONG: the piece returned something else than a number per silo.
        """
        with returned_by(self.pieces.get("weighting"), "weigh"):
            return check_weights(self.weigher.weigh(announcements, evaluations), list(announcements))

    def choose(self, silos: Sequence[str], seed: int, round_number: int) -> Sequence[str]:
        """Return who of a round's silos takes part; see `BaseWeigher.choose`.

        Raises
        ------
        AnchorageError
            PIECE_WRONG: the piece returned something else than some of these silos.
        """
        with returned_by(self.pieces.get("weighting"), "choose"):
            chosen = self.weigher.choose(silos, seed, round_number)
            check_type(chosen, Sequence, "some of the silos")
            if unknown := [str(silo) for silo in chosen if silo not in silos]:
                raise WrongResultError(f"the unknown silo {shorten(unknown[0])}", "some of the silos")
        return chosen

    def bad_weight(self, weight: float) -> str:
        """Return what is wrong with a silo's weight that cannot be one."""
        piece = self.pieces.get("weighting")
        return f"its weight would be {weight}" + (f", by {describe_piece(piece)}" if piece is not None else "")

    def _checked_arrays(self, slot: str, hook: str, arrays: AuxiliaryData) -> AuxiliaryData:
        return checked_arrays(self.pieces.get(slot), hook, arrays)

    @property
    def ahead(self) -> bool:
        """Whether the next round may be dispatched before this one is committed; not where what leaves is accounted."""
        return not isinstance(self.aggregation, NoisedMean)

    def metrics(self) -> Mapping[str, float]:
        """Return what is told of the aggregation with every round."""
        return self.aggregation.metrics() if isinstance(self.aggregation, NoisedMean) else {}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return what must be found again after a restart."""
        return {prefix + key: a for prefix, keeper in self._keepers().items() for key, a in keeper.state().items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        for prefix, keeper in self._keepers().items():
            piece_state = {key.removeprefix(prefix): array for key, array in state.items() if key.startswith(prefix)}
            if piece_state:
                keeper.restore(piece_state)

    def _keepers(self) -> Mapping[str, ServerStep | RoundMemory | NoisedMean]:
        step = {"step/": self.server_step} if self.server_step is not None else {}
        noise = {"noise/": self.aggregation} if isinstance(self.aggregation, NoisedMean) else {}
        return {**step, **noise, **{f"memory/{slot}/": memory for slot, memory in self.memories.items()}}


def _taken_entries(memory: RoundMemory, behind: Layout) -> Mapping[str, TensorEntry]:
    return {name: entry for name, entry in behind.by_name.items() if name in memory.takes}


def memory_of(piece: Piece, task: Task, seed: int) -> RoundMemory | None:
    """Return what the server remembers for a piece."""
    if not isinstance(piece, EngineHooks):
        return None
    memory = piece.memory(task, seed)
    return check_kind(piece, "memory", memory, (RoundMemory, NoneType), "a RoundMemory or None")


def sends_own_models(piece: Piece, task: Task, seed: int) -> bool:
    """Return whether a piece's memory sends silos models of their own, or takes updates as differences from the model."""
    memory = memory_of(piece, task, seed)
    return memory is not None and (memory.sparse_updates or type(memory).model_for is not RoundMemory.model_for)


def task_layout(down: Layout, method: ResolvedMethod) -> Layout:
    """Return the layout of the largest model that a method's train tasks carry."""
    for piece in method.pieces():
        if isinstance(piece, EngineHooks):
            down = check_kind(piece, "task_layout", piece.task_layout(down), Layout, "a Layout")
    return down
