"""Mistakes of pieces: what a hook returned that it must not, or an exception in a piece, as a failure that names the piece."""

import inspect
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version
from pathlib import Path
from traceback import walk_tb
from types import FrameType

from pydantic.alias_generators import to_camel

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import PIECE_WRONG
from anchorage.api.piece import PIECES, Piece
from anchorage.api.text import printable

LONGEST_TEXT = 200
"""Characters of an exception's own text, or of a value, in a message."""

_PRODUCT_PACKAGE = "anchorage"
_PRODUCT_PACKAGES = frozenset({_PRODUCT_PACKAGE, "anchorage_server", "anchorage_silo", "anchorage_operator", "fedctl"})
_DEVICE = re.compile(r"CUDA error|CUDNN_STATUS|CUBLAS_STATUS|NCCL|HIP error")
_DEVICE_TYPES = frozenset({"AcceleratorError", "DistError", "DistBackendError", "DistNetworkError", "DistStoreError"})
"""Of torch, which this module does not load: a device or another process of the silo was lost."""
_RAISED = re.compile(r"(: \S+ raised \S+ at \S+:\d+): .*", re.DOTALL)
_RETURNED = re.compile(r"( returned )['\"].*(?=; due: )", re.DOTALL)

_log = logging.getLogger(__name__)


class WrongResultError(Exception):
    """A hook returned what it must not; `returned_by` names the piece.

    Parameters
    ----------
    result : str
        What it returned, as in "2 weights for 3 silos".
    due : str
        What it must return.
    """

    def __init__(self, result: str, due: str) -> None:
        super().__init__(f"returned {result}; due: {due}")


@contextmanager
def returned_by(piece: Piece | type[Piece] | None, hook: str) -> Iterator[None]:
    """Have a `WrongResultError` or an exception in the piece end the block as a failure of the catalogue that names the piece and its hook.

    Parameters
    ----------
    piece : Piece or None
        Whose hook it is; None where that is not known.
    hook : str
        Its name.

    Raises
    ------
    AnchorageError
        PIECE_WRONG: the hook returned what it must not, or raised an exception.
    """
    try:
        with naming_pieces(piece):
            yield
    except WrongResultError as wrong:
        raise AnchorageError(PIECE_WRONG, f"{describe_piece(piece)}: {hook} {wrong}") from None


def wrong_result(piece: Piece | type[Piece] | None, hook: str, result: str, due: str) -> AnchorageError:
    """Return the failure of a hook that returned what it must not; see `WrongResultError`."""
    return AnchorageError(PIECE_WRONG, f"{describe_piece(piece)}: {hook} {WrongResultError(result, due)}")


def check_type(result: object, kinds: type | tuple[type, ...], due: str) -> None:
    """Check the type of what a hook returned.

    Raises
    ------
    WrongResultError
        It is of none of these types.
    """
    if not isinstance(result, kinds):
        raise WrongResultError(describe_value(result), due)


def describe_value(value: object) -> str:
    """Return a value's type, shape and dtype, or the value itself where it is short, for a message."""
    shape, kind = getattr(value, "shape", None), type(value).__name__
    if shape is not None:
        return shorten(f"{kind} of {str(getattr(value, 'dtype', '')).removeprefix('torch.')} {list(shape)}")
    if value is None or isinstance(value, bool | int | float | str):
        return shorten(f"{value!r}")
    return f"{kind} of {len(value)} items" if isinstance(value, list | tuple | dict) else kind


