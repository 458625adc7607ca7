"""The images of a listing, decoded several at a time."""

import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from anchorage.learning.data.decoding import Decoded, RefusedImageError, decode_array, decode_bytes, read_content
from anchorage.learning.data.listing import BadImage, Listing, Source

MOST_THREADS = 4


def decode(listing: Listing, image_size: int, channels: int) -> Iterator[Decoded | BadImage]:
    """Decode the images of a listing in its order, on up to `MOST_THREADS` threads.

    Parameters
    ----------
    listing : Listing
        Which images; rows known to be bad are not opened.
    image_size : int
        Height and width of the result in pixels.
    channels : int
        1 for grey, 3 for RGB.
    """

    def one(row: int) -> Decoded | BadImage:
        return listing.bad.get(row) or _decode(listing.ids[row], listing.sources[row], image_size, channels)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        pool = ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1), thread_name_prefix="decode")
        try:
            yield from pool.map(one, range(len(listing)))
        finally:
            pool.shutdown(cancel_futures=True)


def _decode(name: str, source: Source, image_size: int, channels: int) -> Decoded | BadImage:
    try:
        if isinstance(source, np.ndarray):
            return decode_array(source, image_size, channels)
        return decode_bytes(read_content(source), image_size, channels)
    except RefusedImageError as refused:
        return BadImage(name, refused.reason, refused.detail)
