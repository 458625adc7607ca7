"""Where and how calculations run, so that the same seed gives the same bytes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TypeVar

import torch
from torch import Tensor, nn

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import DEVICE_UNAVAILABLE, OUT_OF_MEMORY
from anchorage.api.piece_faults import naming_pieces

M = TypeVar("M", bound=nn.Module)


def to_device(network: M, device: torch.device) -> M:
    """Put a network where it is used, in eval mode, with the weights of flat convolutions channels last, as fast kernels want them."""
    if any(parameter.ndim == 5 for parameter in network.parameters()):
        return network.to(device).eval()
    return network.to(device=device, memory_format=torch.channels_last).eval()  # type: ignore[call-overload, no-any-return]


def mixed_precision(forward: Callable[[M, Tensor], Tensor]) -> Callable[[M, Tensor], Tensor]:
    """Have an encoder train in bfloat16 on a GPU, with float32 weights and a float32 result; in eval mode and on the CPU nothing changes.

    Only the encoder: losses, similarities and thresholds stay float32 (methods reference, 6.8), and so does everything that labels or scores.
    """

    @wraps(forward)
    def calculate(module: M, x: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=x.is_cuda and module.training):
            return forward(module, x).to(x.dtype)

    return calculate


def find_device(name: str) -> torch.device:
    """Return the device for ``cpu``, ``cuda``, ``cuda:1`` or ``auto`` (the GPU where there is one).

    Raises
    ------
    AnchorageError
        The device does not exist here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise AnchorageError(DEVICE_UNAVAILABLE, f"there is no device {name!r}: use auto, cpu or cuda") from error
    if device.type not in ("cpu", "cuda"):
        raise AnchorageError(DEVICE_UNAVAILABLE, f"the device {name!r} is not supported: use auto, cpu or cuda")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise AnchorageError(
            DEVICE_UNAVAILABLE, f"{name} was asked for, but torch sees {torch.cuda.device_count()} GPUs"
        )
    return device


def own_stream(name: str) -> None:
    """Give this thread a stream of its own on a GPU, so that its kernels run beside those of other threads; on the CPU nothing changes.

    Raises
    ------
    AnchorageError
        The device does not exist here.
    """
    device = find_device(name)
    if device.type == "cuda":
        torch.cuda.set_stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]


_threads = 1
"""CPU threads of each calculation of this process."""


def use_threads(number: int) -> None:
    """Have each later calculation of this process use so many CPU threads."""
    global _threads
    _threads = number


@contextmanager
def calculation() -> Iterator[None]:
    """Run learning in this thread: deterministic convolutions, lack of memory and exceptions in pieces as failures of the catalogue.

    The number of CPU threads changes the order of sums, and so the bytes of a model. Unless `use_threads` sets another, it is one, in a silo's
    process as in the simulator: silos run beside each other, and both give the same model. OpenMP keeps
    the number per thread, so it is set in every call.

    Raises
    ------
    AnchorageError
        The memory does not suffice, or a piece of the method raised an exception.
    """
    torch.set_num_threads(_threads)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    with naming_pieces(), _memory_errors():
        yield


@contextmanager
def _memory_errors() -> Iterator[None]:
    """Have lack of memory end the block as a failure of the catalogue."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise AnchorageError(OUT_OF_MEMORY, _first_line(error)) from error
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):  # torch has no type of its own for the CPU's allocator
            raise
        raise AnchorageError(OUT_OF_MEMORY, _first_line(error)) from error


def _first_line(error: BaseException) -> str:
    return (
        f"the model and its batches do not fit: {str(error).partition(chr(10))[0][:200]}; lower the batch or image size"
    )
