"""Networks of timm, PyTorch Image Models (docs/networks.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import NETWORK_UNUSABLE
from anchorage.api.mistakes import suggest
from anchorage.api.piece import piece
from anchorage.learning.networks.stems import SMALL, patch_side
from anchorage.pieces.slots import Network

if TYPE_CHECKING:
    from torch import nn


@piece("timm/")
class Timm(Network):
    """A network of timm by timm's name, without the tag of its weights."""

    package: ClassVar[str] = "timm"

    def encoder(self, channels: int, side: int) -> nn.Module:
        """Return the encoder.

        Raises
        ------
        AnchorageError
            NETWORK_UNUSABLE: timm has no such network, or it cannot take these images.
        """
        import timm

        from anchorage.learning.networks.zoo import checked_encoder

        if not timm.is_model(self.member):
            detail = f"timm {timm.__version__} has no network {self.member}, {suggest(self.member, timm.list_models())}"
            raise AnchorageError(NETWORK_UNUSABLE, f"{detail}timm.list_models() names all")
        return checked_encoder(self.name + self.member, lambda: self._build(channels, side), channels, side)

    def _build(self, channels: int, side: int) -> nn.Module:
        import timm
        import torch

        from anchorage.learning.networks.zoo import first_convolution, fit_stem

        known = timm.get_pretrained_cfg(self.member)
        if known is None or not known.fixed_input_size:
            network: nn.Module = timm.create_model(self.member, in_chans=channels)
            fit_stem(network, channels, side)
            return network
        sizes: dict[str, Any] = {"img_size": side}
        if side < SMALL:
            with torch.device("meta"):
                first = first_convolution(timm.create_model(self.member))
            if first.kernel_size == first.stride:
                sizes["patch_size"] = patch_side(first.kernel_size[0], side)
        fixed: nn.Module = timm.create_model(self.member, in_chans=channels, **sizes)
        return fixed
