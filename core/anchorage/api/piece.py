"""Pieces: the alternatives of a method's slots, each one class in one file, and the registry that knows them by name."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from pydantic.alias_generators import to_camel

from anchorage.api.base import Document
from anchorage.api.errors import AnchorageError, Failure
from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE, PRESET_BROKEN
from anchorage.api.fact import Fact
from anchorage.api.mistakes import FieldPath, Mistake

if TYPE_CHECKING:
    from anchorage.api.plan import Plan

PLUGIN = "plugin"
"""Member by which a document names a piece of another package, by ``name`` and ``options``."""

ENTRY_POINTS = "anchorage.pieces"
"""Group of the entry points by which packages, this one included, name the modules that register their pieces."""

METHODS = "anchorage.methods"
"""Group of the entry points by which other packages name their presets."""

DECODERS = "anchorage.decoders"
"""Group of the entry points by which other packages name their decoders: no document names one, so a process that reads images loads them all."""

PRODUCT_GROUP = "anchorage"
"""Name of this package's entry point."""

NEW_OPTION = object()
"""Mark, by ``Annotated``, of an option that agents of the last release refuse: a run's description leaves it out where it is the default."""

TOLD_TO_SILOS = object()
"""Context in which a piece is written for agents, which leaves out new options that are not used."""

P = TypeVar("P", bound="type[Piece]")
S = TypeVar("S", bound="Piece")

_LONGEST = 200
"""Characters of a stranger's error that are told."""


@dataclass(frozen=True, slots=True)
class AuxiliaryArray:
    """An array that travels beside the model."""

    name: str
    """Key in the task's or the announcement's auxiliary data."""

    shape: str
    """Shape and dtype, such as ``[C, 128] float32``."""

    meaning: str
    """What the numbers are, in one phrase."""

    up: bool = False
    """Whether silos send it; else the server does."""

    large: bool = False
    """Whether it travels in chunks behind the model or the update, whatever its size; a memory of the piece takes it at the server
    (`anchorage.engine.aggregation.round_memory.RoundMemory.takes`). Others are small: a message carries them."""


@dataclass(frozen=True, slots=True)
class Need:
    """A fact that must hold, or must not, where a piece is used.

    Facts are those that other pieces of the method state about themselves (`Piece.facts`), and those of the documents
    (`anchorage.api.plan.Plan.facts`). Anchorage's own are of `anchorage.api.fact.Fact`; pieces of a package may use words of its own.
    The message says what was found, why that cannot be, and what to set.
    """

    fact: Fact | str
    message: str
    refused: bool = False
    """Whether the fact must not hold."""

    failure: Failure = MEANINGLESS_OVERRIDE
    path: FieldPath | None = None
    """The field that is wrong; None: the piece's own slot."""


class Piece(Document):
    """An alternative of a slot: its fields are its options, its methods say what it needs and sends and, in the rooms above, what it does."""

    slot: ClassVar[str] = ""
    """Slot of `anchorage.api.method.MethodSpec`, such as ``weighting``."""

    name: ClassVar[str] = ""
    """How documents call it, such as ``semiAnAgg``; with a dot, ``acme.TrimmedMean``, where another package adds it."""

    tasks: ClassVar[frozenset[str] | None] = None
    """Names of the tasks that it can serve; None: every task."""

    def facts(self) -> frozenset[str]:
        """Return the facts that other pieces' needs may name."""
        return frozenset()

    def needs(self) -> Sequence[Need]:
        """Return what must hold around this piece; checked by `anchorage.methods.check`."""
        return ()

    def check(self, plan: "Plan") -> Iterator[Mistake]:
        """Yield what its own options and the rest of the documents contradict each other in."""
        return iter(())

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return what travels beside the model because of this piece."""
        return ()

    @property
    def path(self) -> FieldPath:
        """Where this piece stands in a federation's document."""
        return ("spec", "method", to_camel(self.slot))

    def option(self, name: str) -> FieldPath:
        """Return where one of its options, such as ``groupSize``, stands in a federation's document."""
        member = (PLUGIN, "options") if "." in self.name else (self.name,)
        return (*self.path, *member, name)


