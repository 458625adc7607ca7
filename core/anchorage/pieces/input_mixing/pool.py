"""Images that are shared: every silo uploads means of its images once, the server pools them and sends the pool down (methods reference, 6.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import PROTOCOL_REFUSED
from anchorage.api.errors.learning import MEANS_TOO_LARGE, MODEL_MISMATCH
from anchorage.api.piece import AuxiliaryArray, Need
from anchorage.api.plan import ROUNDS
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.pieces.input_mixing.mixed_inputs import MixedInputs, Others, mixed_loss
from anchorage.transport.messages import Announcement, AuxiliaryData

if TYPE_CHECKING:
    from torch import Tensor, nn

    from anchorage.learning.local_training import Loss
    from anchorage.learning.silo_round import SiloRound, Work

WANTED = "means_wanted"
"""Down, uint8 [1]: whether the silo's images shall come with its next update."""
ALONE = "means_alone"
"""Down, uint8 [1]: that the silo shall only announce its images, and train in the next task."""
DIGEST = "means_digest"
"""Down, uint8 [32]: BLAKE3 of the pool. Up: that of the pool which the silo keeps."""
LARGEST_POOL_BYTES = 30 * 2**20
"""What a task can carry beside other small arrays."""
LARGEST_UPLOAD_BYTES = 7 * 2**19
"""What an announcement can carry beside other small arrays."""
KEPT = "pool/"
"""Begins the names of the pool among what a silo keeps."""

Images = tuple[NDArray[np.float32], NDArray[np.float32]]


class Pooled(MixedInputs):
    """Mixes with images of other silos, from a pool that grows from round to round."""

    names: ClassVar[tuple[str, str]] = ("mean_images", "mean_labels")
    """Under which images and labels travel."""

    def groups(self, silo_round: SiloRound) -> list[NDArray[np.int64]]:
        """Return the positions of the labelled images whose means leave the silo."""
        raise NotImplementedError

    def needs(self) -> Sequence[Need]:
        """Need whole rounds."""
        found = f"found Asynchronous, but the pool of images that {self.name} mixes with is of whole rounds"
        rounds = Need(ROUNDS, f"{found}; set Synchronous", failure=PROTOCOL_REFUSED, path=("spec", "protocol", "mode"))
        return (*super().needs(), rounds)

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return the pool, and the silo's part of it."""
        images, labels = self.names
        return (
            AuxiliaryArray(WANTED, "[1] uint8", "whether the silo's images shall come with its update"),
            AuxiliaryArray(
                ALONE, "[1] uint8", "that the silo shall only announce its images now, and train afterwards"
            ),
            AuxiliaryArray(DIGEST, "[32] uint8", "BLAKE3 of the pool"),
            AuxiliaryArray(images, "[g, channels, H, W] float32", "the pool: all silos' images"),
            AuxiliaryArray(labels, "[g, C] float32", "their soft labels"),
            AuxiliaryArray(DIGEST, "[32] uint8", "BLAKE3 of the pool that the silo keeps", up=True),
            AuxiliaryArray(images, "[g, channels, H, W] float32", "the silo's images, once", up=True),
            AuxiliaryArray(labels, "[g, C] float32", "their soft labels", up=True),
        )

    def memory(self, num_classes: int, seed: int) -> MeanImages:
        """Pool the silos' images."""
        return MeanImages(self.names, num_classes)

    def objective(self, silo_round: SiloRound) -> Work:
        """Return the losses of mixed images; before the first round, only the silo's own images for the pool."""
        from anchorage.learning.silo_round import Work

        if not silo_round.side.get(ALONE, np.zeros(1)).any():
            return super().objective(silo_round)
        count = len(silo_round.images.labelled)
        samples = {"train": count, "labelled": count, "unlabelled": len(silo_round.images.unlabelled)}
        if count < 2:  # one image has no mean that hides it
            return Work(iter(()), 0, samples)
        groups = self.groups(silo_round)
        sent = group_means(silo_round, groups, self.names)
        return Work(iter(()), 0, {**samples, "smallest_group": min(map(len, groups))}, side=lambda: sent)

    def others(self, silo_round: SiloRound) -> tuple[Others | None, Mapping[str, Any], dict[str, Any], dict[str, int]]:
        """Return the pool; the silo's own images go up with the first update."""
        import torch

        kept, counts = _pool(silo_round, self.names), {}
        sent: dict[str, NDArray[Any]] = {DIGEST: kept[KEPT + DIGEST]} if kept else {}
        if silo_round.side.get(WANTED, np.zeros(1)).any() and len(silo_round.images.labelled) > 1:
            groups = self.groups(silo_round)
            sent |= group_means(silo_round, groups, self.names)
            counts["smallest_group"] = min(map(len, groups))
        if not kept:
            return None, kept, sent, counts
        device = silo_round.images.views.device
        tensors = (torch.from_numpy(kept[KEPT + name].copy()).to(device) for name in ("images", "labels"))
        return Others(*tensors), kept, sent, counts

    def mixed(
        self,
        network: nn.Module,
        loss: Loss,
        images: Tensor,
        labels: Tensor,
        others: Others | None,
        drawn: np.random.Generator,
    ) -> Tensor | None:
        """Return a batch's loss with what is drawn of the pool; None while there is no pool."""
        if others is None:
            return None
        return self.mixture(network, loss, images, labels, *others.drawn(drawn, self.drawn_for(len(images))))

    def drawn_for(self, batch: int) -> int:
        """Return how many of the pool's images a batch of so many is mixed with: one."""
        return 1

    def mixture(
        self, network: nn.Module, loss: Loss, images: Tensor, labels: Tensor, foreign: Tensor, soft: Tensor
    ) -> Tensor:
        """Return the loss of a batch mixed with foreign images float [g, ...] and their soft labels float [g, C]."""
        return mixed_loss(network, loss, images, labels, foreign, soft, float(self.share))


