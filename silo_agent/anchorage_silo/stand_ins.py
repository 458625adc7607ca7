"""What stands in the agent's process for pieces of other packages: it holds the silo's key, and so loads no code but this project's.

A stand-in says what the piece says, and has it compute, in a confined process that sees no image (`anchorage_silo.piece_process`).
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import new_class
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PrivateAttr, TypeAdapter, ValidationError

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import PIECE_WRONG
from anchorage.api.method import ResolvedMethod
from anchorage.api.piece import PIECES, AuxiliaryArray, Piece
from anchorage.api.slot import read_piece, write_piece
from anchorage.api.task import OutputKind, Tally, TallyArray, Task
from anchorage.engine.aggregation.weigher import Announcements, BaseWeigher, Evaluations
from anchorage.engine.hooks import AggregationHooks, EncodingHooks, WeightingEngineHooks
from anchorage.methods import PRESETS
from anchorage.methods.preset import Preset
from anchorage.transport.grpc.convert import encode_announcement
from anchorage.transport.messages import MOST_REPETITIONS, Announcement
from anchorage.transport.tensors.chunks import ChunkSource, Manifest
from anchorage.transport.tensors.codings import Coding, Floats
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage_silo.config import SiloConfig
from anchorage_silo.piece_questions import PieceQuestions

MOST_KNOWN = 256
"""Pieces with their options of which it is remembered what they say."""

_EMPTY = Manifest.of("", np.empty(0, np.uint8))


@dataclass(frozen=True)
class DeclaredCoding:
    """What a coding says of itself."""

    words: str
    feedback: bool


@dataclass(frozen=True)
class DeclaredTask:
    """What a task says of itself."""

    outputs: tuple[str, ...]
    gives_maps: bool
    tally: tuple[TallyArray, ...]


@dataclass(frozen=True)
class Declared:
    """What a piece says of itself."""

    facts: tuple[str, ...]
    auxiliary: tuple[AuxiliaryArray, ...]
    bound: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    server_noise: str = ""
    repeats: bool = False
    coding: DeclaredCoding | None = None
    task: DeclaredTask | None = None


@dataclass(frozen=True)
class DeclaredWeigher:
    """What a weigher needs."""

    evaluated: bool
    repetitions: Annotated[int, Field(ge=1, le=MOST_REPETITIONS)]


_DECLARED, _WEIGHER = TypeAdapter(Declared), TypeAdapter(DeclaredWeigher)


class StandIn(Piece):
    """A piece of another package, by its options as they are written."""

    _options: dict[str, Any] = PrivateAttr()
    _questions: PieceQuestions = PrivateAttr()
    _declared: Declared = PrivateAttr()

    def facts(self) -> frozenset[str]:
        """Return the facts that other pieces' needs may name."""
        return frozenset(self._declared.facts)

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return what travels beside the model because of this piece."""
        return self._declared.auxiliary

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Return the options as they were written, whatever else is asked for."""
        return dict(self._options)

    @classmethod
    def of(cls, slot: str, name: str, options: Mapping[str, Any], questions: PieceQuestions, says: Declared) -> Self:
        """Return what stands for a piece that says this of itself."""
        gives_maps = says.task is not None and says.task.gives_maps
        made: Self = _class_of(cls, slot, name, gives_maps)()
        made._options, made._questions, made._declared = dict(options), questions, says
        return made

    def describe(self) -> dict[str, Any]:
        """Return what a question says of it."""
        return {"slot": self.slot, "name": self.name, "options": self.model_dump()}

    def ask(self, call: str, arrays: Mapping[str, NDArray[Any]], **more: Any) -> tuple[Any, Mapping[str, NDArray[Any]]]:
        """Ask it; errors as of `PieceQuestions.ask`."""
        return self._questions.ask(call, {**self.describe(), **more}, arrays)


@lru_cache(MOST_KNOWN)
def _class_of(kind: type[StandIn], slot: str, name: str, gives_maps: bool) -> Any:
    """Return a class of stand-ins for the pieces of a name."""
    made = new_class(kind.__name__, (kind,))
    for attribute, value in {"slot": slot, "name": name, "gives_maps": gives_maps, "__module__": __name__}.items():
        setattr(made, attribute, value)
    return made


