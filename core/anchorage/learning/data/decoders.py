"""The decoders of this installation: which of them a file is for, and what it makes of it."""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from anchorage.api.piece import PIECES
from anchorage.api.piece_faults import WrongResultError, returned_by, shown
from anchorage.learning.data.decoding import MOST_PIXELS, Decoded, Picture, fitted, not_an_image
from anchorage.learning.hooks import expect
from anchorage.learning.model_hooks import DecoderHooks

_HEAD_BYTES = 512
_DUE = f"a Picture: uint8 or uint16, [h, w] or [h, w, 3], 1 to {MOST_PIXELS} pixels, white of 1 to 65535"


@cache
def decoders() -> Mapping[str, DecoderHooks]:
    """Return the decoders by their names with their versions; this package's come first."""
    found = [expect(cls(), DecoderHooks) for cls in PIECES.of("decoder").values()]
    return {f"{decoder.name} {decoder.version()}": decoder for decoder in found}


@cache
def image_suffixes() -> frozenset[str]:
    """Return how names of files end that are listed as images, in lower case."""
    return frozenset(suffix for decoder in decoders().values() for suffix in decoder.suffixes())


def decode_content(content: bytes, name: str, image_size: int, channels: int) -> Decoded:
    """Decode the content of a file by the decoder that recognises it; of several the one that has the name's suffix, or else the first.

    Parameters
    ----------
    content : bytes
        The file.
    name : str
        Its name.
    image_size, channels : int
        Height and width of the result in pixels, and 1 for grey or 3 for RGB.

    Raises
    ------
    RefusedImageError
        It cannot be used.
    AnchorageError
        PIECE_WRONG: a decoder of another package returned no picture.
    """
    head, suffix = content[:_HEAD_BYTES], Path(name).suffix.lower()
    able = {version: decoder for version, decoder in decoders().items() if decoder.recognises(head)}
    if not able:
        raise not_an_image(content)
    version = next((each for each, decoder in able.items() if suffix in decoder.suffixes()), next(iter(able)))
    picture = able[version].picture(content, image_size, channels)
    with returned_by(able[version], "picture"):
        _check(picture)
    return fitted(picture, image_size, channels, hashlib.blake2b(content).digest(), version)


def _check(picture: Picture) -> None:
    """Check what a decoder returned.

    Raises
    ------
    WrongResultError
        It is no picture.
    """
    if not isinstance(picture, Picture) or not isinstance(picture.pixels, np.ndarray):
        raise WrongResultError(shown(picture), _DUE)
    pixels = picture.pixels
    shaped = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if pixels.dtype not in (np.uint8, np.uint16) or not shaped:
        raise WrongResultError(shown(pixels), _DUE)
    if not 0 < pixels.shape[0] * pixels.shape[1] <= MOST_PIXELS:
        raise WrongResultError(shown(pixels), _DUE)
    if not 1 <= picture.white <= 65535:
        raise WrongResultError(f"white {picture.white}", _DUE)
