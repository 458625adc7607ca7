"""The decoders of this installation: which of them a file is for, and what it makes of it."""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from anchorage.api.piece import PIECES, expect
from anchorage.api.piece_faults import WrongResultError, describe_value, returned_by
from anchorage.api.regular_files import open_regular
from anchorage.learning.data.decoding import MOST_PIXELS, Decoded, Input, Intensity, Picture, fit_picture, not_an_image
from anchorage.learning.decoder_hooks import DecoderHooks, IntensityHooks

if TYPE_CHECKING:
    from anchorage.api.inference import Inference
    from anchorage.api.model import ModelDescription, ModelSpec

HEAD_BYTES = 512
"""Bytes at a file's beginning by which its decoder is found."""
DIRECTORY = "dicomdir"
"""How a directory of DICOM files is called, in lower case; it is no image."""
_DUE = f"a Picture: uint8 or uint16, [h, w] or [h, w, 3], or float32 [h, w] with what it measures, 1 to {MOST_PIXELS} pixels, white of 1 to 65535"


@cache
def decoders() -> Mapping[str, DecoderHooks]:
    """Return the decoders by their names with their versions; this package's come first."""
    decoder_instances = [expect(cls(), DecoderHooks) for cls in PIECES.decoders()]
    return {f"{decoder.name} {decoder.version()}": decoder for decoder in decoder_instances}


@cache
def image_suffixes() -> frozenset[str]:
    """Return how names of files end that are listed as images, in lower case."""
    return frozenset(suffix for decoder in decoders().values() for suffix in decoder.suffixes())


def is_image(path: str, name: str) -> bool:
    """Return whether a file is an image by its suffix, or by its content where it has none, or a number, as the end of an identifier is."""
    name = name.lower()
    if name.endswith(tuple(image_suffixes())):
        return name not in image_suffixes()
    suffix = PurePath(name).suffix
    if (suffix and not suffix[1:].isdigit()) or name == DIRECTORY:
        return False
    try:
        with open_regular(path) as file:
            return decoder_for(file.read(HEAD_BYTES), name) is not None
    except OSError:
        return False


@cache
def suffixes_with_headers() -> tuple[str, ...]:
    """Return how names of files end whose decoders read what they say of themselves."""
    telling = (decoder for decoder in decoders().values() if type(decoder).header is not DecoderHooks.header)
    return tuple(suffix for decoder in telling for suffix in decoder.suffixes())


def holds_scans(version: str) -> bool:
    """Return whether files of a decoder, by its name and version, may hold volumes, and slices whose pixels are measured values."""
    return type(decoders()[version]).scan is not DecoderHooks.scan


def input_of(model: "ModelDescription | Inference") -> Input:
    """Return what a model takes of an image."""
    return Input(model.image_size, model.channels, shades_of(model), model.fitting)


def shades_of(model: "ModelSpec | Inference") -> Intensity | None:
    """Return what shows the values of a picture to a model; None: the bits of each file."""
    return None if model.intensity is None else expect(model.intensity, IntensityHooks).shades()


def decoder_for(head: bytes, name: str) -> str | None:
    """Return the name and version of the decoder for a file that begins so; of several that recognise it the one that has the name's suffix, or
    else the first; None: no decoder knows it.
    """
    head, name = head[:HEAD_BYTES], name.lower()
    able = {version: decoder for version, decoder in decoders().items() if decoder.recognises(head)}
    return next(
        (each for each, decoder in able.items() if name.endswith(tuple(decoder.suffixes()))), next(iter(able), None)
    )


def decode_content(content: bytes, name: str, wanted: Input, frame: int = 0) -> Decoded:
    """Decode the content of a file by the decoder that recognises it.

    Parameters
    ----------
    content : bytes
        The file.
    name : str
        Its name.
    wanted : Input
        What the model takes.
    frame : int
        Which of its frames, from 0; of formats that Pillow reads always the first.

    Raises
    ------
    RefusedImageError
        It cannot be used.
    AnchorageError
        PIECE_WRONG: a decoder of another package returned no picture.
    """
    picture, version = picture_of(content, name, wanted, frame)
    return fit_picture(picture, wanted, digest_of(content, frame), version)


def digest_of(content: bytes, frame: int) -> bytes:
    """Return BLAKE2b of a file's bytes, and of the frame's number where it is not the first."""
    digest = hashlib.blake2b(content)
    digest.update(frame.to_bytes(4) if frame else b"")
    return digest.digest()


def picture_of(content: bytes, name: str, wanted: Input, frame: int = 0) -> tuple[Picture, str]:
    """Return what a file shows, of any size, and what decoded it. Parameters and errors as of `decode_content`."""
    if (version := decoder_for(content, name)) is None:
        raise not_an_image(content)
    decoder = decoders()[version]
    picture = decoder.picture(content, wanted, frame)
    with returned_by(decoder, "picture"):
        _check(picture)
    return picture, version


def _check(picture: Picture) -> None:
    """Check what a decoder returned.

    Raises
    ------
    WrongResultError
        It is no picture.
    """
    if not isinstance(picture, Picture) or not isinstance(picture.pixels, np.ndarray):
        raise WrongResultError(describe_value(picture), _DUE)
    pixels = picture.pixels
    shaped = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    measured = picture.measured is not None and pixels.dtype == np.float32 and pixels.ndim == 2
    if not measured and (pixels.dtype not in (np.uint8, np.uint16) or not shaped or picture.measured is not None):
        raise WrongResultError(describe_value(pixels), _DUE)
    if not 0 < pixels.shape[0] * pixels.shape[1] <= MOST_PIXELS:
        raise WrongResultError(describe_value(pixels), _DUE)
    if not 1 <= picture.white <= 65535:
        raise WrongResultError(f"white {picture.white}", _DUE)
