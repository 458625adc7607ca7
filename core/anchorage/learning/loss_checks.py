"""Checks of the losses that pieces return: shape and dtype of each, and which piece made one that is not finite.

A loss that is not finite comes of a learning rate that is too high, or of the piece that calculated it. It is the piece where the model's outputs are
finite and of ordinary size. On a GPU a loss is looked at in a round's first step alone, for every look waits for the device.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import isfinite

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import LOSS_NOT_FINITE
from anchorage.api.piece import Piece
from anchorage.api.piece_faults import (
    WrongResultError,
    describe_piece,
    describe_value,
    is_of_another_package,
    returned_by,
    wrong_result,
)
from anchorage.learning.network import Network
from anchorage.learning.views import Views

SCALAR = "the mean loss, a float tensor of shape []"
ORDINARY = 1e6
"""Outputs of a greater magnitude are those of a training that diverges."""
LOOKED_AT = 8
"""Images whose outputs are looked at to find out who made a loss that is not finite."""

ScalarLoss = Callable[..., Tensor]


class CheckedLoss:
    """A piece's loss of a batch, whose values are checked.

    Parameters
    ----------
    piece : Piece
        Whose loss it is.
    hook : str
        What returned it.
    loss : callable
        Returns a scalar; its first tensor is what the loss is of, such as logits.
    """

    def __init__(self, piece: Piece, hook: str, loss: ScalarLoss) -> None:
        self._piece, self._hook = piece, hook
        self._begun = False
        with returned_by(piece, hook):
            if not callable(loss):
                raise WrongResultError(describe_value(loss), "a function that returns " + SCALAR)
        self.loss = loss
        """The piece's own, for transformations of functions, which cannot look at values."""

    def __call__(self, *inputs: object) -> Tensor:
        """Return the loss of a batch.

        Raises
        ------
        AnchorageError
            PIECE_WRONG: it is no scalar, or not finite though what it is of is finite.
        """
        value = self.loss(*inputs)
        _check_scalar(self._piece, f"the loss of {self._hook}", value)
        if _is_looked_at(value, first=not self._begun) and not isfinite(_number(value)):
            tensors = [each for each in inputs if isinstance(each, Tensor) and each.is_floating_point()]
            if all(_is_ordinary(each) for each in tensors):
                detail = f"{_number(value)} for finite {' and '.join(describe_value(each) for each in tensors)}"
                raise wrong_result(self._piece, f"the loss of {self._hook}", detail, "a finite number")
        self._begun = True
        return value


def checked_losses(
    losses: Iterable[Tensor], piece: Piece, hook: str, outputs: Callable[[], Tensor]
) -> Iterator[Tensor]:
    """Yield each step's loss.

    Parameters
    ----------
    losses : iterable of Tensor
        What the piece's hook returned.
    piece, hook
        Whose losses they are.
    outputs : callable
        Returns outputs of the model as it is, of a few images.

    Raises
    ------
    AnchorageError
        PIECE_WRONG: one is no scalar with a gradient, or not finite though the model's outputs are.
    """
    for step, loss in enumerate(losses, 1):
        _check_scalar(piece, f"{hook}, in its losses,", loss)
        if not loss.requires_grad:
            detail = f"a loss in step {step} that depends on no weight of the model"
            raise wrong_result(piece, hook, detail, "a loss with a gradient")
        if _is_looked_at(loss, first=step == 1) and not isfinite(_number(loss)) and _is_ordinary(outputs()):
            detail = f"a loss of {_number(loss)} in step {step}, while the model's outputs are finite"
            raise wrong_result(piece, hook, detail, "finite losses")
        yield loss


@contextmanager
def suspecting(*pieces: Piece) -> Iterator[None]:
    """Have a loss in the block that is not finite also name those of these pieces that are another author's.

    For where nobody looked at the losses one by one.

    Raises
    ------
    AnchorageError
        LOSS_NOT_FINITE: a loss is not finite.
    """
    try:
        yield
    except AnchorageError as error:
        suspects = " or ".join(describe_piece(piece) for piece in pieces if is_of_another_package(piece))
        if error.failure is not LOSS_NOT_FINITE or not suspects:
            raise
        raise AnchorageError(LOSS_NOT_FINITE, f"{error.message}, or correct {suspects}, whose loss it is") from error


def sample_outputs(network: Network, views: Views, indices: NDArray[np.int64]) -> Tensor:
    """Return the outputs of a network in training, of the first few of some images as they are; the network's mode stays."""
    training = network.training
    network.eval()
    outputs = views.map_batches(indices[:LOOKED_AT], lambda i: network(views.plain(i)))
    network.train(training)
    return outputs


def _check_scalar(piece: Piece, hook: str, value: object) -> None:
    if not isinstance(value, Tensor) or value.ndim or not value.is_floating_point():
        raise wrong_result(piece, hook, describe_value(value), SCALAR)


def _is_looked_at(value: Tensor, *, first: bool) -> bool:
    return first or value.device.type == "cpu"


def _number(value: Tensor) -> float:
    """Return a scalar's value; on the processor its memory is read, where there is no device to wait for."""
    return float(value.detach().float().numpy()) if value.device.type == "cpu" else value.item()


def _is_ordinary(values: Tensor) -> bool:
    return values.numel() > 0 and bool((values.detach().abs() <= ORDINARY).all())
