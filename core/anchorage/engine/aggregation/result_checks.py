"""Checks of the models that pieces return at the server: one pass over the numbers, once per round."""

from collections.abc import Sequence

from anchorage.api.piece_faults import WrongResultError, check_type, describe_value, shorten
from anchorage.engine.aggregation.mean import NonFiniteUpdate, find_nonfinite
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

DUE = "a ModelBytes of finite numbers in the layout of the updates"


def check_model(result: object, layout: Layout) -> None:
    """Check that what a hook returned is a model in a layout, of finite numbers.

    Raises
    ------
    WrongResultError
        It is not.
    """
    check_type(result, ModelBytes, DUE)
    assert isinstance(result, ModelBytes)
    if result.layout != layout:
        raise WrongResultError(f"a model in another layout, {_difference(result.layout, layout)}", DUE)
    if (tensor := find_nonfinite(result, layout)) is not None:
        raise WrongResultError(f"NaN or infinite numbers in the tensor {tensor}", DUE)


def check_aggregate(result: object, layout: Layout, updates: Sequence[ChunkSource], weights: Sequence[float]) -> None:
    """Check that an aggregated update is a model in a layout, of finite numbers.

    Parameters
    ----------
    result : ModelBytes
        What a hook returned.
    layout : Layout
        Of the updates.
    updates, weights : sequence
        What it was made of.

    Raises
    ------
    NonFiniteUpdate
        An update with a weight holds a number that is not finite, which the piece should have found.
    WrongResultError
        The result is wrong, and no update is.
    """
    try:
        check_model(result, layout)
    except WrongResultError:
        for index, (update, weight) in enumerate(zip(updates, weights, strict=True)):
            if weight > 0 and (tensor := find_nonfinite(update, layout)) is not None:
                raise NonFiniteUpdate(index, tensor) from None
        raise


def check_positions(result: object, count: int) -> None:
    """Check that what a hook returned are positions of updates.

    Raises
    ------
    WrongResultError
        They are not ascending numbers from 0 to `count` - 1, at least one.
    """
    due = f"ascending positions of the updates, from 0 to {count - 1}, at least one"
    check_type(result, Sequence, due)
    assert isinstance(result, Sequence)
    if list(result) != sorted(set(result)) or not result or result[0] < 0 or result[-1] >= count:
        raise WrongResultError(shorten(f"{list(result)}") if len(result) <= count else describe_value(result), due)


def _difference(result_layout: Layout, layout: Layout) -> str:
    for name, entry in layout.by_name.items():
        other = result_layout.by_name.get(name)
        if other is None:
            return shorten(f"without the tensor {name}")
        if (other.dtype, other.shape) != (entry.dtype, entry.shape):
            return shorten(
                f"whose tensor {name} is {other.dtype} {list(other.shape)}, not {entry.dtype} {list(entry.shape)}"
            )
    more = result_layout.by_name.keys() - layout.by_name.keys()
    return shorten(f"with the tensor {min(more)}") if more else "whose tensors have another order"
