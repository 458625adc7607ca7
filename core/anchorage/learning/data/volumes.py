"""Volumes in files: resampled once to a model's spacing, and read patch by patch.

A file holds one volume: a line of JSON with what is known of it, the values (uint16 [channels, x, y, z], 65535 is white), the mask (uint8
[x, y, z]), and some places of each foreground class (int16 [places, 3]), for patches around them. It is written once and never changed. Values are
read by position and not mapped, as those of pictures (`anchorage.learning.data.stored_pictures`).
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.silo import STATE_UNUSABLE
from anchorage.api.regular_files import open_regular
from anchorage.api.task import UNKNOWN_PIXEL
from anchorage.learning.data.cases import Case
from anchorage.transport.files import replacing

PLACES = 4096
"""Voxels of a foreground class that are kept for patches around them, at most."""
MASK_DIGEST = 8
"""Bytes of a mask's digest, which stands for it among labels."""

_FORMAT = "anchorage volume 1"
_MOST_HEADER = 1 << 20
_STREAMED = 1 << 24

Start = tuple[int, int, int]
Sides = tuple[int, int, int]


class StoredVolume:
    """A volume in a file.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    OSError, ValueError
        There is none, or it is not whole.
    """

    mode, white, paged, few_values, above = "volume", None, False, False, 0.0
    """As of `anchorage.learning.data.report.Decodable`."""

    def __init__(self, path: Path) -> None:
        self.path, self._verified = path, False
        with open_regular(path) as file:
            line = file.readline(_MOST_HEADER)
            head = json.loads(line)
            if head.get("format") != _FORMAT:
                raise ValueError("it is no volume")
            self._start, file_bytes = len(line), os.fstat(file.fileno()).st_size
        self.shape: tuple[int, int, int, int] = tuple(head["shape"])
        """Channels and voxels along each axis."""
        self.masked: bool = head["masked"]
        """Whether it has a mask."""
        self.counts: tuple[int, ...] = tuple(head["counts"])
        """Voxels of each class in the file that was read."""
        self.size: Sides = tuple(head["size"])
        """Voxels along each axis of that file."""
        self.darkest: int = head["darkest"]
        """Least value, which fills patches beyond the volume."""
        self.decoder: str = head["decoder"]
        self.facts: tuple[str, ...] = tuple(head["facts"])
        self.digest = bytes.fromhex(head["digest"])
        """As of `anchorage.learning.data.cases.Case`."""
        self.mask_digest = bytes.fromhex(head["maskDigest"])
        """Of the mask, `MASK_DIGEST` bytes."""
        self._places: tuple[int, ...] = tuple(head["places"])
        self._check: str = head["check"]
        if file_bytes != self._start + self._mask_offset + self._mask_bytes + 6 * sum(self._places):
            raise ValueError("it ends early")

    @property
    def _mask_offset(self) -> int:
        return 2 * math.prod(self.shape)

    @property
    def _mask_bytes(self) -> int:
        return math.prod(self.shape[1:]) if self.masked else 0

    def patch(self, start: Start, sides: Sides) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
        """Return values [channels, *sides] and mask [*sides] from a place on; beyond the volume values are `darkest`, and classes not known.

        Raises
        ------
        AnchorageError
            STATE_UNUSABLE: the file cannot be read, or is not as it was written; then it is removed.
        """
        values = np.full((self.shape[0], *sides), self.darkest, np.uint16)
        mask = np.full(sides, UNKNOWN_PIXEL, np.uint8)
        first, box_sides, (x, y, z) = _within(start, sides, self.shape[1:])
        if not all(box_sides):
            return values, mask
        try:
            with open_regular(self.path, buffering=0) as file:
                self._verify(file.fileno())
                for channel in range(self.shape[0]):
                    values[channel, x, y, z] = self._box(
                        file.fileno(), 2 * channel * self._plane, "<u2", first, box_sides
                    )
                if self.masked:
                    mask[x, y, z] = self._box(file.fileno(), self._mask_offset, "u1", first, box_sides)
        except OSError as error:
            raise self._damage_error(error.strerror or str(error)) from error
        return values, mask

    def middle(self, sides: Sides) -> NDArray[np.uint16]:
        """Return the values of the middle patch, uint16 [channels, *sides]; errors as of `patch`."""
        first, second, third = (
            (volume_side - side) // 2 for volume_side, side in zip(self.shape[1:], sides, strict=True)
        )
        return self.patch((first, second, third), sides)[0]

    def mask(self) -> NDArray[np.uint8]:
        """Return the whole mask, uint8 [x, y, z], which it has; errors as of `patch`."""
        try:
            with open_regular(self.path, buffering=0) as file:
                self._verify(file.fileno())
                return self._box(file.fileno(), self._mask_offset, "u1", (0, 0, 0), self.shape[1:])
        except OSError as error:
            raise self._damage_error(error.strerror or str(error)) from error

    def places(self, of: int) -> NDArray[np.int16]:
        """Return voxels of a foreground class, counted from 0, int16 [n, 3], of which there may be none; errors as of `patch`."""
        count, before = self._places[of], 6 * sum(self._places[:of])
        offset = self._start + self._mask_offset + self._mask_bytes + before
        try:
            with open_regular(self.path, buffering=0) as file:
                self._verify(file.fileno())
                content = os.pread(file.fileno(), 6 * count, offset)
        except OSError as error:
            raise self._damage_error(error.strerror or str(error)) from error
        return np.frombuffer(content, "<i2").reshape(-1, 3)

    @property
    def foreground(self) -> Sequence[int]:
        """Foreground classes, counted from 0, that it has."""
        return [of for of, count in enumerate(self._places) if count]

    @property
    def _plane(self) -> int:
        return math.prod(self.shape[1:])

    def _box(
        self, handle: int, offset: int, dtype: str, first: Sequence[int], box_sides: Sequence[int]
    ) -> NDArray[Any]:
        """Read a box of one channel, plane by plane: rows of a plane lie one after another."""
        kind, (_, _, rows, deep) = np.dtype(dtype), self.shape
        box = np.empty((box_sides[0], box_sides[1], deep), kind)
        for plane in range(box_sides[0]):
            place = ((first[0] + plane) * rows + first[1]) * deep * kind.itemsize
            if os.preadv(handle, [box[plane].data], self._start + offset + place) != box[plane].nbytes:
                raise self._damage_error("it ends early")
        return box[:, :, first[2] : first[2] + box_sides[2]]

    def _verify(self, handle: int) -> None:
        """Compare the content with its digest, the first time that it is read."""
        if self._verified:
            return
        digest, place = blake3(), self._start
        while content := os.pread(handle, _STREAMED, place):
            digest.update(content)
            place += len(content)
        if digest.hexdigest() != self._check:
            raise self._damage_error("it is not as it was written")
        self._verified = True

    def _damage_error(self, what: str) -> AnchorageError:
        self.path.unlink(missing_ok=True)
        return AnchorageError(
            STATE_UNUSABLE,
            f"{self.path}: {what}; it was removed: start again, and the volume is decoded anew",
            redacted=f"a stored volume: {what}; it was removed: start again, and the volume is decoded anew",
        )


