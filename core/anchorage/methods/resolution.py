"""From a preset's name and what a document sets to a method with every slot filled."""

from typing import Any, TypeVar

from anchorage.api.base import Document
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import UNKNOWN_METHOD
from anchorage.api.method import MethodSpec, ResolvedMethod
from anchorage.api.mistakes import suggest
from anchorage.api.piece import Piece
from anchorage.api.task import Task
from anchorage.methods.registry import PRESETS
from anchorage.methods.variants import variants

D = TypeVar("D", bound=Document)


def resolve(spec: MethodSpec, task: Task | None = None) -> ResolvedMethod:
    """Fill every slot: the preset's pieces for a task, and over them what the document sets.

    A piece of single classes gives way to the task's counterpart that the preset names (`Preset.by_task`); without a task an image is of one class.

    A slot that names the preset's own alternative changes its options field by field; one that names another alternative starts from that
    alternative's own defaults: FedAnchor's threshold of 0.6 means nothing to FlexMatch.

    Raises
    ------
    AnchorageError
        No preset has this name.
    """
    if spec.name not in PRESETS:
        raise AnchorageError(UNKNOWN_METHOD, unknown_method(spec.name))
    preset = PRESETS[spec.name].slots_of(task)
    overridden = {field: getattr(spec, field) for field in spec.model_fields_set - {"name"}}
    return preset.model_copy(update={f: _merge(getattr(preset, f), v) for f, v in overridden.items() if v is not None})


def unknown_method(name: str) -> str:
    """Say that no preset has this name, and how the variant of this name is written, or which preset is nearest and which there are."""
    if variant := variants().get(name):
        return f"found {name!r}, which is a variant of {variant.method['name']} and written {variant.written}"
    known = sorted(PRESETS)
    return f"found {name!r}, {suggest(name, known, cutoff=0.85)}allowed are {', '.join(known)}"


def _merge(base: D, override: D) -> D:
    """Return the override over the base, field by field; a piece of another kind replaces the base."""
    if isinstance(base, Piece) and type(base) is not type(override):
        return override
    changes: dict[str, Any] = {}
    for field in override.model_fields_set:
        value, before = getattr(override, field), getattr(base, field)
        changes[field] = _merge(before, value) if isinstance(value, Document) and before is not None else value
    return base.model_copy(update=changes)
