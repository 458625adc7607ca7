"""Checks of what hooks return, by type, shape and names: each takes time that does not depend on the images. Needs no torch."""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from anchorage.api.piece import AuxiliaryArray, Piece
from anchorage.api.piece_faults import WrongResultError, check_type, describe_value, returned_by

if TYPE_CHECKING:
    from anchorage.transport.messages import AuxiliaryData

T = TypeVar("T")

ARRAYS = "a mapping of names to numpy arrays"
METRICS = "a mapping of names to numbers"

_DECLARED = re.compile(r"\[(.*)\](?: (\w+))?")


def check_kind(piece: Piece, hook: str, result: T, kinds: type | tuple[type, ...], due: str) -> T:
    """Return what a hook returned, which is of one of these types.

    Raises
    ------
    AnchorageError
        PIECE_WRONG: it is of another type.
    """
    with returned_by(piece, hook):
        check_type(result, kinds, due)
    return result


def checked_arrays(
    piece: Piece | None, hook: str, arrays: "AuxiliaryData", declared: Iterable[AuxiliaryArray] | None = None
) -> Mapping[str, NDArray[Any]]:
    """Return the arrays that a hook returned.

    Parameters
    ----------
    piece : Piece or None
        Whose hook it is.
    hook : str
        Its name.
    arrays : mapping of str to ndarray
        What it returned.
    declared : iterable of AuxiliaryArray, optional
        What it may return; a name may have wildcards. None: anything.

    Raises
    ------
    AnchorageError
        PIECE_WRONG: it is no such mapping, or a name, dtype or number of axes is not declared.
    """
    with returned_by(piece, hook):
        check_type(arrays, Mapping, ARRAYS)
        for name, array in arrays.items():
            if not isinstance(name, str) or not isinstance(array, np.ndarray | np.generic):
                raise WrongResultError(f"{describe_value(array)} as {name}", ARRAYS)
            if declared is not None:
                _check_declared(name, array, list(declared))
    return arrays


def checked_metrics(piece: Piece, hook: str, metrics: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the metrics that a hook returned.

    Raises
    ------
    AnchorageError
        PIECE_WRONG: they are no mapping of names to numbers.
    """
    with returned_by(piece, hook):
        check_type(metrics, Mapping, METRICS)
        for name, value in metrics.items():
            if not isinstance(name, str) or not isinstance(value, Real):
                raise WrongResultError(f"{describe_value(value)} as {name}", METRICS)
    return metrics


def _check_declared(name: str, array: Any, declared: Sequence[AuxiliaryArray]) -> None:
    known = next((each for each in declared if fnmatchcase(name, each.name)), None)
    if known is None:
        names = ", ".join(each.name for each in declared) or "none"
        raise WrongResultError(f"the array {name}", f"arrays that auxiliary() of a piece declares ({names})")
    if (shape := _DECLARED.fullmatch(known.shape)) is None:
        return
    axes = len(shape[1].split(",")) if shape[1] else 0
    if array.ndim != axes or shape[2] not in (None, str(array.dtype)):
        raise WrongResultError(f"{describe_value(array)} as {name}", f"{known.shape}, as auxiliary() declares")
