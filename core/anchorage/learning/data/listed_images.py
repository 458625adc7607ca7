"""The images of a listing, decoded several at a time."""

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from anchorage.learning.data.decoders import decode_content, digest_of, picture_of
from anchorage.learning.data.decoding import (
    Decoded,
    Input,
    RefusedImageError,
    decode_array,
    fit_picture,
    read_content,
    upright_size,
)
from anchorage.learning.data.listing import BadImage, Listing
from anchorage.learning.data.masks import DecodedMasks, Masks
from anchorage.learning.data.sources import Source, file_and_frame

MOST_THREADS = 4
_AHEAD = 4 * MOST_THREADS
"""Images that are decoded, or wait to be, before they are asked for."""

T = TypeVar("T")


def decode(listing: Listing, wanted: Input, room: DecodedMasks | None = None) -> Iterator[Decoded | BadImage]:
    """Decode the images of a listing in its order, on up to `MOST_THREADS` threads.

    Parameters
    ----------
    listing : Listing
        Which images; rows known to be bad are not opened.
    wanted : Input
        What the model takes.
    room : DecodedMasks, optional
        Where the masks of images that have one go, a row before it is yielded.
    """

    def one(row: int) -> Decoded | BadImage:
        if (known := listing.bad.get(row)) is not None:
            return known
        name, source = listing.ids[row], listing.sources[row]
        masks = listing.masks
        if room is None or masks is None or masks.files[row] is None or not isinstance(source, Path):
            return _decode(name, source, wanted)
        try:
            return _with_mask(source, row, wanted, masks, room)
        except RefusedImageError as refused:
            return BadImage(name, refused.reason, refused.detail)

    return in_order(one, range(len(listing)))


def in_order(function: Callable[[int], T], rows: Sequence[int]) -> Iterator[T]:
    """Yield what a function returns of rows, in their order, computed on up to `MOST_THREADS` threads a few rows ahead."""
    with without_warnings():
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


@contextmanager
def without_warnings() -> Iterator[None]:
    """Leave out what libraries warn of, which quotes headers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(PIL|pydicom|nibabel)\.")
        yield


def _with_mask(source: Path, row: int, wanted: Input, masks: Masks, room: DecodedMasks) -> Decoded:
    """Decode an image, and put its mask into a row of the room.

    Raises
    ------
    RefusedImageError
        One of them cannot be used, or they differ in size.
    """
    content = read_content(source)
    picture, decoder = picture_of(content, source.name, wanted)
    mask = masks.read(row, upright_size(picture))
    decoded = not_blank(fit_picture(picture, wanted, digest_of(content, 0), decoder))
    room.take(row, mask, wanted.fit)
    return decoded


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
