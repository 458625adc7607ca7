"""Views of images that a frozen encoder has seen: each is encoded once, and what trains works on embeddings."""

from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from numpy.typing import NDArray
from torch import Tensor

from anchorage.api.model import ModelSpec, network_called
from anchorage.learning.data.augmentation import Augmentation
from anchorage.learning.data.stored_pictures import Pictures
from anchorage.learning.data.volumes import StoredVolumes
from anchorage.learning.draws import Draws
from anchorage.learning.kept_embeddings import KeptEmbeddings
from anchorage.learning.method import TrainingMethod
from anchorage.learning.model_hooks import augmentation_of
from anchorage.learning.network import Network
from anchorage.learning.views import EVALUATION_BATCH, Views
from anchorage.learning.volume_views import VolumeViews

_SEEN_BY = {"network", "image_size", "channels", "fit", "intensity", "augmentation"}
"""Fields of the model that decide what an encoder makes of an image, beside its weights."""

ENCODED_AT_ONCE = {"cpu": 16, "cuda": EVALUATION_BATCH}
"""Images per forward pass of an encoder, by the device: never fewer, because another shape may be calculated otherwise, so that an image's
embedding would depend on how many are encoded with it. What more of them need in memory on a processor, the system gives anew for each layer."""

KEPT_VIEWS = 4
"""Weak, and strong, views of an image that are drawn once and chosen from ever after."""


