"""Which learner the server needs."""

from collections.abc import Sequence
from pathlib import Path

from anchorage.api.federation import FederationSpec
from anchorage.api.method import ResolvedMethod
from anchorage.engine.hooks import EngineHooks
from anchorage.engine.interfaces import ServerLearner
from anchorage.methods.study import initial_of, parts_of, read_images
from anchorage_server.file_model import FileModel
from anchorage_server.memory import require_memory


def needs_torch(spec: FederationSpec, method: ResolvedMethod) -> bool:
    """Return whether the server builds, trains or scores the network, or sends something that it computes with it."""
    needed = any(isinstance(piece, EngineHooks) and piece.needs_network for piece in method.pieces())
    return spec.model.initial is None or spec.evaluation is not None or needed


def choose_learners(spec: FederationSpec, data_root: Path) -> Sequence[ServerLearner]:
    """Return the learner of every stage, the main method's last; torch is only loaded where it is needed.

    Raises
    ------
    AnchorageError
        The images or the initial weights cannot be read, or the model does not fit into memory.
    """
    initial = initial_of(spec, data_root)
    parts = parts_of(spec)
    if initial is not None and not any(needs_torch(spec, part.method) for part in parts):
        return [FileModel(initial) for _ in parts]
    from anchorage.learning.learners import build_server_learner

    images = {
        name: read_images(section, data_root, spec.model_description, spec.seed)
        for name, section in spec.server_data.items()
    }
    learners = [
        build_server_learner(
            model=spec.model_description,
            method=part.method,
            seed=spec.seed,
            **images,
            device="auto",
            initial=initial,
            rounds=part.last,
            after=part.after,
        )
        for part in parts
    ]
    require_memory(max(learner.down.nbytes for learner in learners))
    return learners