class StandInAggregation(StandIn, AggregationHooks):
    """An aggregation, as far as silos are concerned."""

    @property
    def bound(self) -> float | None:
        """Euclidean norm to which silos scale their changes."""
        return self._declared.bound

    @property
    def server_noise(self) -> str:
        """What noise the server says to add."""
        return self._declared.server_noise

    def aggregate(
        self, updates: Sequence[ChunkSource], weights: Sequence[float], layout: Layout, model: ModelBytes
    ) -> ModelBytes:
        """Refuse: a silo aggregates nothing."""
        raise NotImplementedError


class StandInWeighting(StandIn, WeightingEngineHooks):
    """A weighting."""

    def weigher(self, task: Task) -> BaseWeigher:
        """Return what asks the weigher of the piece."""
        return _StandInWeigher(self, task)

    def suppressed(self, counts: NDArray[Any], minimum: int) -> NDArray[Any]:
        """Return counts without what too few images are behind."""
        due = {"counts": counts}
        return _like(due, self.ask("counts_suppressed", due, minimum=minimum)[1], self)["counts"]


class _StandInWeigher(BaseWeigher):
    def __init__(self, weighting: StandInWeighting, task: Task) -> None:
        self._weighting, self._task = weighting, write_piece(task)
        declaration = _read(_WEIGHER, weighting.ask("weigher", {}, task=self._task)[0], weighting.name)
        self.evaluated, self.repetitions = declaration.evaluated, declaration.repetitions

    def most(self, images: int) -> float | None:
        most_weight = self._weighting.ask("most", {}, task=self._task, images=images)[0]
        return None if most_weight is None else _number(most_weight, self._weighting)

    def _weigh(self, active: Announcements, evaluations: Evaluations) -> dict[str, float]:
        return {silo: self._weight(replace(each, update=_EMPTY, audit_head=None)) for silo, each in active.items()}

    def _weight(self, announcement: Announcement) -> float:
        encoded_announcement = base64.b64encode(encode_announcement(announcement)).decode()
        return _number(
            self._weighting.ask("weigh", {}, task=self._task, announcement=encoded_announcement)[0], self._weighting
        )


class StandInEncoding(StandIn, EncodingHooks):
    """An encoding."""

    def coding(self) -> Coding | None:
        """Return what asks the coding of the piece."""
        coding = self._declared.coding
        if coding is None:
            return None
        piece = json.dumps(self.describe(), sort_keys=True)
        return _StandInCoding(feedback=coding.feedback, declared_words=coding.words, piece=piece, encoding=self)


@dataclass(frozen=True, kw_only=True)
class _StandInCoding(Coding):
    declared_words: str
    piece: str
    """By which codings of one piece are one, as `encoding_of` remembers them."""
    encoding: StandInEncoding = field(compare=False)

    @property
    def words(self) -> str:
        return self.declared_words

    def chosen(self, update: Floats, base: Floats) -> NDArray[np.bool_] | None:
        answer_arrays = self.encoding.ask("chosen", {"update": update, "base": base})[1]
        return (
            _like({"chosen": np.empty(update.shape, np.bool_)}, answer_arrays, self.encoding)["chosen"]
            if answer_arrays
            else None
        )

    def encode(self, update: Floats, base: Floats) -> bytes | None:
        answer_arrays = self.encoding.ask("encoded", {"update": update, "base": base})[1]
        return answer_arrays["code"].tobytes() if "code" in answer_arrays else None

    def decode(self, data: bytes, start: int, base: Floats, update: Floats) -> int:
        code = np.frombuffer(data, np.uint8)
        at, answer_arrays = self.encoding.ask("decoded", {"code": code, "base": base}, start=start)
        if not isinstance(at, int) or not start <= at <= len(data):
            raise ValueError("no coding writes these bytes")
        update[:] = _like({"update": update}, answer_arrays, self.encoding)["update"]
        return at


class StandInTask(StandIn, Task):
    """A prediction task, as far as agents are concerned."""

    metrics: ClassVar = ()
    output_kind: ClassVar = OutputKind.VALUES

    @property
    def outputs(self) -> Sequence[str]:
        """Names of the model's outputs."""
        return self._told.outputs

    def tally_arrays(self) -> Sequence[TallyArray]:
        """Return the arrays of a tally."""
        return self._told.tally

    def scores(self, tally: Tally) -> Mapping[str, float]:
        """Refuse: an agent scores nothing."""
        raise NotImplementedError

    def images(self, tally: Tally) -> int:
        """Refuse: an agent is told by how many images its trainer scored."""
        raise NotImplementedError

    def suppressed(self, tally: Tally, minimum: int) -> Tally:
        """Return a tally without what too few images are behind."""
        return _like(tally, self.ask("tally_suppressed", tally, minimum=minimum)[1], self)

    @property
    def _told(self) -> DeclaredTask:
        assert self._declared.task is not None, f"{self.name} is no task"
        return self._declared.task


