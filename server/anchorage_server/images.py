"""The server's own images: read once, kept apart, and the same as when training began."""

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from anchorage.api.federation import FederationSpec
from anchorage.api.run import HeldOut
from anchorage.engine.store.durable import storage_errors
from anchorage.methods.study import read_images

if TYPE_CHECKING:  # a server that holds no images need not load what reads them
    from anchorage.learning.data import ImageSet

KEY_BYTES = 32


def data_key(state: Path) -> bytes:
    """Return the key of digests of images in this run, drawn at the first call.

    Raises
    ------
    AnchorageError
        The disk is full or not writable.
    """
    file = state / "data-key"
    with storage_errors("keep the key of digests", file):
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists() or file.stat().st_size != KEY_BYTES:
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as out:
                out.write(secrets.token_bytes(KEY_BYTES))
                out.flush()
                os.fsync(handle)
        return file.read_bytes()


def read_server_images(
    spec: FederationSpec, data_root: Path, state: Path, key: bytes, *, begun: bool
) -> "tuple[dict[str, ImageSet], HeldOut | None]":
    """Return the anchors, validation and test images that are there, and what silos are told of those that are scored.

    Parameters
    ----------
    spec : FederationSpec
        Names them.
    data_root : Path
        Folder that claims name folders of.
    state : Path
        Where their fingerprints are kept.
    key : bytes
        As `data_key` returns it.
    begun : bool
        Whether a round is committed, so that they may not change any more.

    Raises
    ------
    AnchorageError
        They cannot be used, are in two parts, or are others than when training began.
    """
    if not spec.server_data:
        return {}, None
    from anchorage.learning.data.fingerprints import Fingerprint
    from anchorage.learning.data.held_out import kept_apart

    read = {
        name: read_images(section, data_root, spec.model_description, spec.seed)
        for name, section in spec.server_data.items()
    }
    treatment = spec.evaluation.on_leakage if spec.evaluation else "Allow"
    images, held_out = kept_apart(read, treatment, key)
    for name, found in images.items():
        file, fingerprint = state / f"images-{name}.json", Fingerprint.of(found, key)
        if begun:
            fingerprint.compare(file, f"the server's {name} images", remedy="restore them, or begin a new run")
        else:
            with storage_errors("keep what the images are", file):
                fingerprint.keep(file)
    return images, held_out