class StandIns(Protocol):
    """What stands for pieces of other packages in a process that loads none of them."""

    def piece(self, slot: str, name: str, options: Mapping[str, Any]) -> Piece:
        """Return what stands for a piece with these options.

        Raises
        ------
        ValueError
            The piece cannot be made of the options, or there is none of the name.
        AnchorageError
            Its package cannot be loaded where it is asked.
        """


class Registry:
    """The pieces by slot and name.

    This package's are loaded at the first look. Another package is code of somebody else: what it has is loaded where a piece is asked for by name
    that its metadata say it provides, and all packages where all pieces are asked for (`of`). With `stand_ins` none is loaded at all.
    """

    def __init__(self) -> None:
        self._pieces: dict[tuple[str, str], type[Piece]] = {}
        self._loaded: set[str] = set()
        self.stand_ins: StandIns | None = None

    def add(self, piece: type[Piece], name: str) -> None:
        """Make a piece known.

        Raises
        ------
        AnchorageError
            Its slot has a piece of this name already, or it lacks a hook that its slot needs.
        """
        if missing := ", ".join(sorted(piece.__abstractmethods__)):
            raise AnchorageError(PRESET_BROKEN, f"{piece.__module__}.{piece.__name__} lacks {missing}; write it")
        known = self._pieces.setdefault((piece.slot, name), piece)
        if known is not piece:
            message = (
                f"{piece.slot} has two pieces called {name}, of {known.__module__} and {piece.__module__}; rename one"
            )
            raise AnchorageError(PRESET_BROKEN, message)

    def slots(self) -> list[str]:
        """Return the slots that have pieces."""
        self._load_all()
        return sorted({slot for slot, _ in self._pieces})

    def of(self, slot: str) -> Mapping[str, type[Piece]]:
        """Return a slot's pieces by name, after every package was loaded: none, this package's others in alphabetical order, then those of others.

        Raises
        ------
        AnchorageError
            A package's pieces cannot be loaded.
        """
        self._load_all()
        return self.list_loaded(slot)

    def list_loaded(self, slot: str) -> Mapping[str, type[Piece]]:
        """Return what `of` returns of this package and of what was loaded of others so far; errors as of `of`."""
        self._load_own()
        pieces_of_slot = {name: piece for (of, name), piece in self._pieces.items() if of == slot}
        return dict(sorted(pieces_of_slot.items(), key=lambda item: ("." in item[0], item[0] != "none", item[0])))

    def decoders(self) -> Sequence[type[Piece]]:
        """Return the decoders of this package and of all that name some (`DECODERS`), in the order of `of`; errors as of `of`."""
        self._load_own()
        for point in _outside(DECODERS):
            self._load(point)
        return list(self.list_loaded("decoder").values())

    def find(self, slot: str, name: str) -> type[Piece] | None:
        """Return the piece of a name, None where there is none; loads nothing but what may provide it (`providers`). Errors as of `of`."""
        self._load_own()
        for point in () if (slot, name) in self._pieces or self.stand_ins else providers(name):
            self._load(point)
            if (slot, name) in self._pieces:
                break
        return self._pieces.get((slot, name))

    def apart(self, slot: str, name: str) -> bool:
        """Return whether a piece may be that of another package, which this process does not load; errors as of `of`."""
        return self.stand_ins is not None and self.find(slot, name) is None and bool(providers(name))

    def __getitem__(self, key: tuple[str, str]) -> type[Piece]:
        """Return the piece of a slot and a name that `find` finds; KeyError where there is none."""
        piece_class = self.find(*key)
        if piece_class is None:
            raise KeyError(key)
        return piece_class

    def __iter__(self) -> Iterator[type[Piece]]:
        """Return the pieces of every slot that are known so far; loads no package."""
        return iter(list(self._pieces.values()))

    def _load_own(self) -> None:
        for point in entry_points(group=ENTRY_POINTS, name=PRODUCT_GROUP) if PRODUCT_GROUP not in self._loaded else ():
            self._load(point)

    def _load_all(self) -> None:
        self._load_own()
        for point in () if self.stand_ins else (*_outside(ENTRY_POINTS), *_outside(DECODERS)):
            self._load(point)

    def _load(self, point: EntryPoint) -> None:
        name = PRODUCT_GROUP if point.name == PRODUCT_GROUP else point.value
        if name in self._loaded:
            return
        self._loaded.add(name)  # while modules are imported, which look pieces up themselves
        try:
            load_entry_point(point)
        except AnchorageError:
            self._loaded.discard(name)
            raise


