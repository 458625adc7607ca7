"""Embeddings of a frozen encoder on disk, for runs that see the same images: the seeds and methods of a study encode each image once."""

import json
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from numpy.typing import NDArray
from torch import Tensor

from anchorage import __version__
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import LEARNER_STATE_UNWRITABLE


class KeptEmbeddings:
    """Embeddings by everything that decides their bits: weights, pixels, views, and what calculates.

    A file that is not whole is made again; files may be removed at any time.

    Parameters
    ----------
    folder : Path
        Gets a file per set of images and kind of view; made when something is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(
        self,
        encoder: torch.nn.Module,
        images: NDArray[Any],
        device: torch.device,
        views: Mapping[str, object],
        encoded: Callable[[], Tensor],
    ) -> Tensor:
        """Return what was kept, mapped, or what `encoded` returns, which is kept.

        Parameters
        ----------
        encoder : Module
            Its weights are part of the name.
        images : ndarray, shape [n, ...]
            What tells the images from others, as `anchorage.learning.views.Views.content` returns it.
        device : torch.device
            Where it calculates, which is part of the name.
        views : mapping of str to anything that JSON can hold
            Which views of them: network, augmentation, kind, generators.
        encoded : callable
            Makes embeddings float32, shape [views, n, width].

        Raises
        ------
        AnchorageError
            LEARNER_STATE_UNWRITABLE: the folder cannot be written.
        """
        file = self._folder / f"{_name(encoder, images, device, views)}.npy"
        found = _read(file, len(images))
        if found is not None:
            return found.to(device)
        made = encoded()
        partial = file.with_suffix(f".{secrets.token_hex(4)}.partial")  # lanes may make the same one at once
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                with partial.open("wb") as whole:
                    np.save(whole, made.cpu().numpy(), allow_pickle=False)
                partial.replace(file)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:
            message = f"embeddings cannot be kept in {self._folder}: {error.strerror or error}"
            raise AnchorageError(LEARNER_STATE_UNWRITABLE, message) from error
        return made


def _name(encoder: torch.nn.Module, images: NDArray[Any], device: torch.device, views: Mapping[str, object]) -> str:
    calculates = [__version__, torch.__version__, device.type, torch.backends.cpu.get_cpu_capability()]
    digest = blake3(json.dumps([calculates, views, list(images.shape)], sort_keys=True).encode())
    arrays = {name: tensor.cpu().numpy() for name, tensor in encoder.state_dict().items()}
    for name, array in (*arrays.items(), ("images", images)):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest(16)


def _read(file: Path, count: int) -> Tensor | None:
    """Map a file; None where there is none, or it is not whole."""
    try:
        kept = np.load(file, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if kept.dtype != np.float32 or kept.ndim != 3 or kept.shape[1] != count:
        return None
    return torch.from_numpy(kept)
