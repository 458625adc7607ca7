"""Which learner the server needs."""

from collections.abc import Sequence
from pathlib import Path

from anchorage.api.federation import FederationSpec
from anchorage.api.method import ResolvedMethod
from anchorage.api.model import network_called
from anchorage.api.run import HeldOut
from anchorage.engine.hooks import EngineHooks
from anchorage.engine.interfaces import ServerLearner
from anchorage.methods.composition import build_learners
from anchorage.methods.pretrained import initial_of
from anchorage.methods.study import parts_of
from anchorage_server.file_model import FileModel
from anchorage_server.images import read_server_images
from anchorage_server.memory import require_memory


def needs_torch(spec: FederationSpec, method: ResolvedMethod) -> bool:
    """Return whether the server builds, trains or scores the network, or sends something that it computes with it."""
    needed = any(isinstance(piece, EngineHooks) and piece.needs_network for piece in method.pieces())
    needed = needed or bool(network_called(spec.model.network).package)  # its file may have a library's names
    needed = needed or spec.model.trainable != "All"  # the file does not tell what is frozen
    needed = needed or spec.model.weights is not None  # nor which of its heads only helped its own training
    return not spec.model.starts_trained or spec.evaluation is not None or needed


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
    images, held_out = read_server_images(spec, data_root, state, key, begun=begun)
    learners = build_learners(spec, images, device="auto", initial=initial)
    require_memory(max(learner.down.nbytes for learner in learners))
    return learners, held_out