_KINDS: Mapping[str, type[StandIn]] = {
    "aggregation": StandInAggregation,
    "weighting": StandInWeighting,
    "encoding": StandInEncoding,
    "task": StandInTask,
}


class PackagesApart:
    """Stand-ins for the pieces of other packages (`anchorage.api.piece.StandIns`) and for their presets."""

    def __init__(self) -> None:
        self._made: PieceQuestions | None = None
        self._known = lru_cache(MOST_KNOWN)(self._ask)

    def configure(self, config: SiloConfig) -> None:
        """Have questions answered from now on; there are none before."""
        self._made = PieceQuestions(config)

    def piece(self, slot: str, name: str, options: Mapping[str, Any]) -> Piece:
        """Return what stands for a piece with these options; errors as of `PieceQuestions.ask`."""
        declared, base = self._known(slot, name, json.dumps(options, sort_keys=True)), _KINDS.get(slot, StandIn)
        if slot == "task" and declared.task is None:
            raise _wrong(name, "it is no task")
        return base.of(slot, name, options, self.questions, declared)

    def preset(self, name: str) -> Preset:
        """Return what stands for a preset; errors as of `PieceQuestions.ask`."""
        description = self.questions.ask("preset", {"name": name})[0]
        try:
            by_task = {
                task: {slot: read_piece(slot, each) for slot, each in pieces.items()}
                for task, pieces in description["by_task"].items()
            }
            slots = ResolvedMethod.model_validate_json(json.dumps(description["slots"]))
            return Preset(
                slots=slots,
                by_task=by_task,
                summary=str(description["summary"]),
                setting="",
                labels=(),
                reveals_to_server=str(description["reveals_to_server"]),
                reveals_to_silos=str(description["reveals_to_silos"]),
                source="",
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _wrong(name, "it is no method") from error

    def close(self) -> None:
        """End the process."""
        if self._made is not None:
            self._made.close()

    @property
    def questions(self) -> PieceQuestions:
        """Where they are asked; it is configured by then, as a configuration names no piece with options."""
        assert self._made is not None, "questions are asked after `configure`"
        return self._made

    def _ask(self, slot: str, name: str, options: str) -> Declared:
        asked = {"slot": slot, "name": name, "options": json.loads(options)}
        declaration: Declared = _read(_DECLARED, self.questions.ask("declared", asked)[0], name)
        return declaration


@contextmanager
def packages_apart() -> Iterator[PackagesApart]:
    """Have this process load no other package until the block ends."""
    apart = PackagesApart()
    PIECES.stand_ins, PRESETS.stand_in = apart, apart.preset
    try:
        yield apart
    finally:
        PIECES.stand_ins = PRESETS.stand_in = None
        apart.close()


def _read(kind: TypeAdapter[Any], answer: Any, name: str) -> Any:
    try:
        return kind.validate_json(json.dumps(answer), strict=True)
    except ValidationError as error:
        raise _wrong(name, "what it says of itself cannot be read") from error


def _number(answer: Any, piece: Piece) -> float:
    if isinstance(answer, bool) or not isinstance(answer, int | float):
        raise _wrong(piece.name, "a weight is no number")
    return float(answer)


def _like(
    due: Mapping[str, NDArray[Any]], answer_arrays: Mapping[str, NDArray[Any]], piece: Piece
) -> Mapping[str, NDArray[Any]]:
    """Return arrays that are named, shaped and typed as those that are due; raises AnchorageError where they are not."""
    forms = [{name: (array.shape, array.dtype) for name, array in arrays.items()} for arrays in (due, answer_arrays)]
    if forms[0] != forms[1]:
        raise _wrong(piece.name, "it returned arrays of another form")
    return answer_arrays


def _wrong(name: str, detail: str) -> AnchorageError:
    return AnchorageError(PIECE_WRONG, f"{name} of another package: {detail}")
