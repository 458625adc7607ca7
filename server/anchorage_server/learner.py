"""What happens at the server in each stage: which learner it needs, with which images, and whether the model fits into memory."""

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import MODEL_TOO_LARGE
from anchorage.api.federation import FederationSpec
from anchorage.api.imports import import_large
from anchorage.api.method import ResolvedMethod
from anchorage.api.model import network_called
from anchorage.api.regular_files import read_regular
from anchorage.api.run import HeldOut
from anchorage.engine.hooks import EngineHooks
from anchorage.engine.interfaces import ServerLearner
from anchorage.engine.store.durable import storage_errors
from anchorage.methods.composition import build_learners, parts_of
from anchorage.methods.pretrained import initial_of
from anchorage.transport.memory import available_bytes
from anchorage.transport.messages import AuxiliaryData, Report
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import read_description, read_safetensors

if TYPE_CHECKING:  # a server that holds no images need not load what reads them
    from anchorage.learning.data import ImageSet

KEY_BYTES = 32
"""Of the key of digests."""
MODELS = 4
"""Copies of the model that a round needs at most: the global model, the sum, the new model, and one that is read or trained."""


def choose_learners(
    spec: FederationSpec, data_root: Path, state: Path, key: bytes, *, begun: bool
) -> tuple[Sequence[ServerLearner], HeldOut | None]:
    """Return the learner of every stage, the main method's last, and what silos are told of images that they must not train on.

    Torch is only loaded where it is needed, and only then are images read; parameters are those of `read_server_images`.

    Raises
    ------
    AnchorageError
        The images or the initial weights cannot be used, or the model does not fit into memory.
    """
    initial = initial_of(spec, data_root)
    parts = parts_of(spec)
    if initial is not None and not any(needs_torch(spec, part.method) for part in parts):
        return [FileModel(initial) for _ in parts], None
    import_large("anchorage.learning.learners")
    images, held_out = read_server_images(spec, data_root, state, key, begun=begun)
    learners = build_learners(spec, images, device="auto", initial=initial)
    require_memory(max(learner.down.nbytes for learner in learners))
    return learners, held_out


def needs_torch(spec: FederationSpec, method: ResolvedMethod) -> bool:
    """Return whether the server builds, trains or scores the network, or sends something that it computes with it."""
    needed = any(isinstance(piece, EngineHooks) and piece.needs_network for piece in method.pieces())
    needed = needed or bool(network_called(spec.model.network).package)  # its file may have a library's names
    needed = needed or spec.model.trainable != "All"  # the file does not tell what is frozen
    needed = needed or spec.model.weights is not None  # nor which of its heads only helped its own training
    return not spec.model.starts_trained or spec.evaluation is not None or needed


class FileModel:
    """`ServerLearner` without learning.

    Parameters
    ----------
    path : Path
        Safetensors file with the weights to start from; its tensors are the model's.

    Raises
    ------
    AnchorageError
        The file cannot be read or is no safetensors file; the model does not fit into memory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._layout, _ = read_description(path)
        require_memory(self._layout.nbytes)

    @property
    def down(self) -> Layout:
        """Layout of the global model."""
        return self._layout

    @property
    def up(self) -> Layout:
        """Layout of an update, the same."""
        return self._layout

    def initialise(self) -> ModelBytes:
        """Return the file's weights.

        Raises
        ------
        AnchorageError
            The file cannot be read, or is damaged.
        """
        return read_safetensors(self._path, self._layout).model

    def adopt(self, model: ModelBytes) -> ModelBytes:
        """Return the model of the stage before, which has the same tensors."""
        return model

    def auxiliary_data(self, model: ModelBytes, round_number: int) -> AuxiliaryData:
        """Return nothing."""
        return {}

    def train(self, model: ModelBytes, round_number: int) -> tuple[ModelBytes, Mapping[str, float]]:
        """Return the model as it is."""
        return model, {}

    def evaluate(self, model: ModelBytes, round_number: int) -> Report:
        """Return an empty report."""
        return Report({})

    def test(self, model: ModelBytes, round_number: int) -> Report:
        """Return an empty report."""
        return Report({})

    def assess(self, model: ModelBytes, round_number: int) -> None:
        """Return nothing."""

    def examples(self, model: ModelBytes, round_number: int) -> None:
        """Return nothing."""


def require_memory(model_bytes: int) -> None:
    """See that a run with a model of this size fits.

    Raises
    ------
    AnchorageError
        It does not.
    """
    needed, available = MODELS * model_bytes, available_bytes()
    if needed > available:
        message = (
            f"the model has {model_bytes / 1e6:.1f} MB, a round needs {needed / 1e6:.0f} MB for {MODELS} of it, "
            f"{available / 1e6:.0f} MB are free"
        )
        raise AnchorageError(MODEL_TOO_LARGE, message)


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
        return read_regular(file)


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
    from anchorage.learning.data import read
    from anchorage.learning.data.fingerprints import Fingerprint
    from anchorage.learning.data.held_out import kept_apart
    from anchorage.learning.data.picture_store import PictureStore

    store = None if spec.model.volume is None else PictureStore(state / "pictures")  # volumes are not kept in memory
    decoded = {
        name: read(section, data_root, spec.model_description, spec.seed, store=store)[0]
        for name, section in spec.server_data.items()
    }
    treatment = spec.evaluation.on_leakage if spec.evaluation else "Allow"
    images, held_out = kept_apart(decoded, treatment, key)
    for name, image_set in images.items():
        file, fingerprint = state / f"images-{name}.json", Fingerprint.of(image_set, key)
        if begun:
            fingerprint.compare(file, f"the server's {name} images", remedy="restore them, or begin a new run")
        else:
            with storage_errors("keep what the images are", file):
                fingerprint.keep(file)
    return images, held_out