def shorten(text: str) -> str:
    """Return text that fits a message: one line, no longer than `LONGEST_TEXT`."""
    return printable(text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…")


def describe_piece(piece: Piece | type[Piece] | None) -> str:
    """Return a piece's slot and name, the file and line of its class, and its package where that is another one."""
    if piece is None:
        return "a piece of the method"
    cls = piece if isinstance(piece, type) else type(piece)
    where = _file_of(cls.__module__)
    with suppress(OSError, TypeError):  # its source is not there
        where += f":{inspect.getsourcelines(cls)[1]}"
    package = f" of {_package_of(cls.__module__)}" if _is_outside(cls.__module__) else ""
    return f"{to_camel(cls.slot)} {cls.name} ({where}{package})"


def is_of_another_package(piece: Piece) -> bool:
    """Return whether a piece is none of this project's."""
    return _is_outside(type(piece).__module__)


@contextmanager
def naming_pieces(asked: Piece | type[Piece] | None = None) -> Iterator[None]:
    """Have an exception in the block that a piece raised end it as a failure of the catalogue that names the piece.

    The exception is its cause. All others pass: those that this project raises itself, lost devices, and disks that fail below what a piece called.

    Parameters
    ----------
    asked : Piece, optional
        Whose hook is called, where the block knows that.

    Raises
    ------
    AnchorageError
        PIECE_WRONG: an exception in a piece.
    """
    try:
        yield
    except AnchorageError:
        raise
    except Exception as error:
        message = _message_of(error, asked)
        if message is None:
            raise
        raise AnchorageError(PIECE_WRONG, message) from error


def log_exception(error: AnchorageError) -> None:
    """Log the traceback of the exception in a piece that a failure is about; nothing for other failures."""
    if error.failure is PIECE_WRONG and error.__cause__ is not None:
        _log.error("a piece of the method raised an exception", exc_info=error)


def without_text(message: str) -> str:
    """Return a failure's message without the exception's own text, or that which a hook returned, which may tell of images."""
    return _RETURNED.sub(r"\1text", _RAISED.sub(r"\1", message))


@dataclass(frozen=True)
class _Culprit:
    """The piece that an exception is attributed to."""

    piece: type[Piece] | None
    """None: one of several in the same package."""
    module: str
    """Module of a frame inside it."""
    function: str
    """Qualified name of that frame's function."""
    certain: bool
    """Whether it is a method of the piece; else it is in the piece's module or package."""


def _message_of(error: Exception, asked: Piece | type[Piece] | None) -> str | None:
    """Return what an exception in a piece did; None where no piece is at fault."""
    if _is_environment(error):
        return None
    frames = [(frame, line) for frame, line in walk_tb(error.__traceback__)]
    culprits = [
        (place, culprit) for place, (frame, _) in enumerate(frames) if (culprit := _culprit_of(frame)) is not None
    ]
    outside = [(place, culprit) for place, culprit in culprits if _is_outside(culprit.module)]
    if not culprits:
        return None
    last, culprit = (outside or culprits)[-1]
    known = [
        place for place, (frame, _) in enumerate(frames) if _module_of(frame).partition(".")[0] == _PRODUCT_PACKAGE
    ]
    if isinstance(error, OSError) and known and known[-1] > last:
        return None  # a disk failed below what the piece called
    inside = [each for _, each in outside or culprits if each.piece is culprit.piece]
    first = next((each for each in inside if each.certain), inside[0])
    frame, line = frames[last]
    if culprit.piece is not None:
        name = describe_piece(culprit.piece)
    elif asked is not None and _package_of(asked.__module__) == _package_of(culprit.module):
        name = describe_piece(asked)
    else:
        name = f"a piece of {_package_of(culprit.module)}"
    hook = first.function.replace(".<locals>", "")
    if culprit.piece is not None:
        hook = hook.rpartition(f"{culprit.piece.__name__}.")[2]
    lines = str(error).splitlines()
    text = f": {shorten(lines[0])}" if lines else ""
    return f"{name}: {hook} raised {type(error).__name__} at {_file_of(_module_of(frame))}:{line}{text}"


def _is_environment(error: BaseException) -> bool:
    """Return whether an exception is none of a piece's, wherever it was raised."""
    names = {cls.__name__ for cls in type(error).__mro__}
    is_system_error = (
        type(error).__module__.partition(".")[0] in _PRODUCT_PACKAGES
    )  # such as that a task was withdrawn, which passes through pieces
    return (
        is_system_error
        or isinstance(error, MemoryError)
        or bool(names & _DEVICE_TYPES)
        or bool(_DEVICE.search(str(error)))
    )


def _culprit_of(frame: FrameType) -> _Culprit | None:
    """Return the piece whose code a frame runs."""
    module, function = _module_of(frame), frame.f_code.co_qualname
    instance = frame.f_locals.get("self")
    if (
        isinstance(instance, Piece)
        and instance.slot
        and (_is_outside(module) or module.startswith("anchorage.pieces."))
    ):
        return _Culprit(type(instance), module, function, certain=True)
    pieces = _pieces_of(module)
    if not pieces:
        return None
    named = [cls for cls in pieces if cls.__module__ == module and cls.__name__ == function.partition(".")[0]]
    candidates = named or [cls for cls in pieces if cls.__module__ == module] or pieces
    return _Culprit(candidates[0] if len(candidates) == 1 else None, module, function, certain=bool(named))


def _pieces_of(module: str) -> list[type[Piece]]:
    """Return the pieces of a module, or of another author's package."""
    if not _is_outside(module):
        return [cls for cls in PIECES if cls.__module__ == module]
    package = module.partition(".")[0]
    return [cls for cls in PIECES if cls.__module__.partition(".")[0] == package]


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_outside(module: str) -> bool:
    return module.partition(".")[0] != _PRODUCT_PACKAGE


def _file_of(module: str) -> str:
    """Return a module's file below the folder that its package is in."""
    path = Path(getattr(sys.modules.get(module), "__file__", None) or f"{module.rpartition('.')[2]}.py")
    depth = module.count(".") + 1 + (path.name == "__init__.py")
    return "/".join(path.parts[-depth:])


def _package_of(module: str) -> str:
    """Return the installed package that a module belongs to, with its version."""
    top = module.partition(".")[0]
    names = packages_distributions().get(top, ())
    return f"{names[0]} {version(names[0])}" if names else top
