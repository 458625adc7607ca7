"""The server's pool of the silos' images, on its disk (methods reference, 6.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import MEANS_TOO_LARGE
from anchorage.api.errors.rounds import WRONG_LAYOUT
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.transport.messages import Announcement, AuxiliaryData
from anchorage.transport.tensors.chunks import CHUNK_BYTES, Manifest
from anchorage.transport.tensors.large_arrays import LargeArrays
from anchorage.transport.tensors.layout import Layout, TensorEntry

WANTED = "means_wanted"
"""Down, uint8 [1]: whether the silo's images shall come with its next update."""
ALONE = "means_alone"
"""Down, uint8 [1]: that the silo shall send its images and nothing else, and train in the next task."""
MIB = 1 << 20
_DIGEST_BYTES = 16


class MeanImages(RoundMemory):
    """Pools the silos' images, in an order that tells nothing of whose they are, in a file that every silo is sent.

    Reads, from a silo that was asked for them, images float32 [g, channels, H, W] and label rows float32 [g, C] that sum to 1. In memory are
    only a digest per image and one block of rows at a time.

    Parameters
    ----------
    names : pair of str
        Under which images and labels travel.
    num_classes : int
        Classes C.
    most_bytes : int
        Largest pool.
    """

    def __init__(self, names: tuple[str, str], num_classes: int, most_bytes: int) -> None:
        self._names, self._num_classes, self._most_bytes = names, num_classes, most_bytes
        self.takes = frozenset(names)
        self._sent: dict[str, int] = {}
        self._new: dict[str, LargeArrays] = {}
        self._pool: LargeArrays | None = None
        self._stored: tuple[Layout, Manifest] | None = None

    @property
    def gathers_first(self) -> bool:  # type: ignore[override]
        """Whether no silo has sent images yet: they all do before the first local training (methods reference, 6.4)."""
        return not self._sent

    def first_auxiliary(self) -> AuxiliaryData:
        """Ask for images and for nothing else."""
        return {WANTED: np.array([1], np.uint8), ALONE: np.array([1], np.uint8)}

    def refusal(self, announced: Mapping[str, TensorEntry]) -> AnchorageError | None:
        """Return why a silo's images are not taken: for their form, or because they alone are more than the pool may have."""
        if not announced:
            return None
        images, labels = (announced.get(name) for name in self._names)
        count = images.shape[0] if images is not None and len(images.shape) == 4 else 0
        is_sound = images is not None and labels is not None and images.dtype == labels.dtype == "F32" and count > 0
        if not is_sound or images is None or labels is None or labels.shape != (count, self._num_classes):
            array_shapes = {name: (entry.dtype, entry.shape) for name, entry in announced.items()}
            return AnchorageError(
                WRONG_LAYOUT, f"{array_shapes} are no images with a row of {self._num_classes} classes each"
            )
        if self._stored is not None and images.shape[1:] != self._stored[0].by_name[self._names[0]].shape[1:]:
            return AnchorageError(WRONG_LAYOUT, f"the images are {images.shape[1:]}, unlike those of the pool")
        nbytes = images.nbytes + labels.nbytes
        return too_large(f"{count} images", nbytes, self._most_bytes) if nbytes > self._most_bytes else None

    def receive(self, silo: str, arrays: LargeArrays) -> None:
        """Take the images that were asked for; where one is not finite, or a label's shares are none, all of them are left out."""
        others = next(iter(self._new.values()), arrays)
        first = self._names[0]
        alike = arrays.layout.by_name[first].shape[1:] == others.layout.by_name[first].shape[1:]
        if silo not in self._sent and alike and all(_sound(*block) for block in self._blocks(arrays)):
            self._new[silo] = arrays

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Add to the pool what was received.

        Raises
        ------
        AnchorageError
            The pool would be larger than the document allows, or the disk is full.
        """
        if not self._new:
            return
        counts = {silo: arrays.layout.by_name[self._names[0]].shape[0] for silo, arrays in self._new.items()}
        pool = self.behind()
        self._fill([*([pool] if pool is not None else []), *self._new.values()], len(self._sent) + len(counts))
        self._sent |= counts
        self._new = {}

    def _fill(self, parts: Sequence[LargeArrays], silos: int) -> None:
        """Write the rows of all parts into a new file, sorted by their digests."""
        first, second = self._names
        digests = [
            blake3(image.tobytes() + label.tobytes()).digest()
            for part in parts
            for block in self._blocks(part)
            for image, label in zip(*block, strict=True)
        ]
        shape, count = parts[0].layout.by_name[first].shape[1:], len(digests)
        layout = Layout.of([(first, "F32", (count, *shape)), (second, "F32", (count, self._num_classes))])
        if layout.nbytes > self._most_bytes:
            raise too_large(f"the pool of {count} images of {silos} silos", layout.nbytes, self._most_bytes)
        ranks = np.argsort(np.array(sorted(range(count), key=digests.__getitem__)))

        def pieces() -> Iterator[tuple[int, bytes]]:
            rows = iter(ranks.tolist())
            for part in parts:
                for images, labels in self._blocks(part):
                    for image, label in zip(images, labels, strict=True):
                        rank = next(rows)
                        for entry, row in ((layout.by_name[first], image), (layout.by_name[second], label)):
                            yield entry.offset + rank * row.nbytes, row.tobytes()

        source = self.large.write(self.slot, layout, pieces())
        self._pool, self._stored = LargeArrays(layout, source), (layout, source.manifest)

    def _blocks(self, arrays: LargeArrays) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Yield images and labels, of a chunk's size at a time."""
        first, second = self._names
        entry = arrays.layout.by_name[first]
        count = entry.shape[0]
        step = max(1, CHUNK_BYTES * count // max(entry.nbytes, 1))
        for start in range(0, count, step):
            stop = min(start + step, count)
            yield arrays.rows(first, start, stop), arrays.rows(second, start, stop)

    def auxiliary_data(self, silo: str = "") -> AuxiliaryData:
        """Return whether this silo's images are wanted."""
        return {WANTED: np.array([silo not in self._sent], np.uint8)}

    def behind(self, silo: str = "") -> LargeArrays | None:
        """Return the pool; None as long as there is none.

        Raises
        ------
        AnchorageError
            After a restart: its file is not as it was written.
        """
        if self._pool is None and self._stored is not None:
            layout, manifest = self._stored
            self._pool = LargeArrays(layout, self.large.read(self.slot, manifest))
        return self._pool

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return which silos have sent how many images, and what the pool's file is."""
        sent: dict[str, NDArray[Any]] = {f"sent/{silo}": np.array(count) for silo, count in self._sent.items()}
        if self._stored is None:
            return sent
        layout, manifest = self._stored
        text, digests = layout.to_json().encode(), b"".join(manifest.digests)
        return sent | {"layout": np.frombuffer(text, np.uint8), "digests": np.frombuffer(digests, np.uint8)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take what `state` returned; the pool's file is read when it is needed."""
        self._sent = {key.removeprefix("sent/"): int(n) for key, n in state.items() if key.startswith("sent/")}
        self._new, self._pool, self._stored = {}, None, None
        if "layout" in state:
            layout, digests = Layout.from_json(state["layout"].tobytes().decode()), state["digests"].tobytes()
            chunks = (digests[i : i + _DIGEST_BYTES] for i in range(0, len(digests), _DIGEST_BYTES))
            self._stored = layout, Manifest(layout.digest, layout.nbytes, tuple(chunks))


def too_large(what: str, nbytes: int, most: int) -> AnchorageError:
    """Return the failure of images that are larger than the document allows."""
    bound = f"maximumPoolMiB of spec.method.inputMixing allows {most / MIB:g} MiB"
    return AnchorageError(MEANS_TOO_LARGE, f"{what} are {nbytes / MIB:.1f} MiB, {bound}; raise it, or groupSize")


def _sound(images: NDArray[np.float32], labels: NDArray[np.float32]) -> bool:
    rows = labels.sum(1, dtype=np.float64)
    return bool(np.isfinite(images).all() and (labels >= 0).all() and (abs(rows - 1) <= 1e-6).all())