class StoredVolumes:
    """Volumes in files, in some order; as pictures they are their middle patches.

    Parameters
    ----------
    files : sequence of StoredVolume
        The volumes.
    patch : tuple of int
        Channels of a patch, and its voxels along each axis.
    keeps : object, optional
        What must not go before them, such as a temporary store.
    """

    def __init__(self, files: Sequence[StoredVolume], patch: tuple[int, int, int, int], keeps: object = None) -> None:
        self._files, self._patch, self._keeps = tuple(files), patch, keeps

    def __len__(self) -> int:
        return len(self._files)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of volumes, and channels and sides of a patch."""
        return (len(self), *self._patch)

    @property
    def nbytes(self) -> int:
        """Bytes of all values together."""
        return sum(2 * math.prod(file.shape) for file in self._files)

    @property
    def digests(self) -> NDArray[np.uint8]:
        """Digests of the files that were decoded, uint8 [n, 64]."""
        return np.frombuffer(b"".join(file.digest for file in self._files), np.uint8).reshape(len(self), -1)

    def __getitem__(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> Self:
        """Return some of the volumes, still unread."""
        chosen = np.arange(len(self))[rows].tolist()
        return type(self)([self._files[row] for row in chosen], self._patch, self._keeps)

    def read(self, rows: NDArray[np.integer] | slice) -> NDArray[np.uint16]:
        """Read the middle patches of some volumes, uint16 [b, channels, *patch]; errors as of `StoredVolume.patch`."""
        chosen = np.arange(len(self))[rows].tolist()
        patches = np.empty((len(chosen), *self._patch), np.uint16)
        for place, row in enumerate(chosen):
            patches[place] = self._files[row].middle(self._patch[1:])
        return patches

    def volume(self, row: int) -> StoredVolume:
        """Return one."""
        return self._files[row]


def box_of(values: NDArray[np.uint16], start: Start, sides: Sides, darkest: int) -> NDArray[np.uint16]:
    """Return a patch [channels, *sides] of values in memory [channels, x, y, z], as `StoredVolume.patch` has it of those in a file."""
    box = np.full((len(values), *sides), darkest, np.uint16)
    first, box_sides, (x, y, z) = _within(start, sides, values.shape[1:])
    i, j, k = (slice(low, low + count) for low, count in zip(first, box_sides, strict=True))
    box[:, x, y, z] = values[:, i, j, k]
    return box


def _within(
    start: Start, sides: Sides, volume_sides: tuple[int, ...]
) -> tuple[Sequence[int], Sequence[int], Sequence[slice]]:
    """Return where a box begins in a volume, how much of it lies there along each axis, and where in the box that is."""
    lows = [max(0, -place) for place in start]
    highs = [
        min(side, volume_side - place) for place, side, volume_side in zip(start, sides, volume_sides, strict=True)
    ]
    box_sides = [max(0, high - low) for low, high in zip(lows, highs, strict=True)]
    first = [place + low for place, low in zip(start, lows, strict=True)]
    return first, box_sides, [slice(low, low + count) for low, count in zip(lows, box_sides, strict=True)]


def write_volume(path: Path, case: Case, rng: np.random.Generator) -> StoredVolume:
    """Write a volume, and open it.

    Parameters
    ----------
    path : Path
        The file, of mode 0600; it is there as a whole or not at all.
    case : Case
        The volume.
    rng : Generator
        Draws which `PLACES` voxels of a larger class are kept.

    Raises
    ------
    OSError
        The disk is full, or cannot be written.
    """
    places_by_class = [] if case.mask is None else [_places(case.mask, of, rng) for of in range(1, len(case.counts))]
    mask = b"" if case.mask is None else _bytes(case.mask, "u1")
    parts = [_bytes(case.values, "<u2"), mask, *(_bytes(class_places, "<i2") for class_places in places_by_class)]
    digest = blake3()
    for part in parts:
        digest.update(part)
    head: Mapping[str, Any] = {
        "format": _FORMAT,
        "shape": case.values.shape,
        "masked": case.mask is not None,
        "counts": case.counts.tolist(),
        "size": case.grid.shape,
        "darkest": int(case.values.min()),
        "decoder": case.decoder,
        "facts": case.facts,
        "digest": case.digest.hex(),
        "maskDigest": "" if case.mask is None else mask_digest(case.mask).tobytes().hex(),
        "places": [len(class_places) for class_places in places_by_class],
        "check": digest.hexdigest(),
    }
    with (
        replacing(path) as partial,
        os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file,
    ):
        file.write(json.dumps(head).encode() + b"\n")
        for part in parts:
            file.write(part)
    return StoredVolume(path)


def mask_digest(mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return what stands for a mask among labels, uint8 [`MASK_DIGEST`]."""
    return np.frombuffer(blake3(_bytes(mask, "u1")).digest(MASK_DIGEST), np.uint8)


def _places(mask: NDArray[np.uint8], of: int, rng: np.random.Generator) -> NDArray[np.int16]:
    """Return some voxels of a class, int16 [n, 3]."""
    every = np.flatnonzero(mask == of)
    sampled = every if len(every) <= PLACES else np.sort(rng.choice(every, PLACES, replace=False))
    return np.stack(np.unravel_index(sampled, mask.shape), 1).astype(np.int16)


def _bytes(values: NDArray[Any], dtype: str) -> memoryview:
    """Return the bytes of an array."""
    return np.ascontiguousarray(values, dtype).reshape(-1).view(np.uint8).data
