"""The images of a listing, decoded several at a time."""

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import numpy as np

from anchorage.learning.data.decoders import decode_content
from anchorage.learning.data.decoding import Decoded, Input, RefusedImageError, decode_array, read_content
from anchorage.learning.data.listing import BadImage, Listing, Source, file_and_frame

MOST_THREADS = 4
_AHEAD = 4 * MOST_THREADS
"""Images that are decoded, or wait to be, before they are asked for."""

T = TypeVar("T")


def decode(listing: Listing, wanted: Input) -> Iterator[Decoded | BadImage]:
    """Decode the images of a listing in its order, on up to `MOST_THREADS` threads.

    Parameters
    ----------
    listing : Listing
        Which images; rows known to be bad are not opened.
    wanted : Input
        What the model takes.
    """

    def one(row: int) -> Decoded | BadImage:
        return listing.bad.get(row) or _decode(listing.ids[row], listing.sources[row], wanted)

    return in_order(one, range(len(listing)))


def in_order(function: Callable[[int], T], rows: Sequence[int]) -> Iterator[T]:
    """Yield what a function returns of rows, in their order, computed on up to `MOST_THREADS` threads a few rows ahead."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(PIL|pydicom|nibabel)\.")
        pool = ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1), thread_name_prefix="decode")
        try:
            remaining = iter(rows)
            waiting: deque[Future[T]] = deque(pool.submit(function, row) for row in islice(remaining, _AHEAD))
            while waiting:
                result = waiting.popleft().result()
                waiting.extend(pool.submit(function, row) for row in islice(remaining, 1))
                yield result
        finally:
            pool.shutdown(cancel_futures=True)


def _decode(name: str, source: Source, wanted: Input) -> Decoded | BadImage:
    try:
        if isinstance(source, np.ndarray):
            return not_blank(decode_array(source, wanted))
        file, frame = file_and_frame(source)
        return not_blank(decode_content(read_content(file), "" if file is None else file.name, wanted, frame))
    except RefusedImageError as refused:
        return BadImage(name, refused.reason, refused.detail)


def not_blank(decoded: Decoded) -> Decoded:
    """Return an image that shows something.

    Raises
    ------
    RefusedImageError
        It has one value everywhere.
    """
    if decoded.blank:
        raise RefusedImageError("Blank", "every pixel has the same value")
    return decoded
