"""The network that is trained: an encoder, a classifier, and heads beside it."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Self

import torch
from torch import Tensor, nn

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import NETWORK_UNUSABLE
from anchorage.api.model import LowRank
from anchorage.learning.low_rank import Adapters
from anchorage.transport.tensors.layout import ADAPTER_SCALE, BUFFERS, LORA

ENCODER = "encoder."
"""Prefix of the encoder's tensors."""

PROJECTION = "projection."
"""Prefix of the tensors of what stands between encoder and classifier."""

CLASSIFIER = "classifier."
"""Prefix of the classifier's tensors."""

LOCAL_PART = "local."
"""Prefix of the tensors of the head that never leaves a silo."""

TRAVELLING: Mapping[torch.dtype, str] = {torch.float32: "F32", torch.int64: "I64"}
"""Dtypes of the tensors that a network may have, with their names in a layout."""

EMBEDDED = 2
"""Dimensions of a batch of embeddings; one of images has four."""

_STILL = "stays_as_it_is"
"""Attribute of a module that is frozen."""


class Network(nn.Module):
    """An encoder with a classifier, and heads that pieces of a method add.

    Parameters
    ----------
    encoder : Module
        Images [n, channels, H, W] to embeddings [n, width].
    width : int
        Of the embeddings.
    classifier : Module
        What it sees [n, d] to logits [n, C].
    projection : Module, optional
        What stands between encoder and classifier: embeddings [n, width] to [n, d].
    gives_maps : bool
        Whether encoder (`anchorage.learning.networks.unets`) and classifier make maps [n, C, H, W] of images [n, channels, H, W].
    """

    def __init__(
        self,
        encoder: nn.Module,
        width: int,
        classifier: nn.Module,
        *,
        projection: nn.Module | None = None,
        gives_maps: bool = False,
    ) -> None:
        super().__init__()
        self.encoder, self.width, self.gives_maps = encoder, width, gives_maps
        self.frozen: frozenset[str] = frozenset()
        """Names of the tensors that do not train."""
        self.front: tuple[bytes, ...] = ()
        """Digests of the frozen tensors' chunks that were loaded last (`Manifest.fixed`); empty where they are as drawn."""
        self.optional: tuple[str, ...] = (LORA, LOCAL_PART)
        """Prefixes of the tensors that a model which is loaded may lack: they stay as they are."""
        self.resizable: tuple[str, ...] = ()
        """Prefixes of the tensors of heads that begin anew where a file has them in other shapes."""
        self.projection = nn.Identity() if projection is None else projection
        self.classifier = classifier
        self.lora: Adapters | None = None
        self._server_heads: tuple[str, ...] = ()

    def add_head(
        self, name: str, head: nn.Module, *, optional: bool = False, resizable: bool = False, at_silos: bool = True
    ) -> None:
        """Put a head beside the classifier, before weights are drawn or with its own.

        Parameters
        ----------
        name : str
            Begins the names of its tensors; ``local``: it never leaves a silo.
        head : Module
            It may have any form; of a map of embeddings (`anchorage.learning.heads.EmbeddingHead`) pictures can be drawn.
        optional : bool
            Whether a model that is loaded may lack it.
        resizable : bool
            Whether it begins anew where a file has it in another shape; else such a file is refused.
        at_silos : bool
            Whether silos train it.
        """
        self.add_module(name, head)
        if optional:
            self.optional += (f"{name}.",)
        if resizable:
            self.resizable += (f"{name}.",)
        if not at_silos:
            self._server_heads += (f"{name}.",)

    def head(self, name: str) -> nn.Module:
        """Return the head of a name, which a piece of the method added."""
        head = self.find_head(name)
        assert head is not None, f"the network has no {name}"
        return head

    def find_head(self, name: str) -> nn.Module | None:
        """Return the head of a name; None where no piece added it."""
        return self._modules.get(name)

    def silo_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield what silos train and send, by name: without frozen tensors, heads of the server, and the head that stays at the silo."""
        left_out = (*self._server_heads, LOCAL_PART)
        return ((n, p) for n, p in self.named_parameters() if p.requires_grad and not n.startswith(left_out))

    @property
    def linear(self) -> nn.Linear:
        """The classifier, where it is a linear map, as that of classes is."""
        assert isinstance(self.classifier, nn.Linear), "the task's classifier is linear"
        return self.classifier

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return next(self.parameters()).device

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, C], or of maps [n, C, H, W]."""
        logits: Tensor = self.classifier(self.represent(x))
        return logits

    def represent(self, x: Tensor) -> Tensor:
        """Return what the classifier sees [n, d]: the encoder's output, behind projection head, hidden layer or components where there are some.

        Of an encoder of maps it is the map, [n, map_width, H, W].
        """
        if self.gives_maps:
            features: Tensor = self.encoder(x)
            return features
        z: Tensor = self.projection(self.embed(x))
        return z

    def embed(self, x: Tensor) -> Tensor:
        """Return the embeddings [n, width] of images; of what a frozen encoder made of them before (`EncodedViews`) those themselves."""
        if self.gives_maps:
            vector: Tensor = self.encoder.embed(x)  # type: ignore[operator]
            return vector
        if x.ndim == EMBEDDED and is_frozen(self.encoder):
            return x
        embedded: Tensor = self.encoder(x) if self.lora is None else self.lora.embed(self.encoder, x)
        return embedded

    def train(self, mode: bool = True) -> Self:
        """Set the mode of what trains; frozen modules stay in eval mode."""
        super().train(mode)
        for module in self.modules():
            if is_frozen(module):
                module.eval()
        return self

    def freeze(self, trainable: str) -> None:
        """Keep tensors of the encoder as they are in training: no gradient, no optimiser state, no counting of statistics.

        Parameters
        ----------
        trainable : str
            As `ModelSpec.trainable`.

        Raises
        ------
        AnchorageError
            NETWORK_UNUSABLE: the encoder has no tensor of such a name.
        """
        if trainable == "All":
            return
        names = [name for name in self.state_dict() if name.startswith(ENCODER)]
        patterns = [] if trainable == "Head" else trainable.split(",")
        for pattern in patterns:
            if not any(_matches(name, pattern) for name in names):
                modules = ", ".join(sorted({name.rsplit(".", 1)[0] for name in names})[:20])
                message = f"found trainable {pattern}, but the encoder has no such tensor; it has {modules}"
                raise AnchorageError(NETWORK_UNUSABLE, message)
        self.frozen = frozenset(n for n in names if not any(_matches(n, pattern) for pattern in patterns))
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name not in self.frozen)
        for path, module in self.encoder.named_modules(prefix=ENCODER.removesuffix(".")):
            state_names = [f"{path}.{name}" for name in module.state_dict()]
            counted = f"{path}.{BUFFERS[0]}"
            setattr(
                module, _STILL, (bool(state_names) and self.frozen.issuperset(state_names)) or counted in self.frozen
            )
        self.train(self.training)

    def adapt(self, lora: LowRank, seed: int) -> None:
        """Put low-rank adapters on the encoder's frozen weights, drawn from the run's seed. Raises as `Adapters`."""
        self.lora = Adapters(self.encoder, ENCODER, self.frozen, lora, seed)
        self.frozen |= {LORA + ADAPTER_SCALE}

    def smallest_batch(self, image_size: int) -> int:
        """Return 2 where a batch normalisation sees a 1x1 map, of which one image has no variance, else 1 (methods reference, 6.1).

        An encoder that does not say how much smaller its smallest map is than the image is taken to have such a map.
        """
        if is_frozen(self.encoder):
            return 1
        reduction = getattr(self.encoder, "reduction", image_size)
        return 2 if -(-image_size // reduction) <= 1 else 1


def is_frozen(module: nn.Module) -> bool:
    """Return whether a module of a network stays as it is in training (`Network.freeze`)."""
    return bool(getattr(module, _STILL, False))


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")
