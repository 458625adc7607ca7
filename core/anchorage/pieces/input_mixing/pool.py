"""Images that are shared: every silo uploads means of its images once, the server pools them and sends the pool down (methods reference, 6.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import PROTOCOL_REFUSED
from anchorage.api.errors.learning import MODEL_MISMATCH
from anchorage.api.fact import Fact
from anchorage.api.piece import AuxiliaryArray, Need
from anchorage.api.task import Task
from anchorage.pieces.input_mixing.mean_images import ALONE, MIB, WANTED, MeanImages, too_large
from anchorage.pieces.input_mixing.mixed_inputs import MixedInputs, Others, mixed_loss

if TYPE_CHECKING:
    from torch import Tensor, nn

    from anchorage.learning.local_training import Loss
    from anchorage.learning.silo_round import SiloRound, Work


class Pooled(MixedInputs):
    """Mixes with images of other silos, from a pool that grows from round to round."""

    names: ClassVar[tuple[str, str]] = ("mean_images", "mean_labels")
    """Under which images and labels travel."""

    maximum_pool_mib: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        256,
        alias="maximumPoolMiB",
        description="Maximum size in MiB of the pool of images from all silos, which every silo receives. A larger pool ends the run; "
        "raise it, or `groupSize` for mean images.",
    )

    def groups(self, silo_round: SiloRound) -> list[NDArray[np.int64]]:
        """Return the positions of the labelled images whose means leave the silo."""
        raise NotImplementedError

    def needs(self) -> Sequence[Need]:
        """Need whole rounds."""
        detail = f"found Asynchronous, but the pool of images that {self.name} mixes with is of whole rounds"
        rounds = Need(
            Fact.ROUNDS, f"{detail}; set Synchronous", failure=PROTOCOL_REFUSED, path=("spec", "protocol", "mode")
        )
        return (*super().needs(), rounds)

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return the pool, and the silo's part of it."""
        images, labels = self.names
        return (
            AuxiliaryArray(WANTED, "[1] uint8", "whether the silo's images shall come with its update"),
            AuxiliaryArray(ALONE, "[1] uint8", "that the silo shall only send its images now, and train afterwards"),
            AuxiliaryArray(images, "[g, channels, H, W] float32", "the pool: all silos' images", large=True),
            AuxiliaryArray(labels, "[g, C] float32", "their soft labels", large=True),
            AuxiliaryArray(images, "[g, channels, H, W] float32", "the silo's images, once", up=True, large=True),
            AuxiliaryArray(labels, "[g, C] float32", "their soft labels", up=True, large=True),
        )

    def memory(self, task: Task, seed: int) -> MeanImages:
        """Pool the silos' images."""
        return MeanImages(self.names, len(task.outputs), self.maximum_pool_mib * MIB)

    def objective(self, silo_round: SiloRound) -> Work:
        """Return the losses of mixed images; before the first round, only the silo's own images for the pool."""
        from anchorage.learning.silo_round import Work

        if not silo_round.auxiliary_data.get(ALONE, np.zeros(1)).any():
            return super().objective(silo_round)
        count = len(silo_round.images.labelled)
        samples = {"train": count, "labelled": count, "unlabelled": len(silo_round.images.unlabelled)}
        if count < 2:  # one image has no mean that hides it
            return Work(iter(()), 0, samples)
        groups = self.groups(silo_round)
        sent = self.sent(silo_round, groups)
        return Work(iter(()), 0, {**samples, "smallest_group": min(map(len, groups))}, auxiliary_data=lambda: sent)

    def others(self, silo_round: SiloRound) -> tuple[Others | None, Mapping[str, Any], Mapping[str, int]]:
        """Return the pool; the images of a silo that has not sent any go up with its update, of a round in which it trains once."""
        others = _pool(silo_round, self.names)
        wanted = silo_round.auxiliary_data.get(WANTED, np.zeros(1)).any() and not silo_round.repeated
        if not wanted or len(silo_round.images.labelled) < 2:
            return others, {}, {}
        groups = self.groups(silo_round)
        return others, self.sent(silo_round, groups), {"smallest_group": min(map(len, groups))}

    def sent(self, silo_round: SiloRound, groups: list[NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
        """Return the mean image, normalised and not augmented, and the mean label of every group.

        Raises
        ------
        AnchorageError
            They alone are larger than the pool may be.
        """
        import torch

        images, model, most = silo_round.images, silo_round.run.model, self.maximum_pool_mib * MIB
        nbytes = 4 * len(groups) * (model.channels * model.image_size**2 + model.num_outputs)
        if nbytes > most:
            raise too_large(f"{len(groups)} images of {model.image_size} x {model.image_size} pixels", nbytes, most)
        indices, classes = [images.labelled[group] for group in groups], torch.eye(model.num_outputs)
        means = means_of(lambda group: images.views.plain(images.views.to_device(group)), indices)
        labels = means_of(lambda group: classes[torch.from_numpy(images.labels[group])], indices)
        return dict(zip(self.names, (means.float().cpu().numpy(), labels.float().numpy()), strict=True))

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
        return self.mixture(network, loss, images, labels, *others.draw(drawn, self.drawn_for(len(images))))

    def drawn_for(self, batch: int) -> int:
        """Return how many of the pool's images a batch of so many is mixed with: one."""
        return 1

    def mixture(
        self, network: nn.Module, loss: Loss, images: Tensor, labels: Tensor, foreign: Tensor, soft: Tensor
    ) -> Tensor:
        """Return the loss of a batch mixed with foreign images float [g, ...] and their soft labels float [g, C]."""
        return mixed_loss(network, loss, images, labels, foreign, soft, float(self.share))


def means_of(rows: Callable[[NDArray[np.int64]], Tensor], groups: list[NDArray[np.int64]]) -> Tensor:
    """Return the mean over every group of what `rows` gives for its members, float64 [groups, ...] (KAT-J2)."""
    import torch

    return torch.stack([rows(group).double().mean(0) for group in groups])


def _pool(silo_round: SiloRound, names: tuple[str, str]) -> Others | None:
    """Return the pool that came behind the model; None without one."""
    import torch

    if any(name not in silo_round.auxiliary_data for name in names):
        return None
    model, (images, labels) = silo_round.run.model, (silo_round.auxiliary_data[name] for name in names)
    shape = (model.channels, model.image_size, model.image_size)
    if images.shape[1:] != shape or labels.shape != (len(images), model.num_outputs):
        message = (
            f"the images to mix with are {images.shape[1:]} with {labels.shape[1:]} classes, the model takes {shape}"
        )
        raise AnchorageError(MODEL_MISMATCH, message)
    device = silo_round.images.views.device
    return Others(*(torch.from_numpy(array.copy()).to(device) for array in (images, labels)))