def providers(name: str) -> Sequence[EntryPoint]:
    """Return the entry points of other packages that may provide a piece of this name, by their metadata alone.

    The word before the first dot or slash, ``acme`` of ``acme.TrimmedMean``, is the package's name or its module's, or the beginning of one of them
    before an underscore, dash or dot. Where entry points of the word are called as what is behind it, ``trimmed-mean``, only these are returned.
    """
    word, *rest = re.split("[./]", name, maxsplit=1)
    if not rest:
        return ()
    points = [point for point in _outside(ENTRY_POINTS) if _is_of(point, plain(word))]
    called = [point for point in points if is_called(point, rest[0])]
    return called or points


def is_called(point: EntryPoint, name: str) -> bool:
    """Return whether an entry point is called as a piece or preset, whatever the case, underscores, dashes and dots."""
    return plain(point.name).replace("_", "") == plain(name).replace("_", "")


def versions_of(points: Iterable[EntryPoint]) -> Mapping[str, str]:
    """Return the versions of the packages of entry points, by name, of their metadata alone."""
    versions = {point.dist.name: point.dist.version for point in points if point.dist is not None}
    return dict(sorted(versions.items()))


def plain(name: str) -> str:
    """Return a name as names of packages are compared: in lower case, with ``_`` for dashes and dots."""
    return re.sub("[-_.]+", "_", name).lower()


def _is_of(point: EntryPoint, word: str) -> bool:
    module = point.value.partition(":")[0]  # which may be none: then loading tells so
    called = {plain(module.partition(".")[0]), *([plain(point.dist.name)] if point.dist else [])}
    return any(each == word or each.startswith(f"{word}_") for each in called)


def _outside(group: str) -> Sequence[EntryPoint]:
    """Return the entry points of other packages of a group, by name."""
    return sorted(
        (point for point in entry_points(group=group) if point.name != PRODUCT_GROUP),
        key=lambda each: (each.name, each.value),
    )


def load_entry_point(point: EntryPoint) -> Any:
    """Import what another package declares.

    Raises
    ------
    AnchorageError
        PRESET_BROKEN: the package raises something, whatever it is; its name and the error's first line are told.
    """
    try:
        return point.load()
    except AnchorageError:
        raise
    except (Exception, SystemExit) as error:  # whatever strangers raise; a signal passes
        package = f"the package {point.dist.name} {point.dist.version}" if point.dist else "a package"
        first = next(iter(str(error).splitlines()), "")
        what = f"{type(error).__name__}: {first[:_LONGEST]}" if first else type(error).__name__
        where = f"its entry point {point.name} = {point.value}"
        message = f"{package} cannot be loaded: {where} raised {what}; mend or uninstall it"
        raise AnchorageError(PRESET_BROKEN, message) from error


PIECES = Registry()


def piece(name: str) -> Callable[[P], P]:
    """Register a class as the alternative `name` of its slot."""

    def register(cls: P) -> P:
        cls.name = name
        PIECES.add(cls, name)
        return cls

    return register


def expect(piece: Piece | None, kind: type[S]) -> S:
    """Return a slot's piece as the type of its slot, which its registration promised."""
    assert isinstance(piece, kind), f"{piece!r} is no {kind.__name__}"
    return piece
