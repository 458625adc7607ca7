"""Which learner the server needs."""

from pathlib import Path

from anchorage.rounds.interfaces import ServerLearner
from anchorage.rounds.study import read_images
from anchorage.spec.federation import FederationSpec
from anchorage.spec.method import ResolvedMethod
from anchorage_server.file_model import FileModel
from anchorage_server.memory import require_memory


def needs_torch(spec: FederationSpec, method: ResolvedMethod) -> bool:
    """Return whether the server builds, trains or scores the network, or sends something that it computes with it."""
    return (
        spec.model.initial is None
        or spec.evaluation is not None
        or method.server_training.type != "None"
        or method.pseudo_labels.type == "AnchorSimilarity"
        or method.weighting.type == "SemiAnAgg"
    )


def choose_learner(spec: FederationSpec, method: ResolvedMethod, data_root: Path) -> ServerLearner:
    """Return the learner of a run; torch is only loaded where it is needed.

    Raises
    ------
    AnchorageError
        The images or the initial weights cannot be read, or the model does not fit into memory.
    """
    initial = data_root / spec.model.initial if spec.model.initial is not None else None
    if initial is not None and not needs_torch(spec, method):
        return FileModel(initial)
    from anchorage import learning

    anchors, evaluation = spec.anchor_data, spec.evaluation
    learner = learning.build_server_learner(
        model=spec.model,
        method=method,
        seed=spec.seed,
        anchors=read_images(anchors, data_root, spec.model, spec.seed) if anchors else None,
        test=read_images(evaluation.data, data_root, spec.model, spec.seed) if evaluation else None,
        device="auto",
        initial=initial,
    )
    require_memory(learner.down.nbytes)
    return learner