class EncodedViews(Views):
    """As `Views`, but embeddings float32 [b, width] in the place of images, and augmented views from `KEPT_VIEWS` that are drawn once.

    What a supervised loss sees is the plain image. All images are encoded when the first of a kind is asked for, in eval mode.

    Parameters
    ----------
    images, augmentation, device
        As `Views` takes them.
    draws : Draws
        Generators of the run.
    model : ModelSpec
        What it says of network and images.
    embedding_cache : KeptEmbeddings, optional
        What other runs made of these images.
    """

    def __init__(
        self,
        images: Pictures,
        augmentation: Augmentation,
        device: torch.device,
        draws: Draws,
        model: ModelSpec,
        embedding_cache: KeptEmbeddings | None = None,
    ) -> None:
        super().__init__(images, augmentation, device)
        self._draws, self._lock, self._model, self._shelf = draws, Lock(), model, embedding_cache
        self._network: Network | None = None
        self._front: tuple[bytes, ...] = ()
        self._by_kind: dict[str, Tensor] = {}

    def encoded_by(self, network: Network) -> None:
        """Encode with this network's encoder from now on; what was encoded with the same weights is kept."""
        with self._lock:
            self._network = network

    def plain(self, indices: Tensor) -> Tensor:
        """Return embeddings of images as they are."""
        return self._embeddings("plain", 1)[0, indices]

    def learnt(self, indices: Tensor, generator: torch.Generator) -> Tensor:
        """Return embeddings of images as they are."""
        return self.plain(indices)

    def weak(self, indices: Tensor, generator: torch.Generator) -> Tensor:
        """Return embeddings of one of the weak views of each image."""
        return self._select("weak", indices, generator)

    def strong(self, indices: Tensor, generator: torch.Generator) -> Tensor:
        """Return embeddings of one of the strong views of each image."""
        return self._select("strong", indices, generator)

    def _select(self, kind: str, indices: Tensor, generator: torch.Generator) -> Tensor:
        which = torch.randint(KEPT_VIEWS, (len(indices),), generator=generator)
        return self._embeddings(kind, KEPT_VIEWS)[which.to(self.device), indices]

    def _embeddings(self, kind: str, views: int) -> Tensor:
        """Return the embeddings of all images, float32 [views, n, width]."""
        with self._lock:
            assert self._network is not None, "encoded_by was called"
            if self._network.front != self._front:
                self._by_kind, self._front = {}, self._network.front
            if kind not in self._by_kind:
                self._by_kind[kind] = self._make(self._network, kind, views)
            return self._by_kind[kind]

    def _make(self, network: Network, kind: str, views: int) -> Tensor:
        """Return the embeddings of all images, float32 [views, n, width]; those that other runs made are taken from them."""
        shape = (views, len(self), network.width)

        def encode_batches(positions: NDArray[np.int64]) -> Iterator[Tensor]:
            for view in range(views):
                view_positions = positions[positions // len(self) == view] % len(self)
                yield from self._encode(network, kind, view, view_positions)

        if self._shelf is None or not len(self):
            batches = encode_batches(np.arange(views * len(self)))
            return torch.cat([torch.empty((0, network.width), device=self.device), *batches]).view(shape)
        view_settings = self._model.model_dump(mode="json", include=_SEEN_BY)
        names = self._names(kind, views)
        return self._shelf.of(network.encoder, network.width, self.device, view_settings, names, encode_batches).view(
            shape
        )

    def _names(self, kind: str, views: int) -> list[bytes]:
        """Return what tells the views from others, view by view: the image, and of drawn ones all that is drawn for at once."""
        images = self.content()
        digests = [blake3(f"{images.dtype}".encode()).update(image.tobytes()).digest(16) for image in images]
        if kind == "plain":
            return digests
        party = f"{kind}/{self._draws.seed}/{self._draws.silo}/".encode() + b"".join(digests)
        part = blake3(party).digest(16)
        places = np.arange(views * len(self)).reshape(-1, 1)
        return [blake3(part + place.tobytes()).digest(16) for place in places]

    def _encode(self, network: Network, kind: str, view: int, wanted: NDArray[np.int64]) -> Iterator[Tensor]:
        """Yield embeddings [b, width] of a view of some of the images, which are in ascending order."""
        if kind == "plain":
            for batch in self.over(wanted):
                yield self._by_encoder(network, self.pixels(batch))
            return
        drawn = self._draws.torch(f"{kind} views/{view}")
        view_methods: dict[str, Any] = {"weak": Views.weak, "strong": Views.strong}
        for batch in self.over(np.arange(len(self))):
            view_batch = view_methods[kind](
                self, batch, drawn
            )  # of all, so that the draws of each are the same, whichever are wanted
            chosen = self.to_device(np.flatnonzero(np.isin(batch.cpu().numpy(), wanted)))
            if len(chosen):
                yield self._by_encoder(network, view_batch[chosen])

    def _by_encoder(self, network: Network, images: Tensor) -> Tensor:
        """Return embeddings of images, a fixed number at a time; the last ones are filled up."""
        size, made = ENCODED_AT_ONCE[self.device.type], list[Tensor]()
        with torch.no_grad():
            for part in torch.split(images, size):
                lacking = size - len(part)
                padded_batch = torch.cat([part, part[:1].expand(lacking, *part.shape[1:])]) if lacking else part
                made.append(network.encoder(padded_batch)[: len(part)])
        return torch.cat(made)


def views_of(
    images: Pictures,
    model: ModelSpec,
    method: TrainingMethod,
    device: torch.device,
    draws: Draws,
    embeddings: Path | None = None,
) -> Views:
    """Return the views of a party's images: encoded once where the encoder is frozen and no piece of the method works on pixels.

    `embeddings` is a folder where they are kept for other runs.
    """
    if isinstance(images, StoredVolumes):
        assert model.volume is not None, "the model is of volumes"
        return VolumeViews(images, model.volume, device)
    augmentation = augmentation_of(model.augmentation)
    pixels = network_called(model.network).gives_maps or any(piece.needs_pixels for piece in method.pieces)
    if model.trainable != "Head" or model.lora is not None or pixels:
        return Views(images, augmentation, device)
    embedding_cache = None if embeddings is None else KeptEmbeddings(embeddings)
    return EncodedViews(images, augmentation, device, draws, model, embedding_cache)
