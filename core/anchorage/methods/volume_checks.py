"""What has no meaning in a federation whose images are volumes."""

from collections.abc import Iterator

from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE
from anchorage.api.fact import Fact
from anchorage.api.mistakes import Mistake
from anchorage.api.model import ModelSpec, NetworkKind, network_called
from anchorage.api.piece import PIECES
from anchorage.api.plan import Plan
from anchorage.learning.hooks import LearningHooks

_MODEL = ("spec", "model")
_FROM_IMAGES = {Fact.PSEUDO_LABELS, Fact.SELF_SUPERVISION, Fact.UNLABELLED_MOMENTS}


def of_volumes(plan: Plan) -> Iterator[Mistake]:
    """Yield what does not go with `spec.model.volume`: other tasks than segmentations, flat networks and augmentations, learning without masks."""
    model, task = plan.spec.model, plan.spec.task
    if model.volume is None:
        return
    if not task.gives_maps:
        message = f"found volume, but {task.name} is of flat images; leave it out, or choose the task segmentation"
        yield Mistake(MEANINGLESS_OVERRIDE, (*_MODEL, "volume"), message)
        return
    if not network_called(model.network).takes_volumes:
        message = f"found {model.network}, which takes flat images; with volume choose one of {', '.join(_networks())}"
        yield Mistake(MEANINGLESS_OVERRIDE, (*_MODEL, "network"), message)
    for field, value in (("augmentation", model.augmentation), ("fit", model.fit)):
        if value not in (None, ModelSpec.model_fields[field].default):
            message = f"found {field} {value}, which is of flat images; with volume leave it out"
            yield Mistake(MEANINGLESS_OVERRIDE, (*_MODEL, field), message)
    for piece in plan.method.pieces():
        if isinstance(piece, LearningHooks) and piece.facts() & _FROM_IMAGES and not piece.for_volumes:
            message = (
                f"found {piece.name}, which does not learn from volumes without masks; choose pseudoLabels: {{fixMatch: {{}}}}, {{uda: {{}}}}, "
                "{meanTeacher: {}} or {receivedModel: {}}, or a method such as FedAvg"
            )
            yield Mistake(MEANINGLESS_OVERRIDE, piece.path, message)


def _networks() -> Iterator[str]:
    """Yield the names of networks that take volumes."""
    for name, kind in PIECES.list_loaded("network").items():
        members = kind.members if issubclass(kind, NetworkKind) else ()
        names = [name + member for member in members] if name.endswith("/") else [name]
        yield from (each for each in names if network_called(each).takes_volumes)