class MeanImages(RoundMemory):
    """Pools the silos' images, in an order that tells nothing of whose they are, and sends a silo only what it does not have.

    Reads, from a silo that was asked for them, images float32 [g, channels, H, W] and label rows float32 [g, C] that sum to 1. A silo that
    keeps the pool says so by its digest, and is not sent it again until it changes.

    Parameters
    ----------
    names : pair of str
        Under which images and labels travel.
    num_classes : int
        Classes C.
    """

    def __init__(self, names: tuple[str, str], num_classes: int) -> None:
        self._names, self._num_classes = names, num_classes
        self._images: dict[str, Images] = {}
        self._held: dict[str, bytes] = {}
        self._pool: AuxiliaryData = {}

    @property
    def gathers_first(self) -> bool:  # type: ignore[override]
        """Whether no silo has sent images yet: they all do before the first local training (methods reference, 6.4)."""
        return not self._images

    def first_auxiliary(self) -> AuxiliaryData:
        """Ask for images and for nothing else."""
        return {WANTED: np.array([1], np.uint8), ALONE: np.array([1], np.uint8)}

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

    def _read(self, side: AuxiliaryData) -> Images | None:
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

    def auxiliary_data(self, silo: str = "") -> AuxiliaryData:
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


def group_means(
    silo_round: SiloRound, groups: list[NDArray[np.int64]], names: tuple[str, str]
) -> dict[str, NDArray[Any]]:
    """Return the mean image, normalised and not augmented, and the mean label of every group.

    Raises
    ------
    AnchorageError
        They are larger than a message may be.
    """
    import torch

    images, model = silo_round.images, silo_round.run.model
    nbytes = 4 * len(groups) * (model.channels * model.image_size**2 + model.num_classes)
    if nbytes > LARGEST_UPLOAD_BYTES:
        found = f"{len(groups)} images of {model.image_size} x {model.image_size} pixels have {nbytes} bytes, more than {LARGEST_UPLOAD_BYTES}"
        raise AnchorageError(MEANS_TOO_LARGE, f"{found}; raise inputMixing.groupSize")
    indices, classes = [images.labelled[group] for group in groups], torch.eye(model.num_classes)
    means = means_of(lambda group: images.views.plain(images.views.to_device(group)), indices)
    labels = means_of(lambda group: classes[torch.from_numpy(images.labels[group])], indices)
    first, second = names
    return {first: means.float().cpu().numpy(), second: labels.float().numpy()}


def means_of(rows: Callable[[NDArray[np.int64]], Tensor], groups: list[NDArray[np.int64]]) -> Tensor:
    """Return the mean over every group of what `rows` gives for its members, float64 [groups, ...] (KAT-J2)."""
    import torch

    return torch.stack([rows(group).double().mean(0) for group in groups])


def _pool(silo_round: SiloRound, names: tuple[str, str]) -> Mapping[str, NDArray[Any]]:
    """Return what came or was kept of the pool that the server speaks of, by the names under which it is kept; empty without one."""
    digest = silo_round.side.get(DIGEST)
    if digest is None:
        return {}
    if any(name not in silo_round.side for name in names):
        kept = {name: array for name, array in silo_round.kept.items() if name.startswith(KEPT)}
        return kept if kept and np.array_equal(kept[KEPT + DIGEST], digest) else {}
    model, (images, labels) = silo_round.run.model, (silo_round.side[name] for name in names)
    shape = (model.channels, model.image_size, model.image_size)
    if images.shape[1:] != shape or labels.shape != (len(images), model.num_classes):
        message = (
            f"the images to mix with are {images.shape[1:]} with {labels.shape[1:]} classes, the model takes {shape}"
        )
        raise AnchorageError(MODEL_MISMATCH, message)
    return {KEPT + "images": images, KEPT + "labels": labels, KEPT + DIGEST: digest}
