"""MAFL's images that are shared: every silo uploads means of its images once, the server pools them and sends the pool down (METHODS.md 6.4)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import MEANS_TOO_LARGE
from anchorage.api.method import InputMixing
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.transport.messages import Announcement, SideChannel

POOLED = ("Naive", "FedMix", "Global")
"""Kinds of input mixing that need images of other silos."""
WANTED = "means_wanted"
"""Down, uint8 [1]: whether the silo's images shall come with its next update."""
DIGEST = "means_digest"
"""Down, uint8 [32]: BLAKE3 of the pool. Up: that of the pool which the silo keeps."""
LARGEST_POOL_BYTES = 30 * 2**20
"""What a task can carry beside other small arrays."""

Images = tuple[NDArray[np.float32], NDArray[np.float32]]


def channel_names(slot: InputMixing) -> tuple[str, str]:
    """Return the names under which images and labels travel: raw ones have names of their own, which a hospital's policy refuses."""
    return ("raw_images", "raw_labels") if slot.type == "Global" else ("mean_images", "mean_labels")


class MeanImages(RoundMemory):
    """Pools the silos' images, in an order that tells nothing of whose they are, and sends a silo only what it does not have.

    Reads, from a silo that was asked for them, images float32 [g, channels, H, W] and label rows float32 [g, C] that sum to 1. A silo that
    keeps the pool says so by its digest, and is not sent it again until it changes.

    Parameters
    ----------
    slot : InputMixing
        Of a type in `POOLED`.
    num_classes : int
        Classes C.
    """

    def __init__(self, slot: InputMixing, num_classes: int) -> None:
        self._names, self._num_classes = channel_names(slot), num_classes
        self._images: dict[str, Images] = {}
        self._held: dict[str, bytes] = {}
        self._pool: SideChannel = {}

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Take the images that were asked for; those of another shape or dtype, or not finite, are left out.

        Raises
        ------
        AnchorageError
            The pool has grown too large to be sent.
        """
        before = len(self._images)
        for silo, announcement in announcements.items():
            found = self._read(announcement.side)
            if silo not in self._images and found is not None:
                self._images[silo] = found
            self._held[silo] = announcement.side[DIGEST].tobytes() if DIGEST in announcement.side else b""
        if len(self._images) > before:
            self._fill_pool()

    def _read(self, side: SideChannel) -> Images | None:
        images, labels = (side.get(name) for name in self._names)
        if images is None or labels is None or images.dtype != np.float32 or labels.dtype != np.float32:
            return None
        others = next(iter(self._images.values()), (images, labels))[0]
        fits = images.ndim == 4 and images.shape[1:] == others.shape[1:] and len(images) > 0
        if not fits or labels.shape != (len(images), self._num_classes):
            return None
        rows = labels.sum(1, dtype=np.float64)
        sound = np.isfinite(images).all() and (labels >= 0).all() and (abs(rows - 1) <= 1e-6).all()
        return (images, labels) if sound else None

    def _fill_pool(self) -> None:
        images, labels = (np.concatenate([own[part] for own in self._images.values()]) for part in (0, 1))
        nbytes = images.nbytes + labels.nbytes
        if nbytes > LARGEST_POOL_BYTES:
            found = f"the pool of {len(images)} images of {len(self._images)} silos has {nbytes} bytes, more than {LARGEST_POOL_BYTES}"
            raise AnchorageError(MEANS_TOO_LARGE, f"{found}; raise inputMixing.groupSize")
        rows = sorted(range(len(images)), key=lambda i: blake3(images[i].tobytes() + labels[i].tobytes()).digest())
        images, labels = images[rows], labels[rows]
        digest = blake3(images.tobytes() + labels.tobytes()).digest()
        self._pool = {DIGEST: np.frombuffer(digest, np.uint8), self._names[0]: images, self._names[1]: labels}

    def side_channel(self, silo: str = "") -> SideChannel:
        """Return whether this silo's images are wanted, the pool's digest, and the pool itself where the silo does not have it."""
        wanted = {WANTED: np.array([silo not in self._images], np.uint8)}
        if self._pool and self._held.get(silo, b"") == self._pool[DIGEST].tobytes():
            return {**wanted, DIGEST: self._pool[DIGEST]}
        return {**wanted, **self._pool}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return every silo's images and what it keeps."""
        images = {f"{name}/{silo}": own[i] for silo, own in self._images.items() for i, name in enumerate(self._names)}
        return images | {f"held/{silo}": np.frombuffer(held, np.uint8) for silo, held in self._held.items() if held}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take what `state` returned."""
        named = [key.partition("/") for key in state]
        self._held = {silo: state[f"held/{silo}"].tobytes() for kind, _, silo in named if kind == "held"}
        first, second = self._names
        silos = [silo for kind, _, silo in named if kind == first]
        self._images = {silo: (state[f"{first}/{silo}"], state[f"{second}/{silo}"]) for silo in silos}
        if self._images:
            self._fill_pool()
