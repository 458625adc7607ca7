"""From a preset's name and a user's overrides to a method with every slot filled."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

from pydantic import BaseModel

from anchorage.api.base import Document
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import UNKNOWN_METHOD
from anchorage.api.method import MethodSpec, PseudoLabels, ResolvedMethod, ServerStep, ServerTraining
from anchorage.methods.registry import PRESETS

D = TypeVar("D", bound=BaseModel)

_STARTS: Mapping[tuple[str, str], Document] = {
    ("pseudo_labels", "FlexMatch"): PseudoLabels(type="FlexMatch", threshold="0.95"),
    ("pseudo_labels", "FixMatch"): PseudoLabels(type="FixMatch", threshold="0.95"),
    ("pseudo_labels", "ReceivedModel"): PseudoLabels(type="ReceivedModel", threshold="0.95"),
    ("pseudo_labels", "UDA"): PseudoLabels(type="UDA", threshold="0.8"),
    ("pseudo_labels", "MeanTeacher"): PseudoLabels(type="MeanTeacher", temperature="0.5"),
    ("pseudo_labels", "ClassAdaptive"): PseudoLabels(type="ClassAdaptive", threshold="0.84"),
    ("server_training", "Anchors"): ServerTraining(type="Anchors", pretrain_epochs=1, pretrain_learning_rate="0.03"),
    ("server_step", "Momentum"): ServerStep(type="Momentum", learning_rate="1"),
    ("server_step", "ControlVariates"): ServerStep(type="ControlVariates", learning_rate="1"),
    ("server_step", "Adagrad"): ServerStep(type="Adagrad", momentum="0"),
}
"""What a slot starts from when a user changes its type, where that is not the slot's plain defaults.

A server that trains on its anchors does so before the silos' first round as after each (METHODS.md 6.5, docs/design/methods.md).
"""


def resolve(spec: MethodSpec) -> ResolvedMethod:
    """Fill every slot: the preset's choices, and over them, field by field, what the user set.

    A slot whose `type` the user changes starts from that type's own defaults instead of the preset's: FedAnchor's threshold of 0.6 means
    nothing to FlexMatch.

    Raises
    ------
    AnchorageError
        No preset has this name.
    """
    if spec.name not in PRESETS:
        raise AnchorageError(UNKNOWN_METHOD, unknown_method(spec.name))
    method: Document = PRESETS[spec.name].slots
    changes: dict[str, Document] = {}
    for slot in spec.model_fields_set - {"name"}:
        override = getattr(spec, slot)
        if override is not None:
            changes[slot] = _merged(_start(slot, getattr(method, slot), override), override)
    return PRESETS[spec.name].slots.model_copy(update=changes)


def unknown_method(name: str) -> str:
    """Say that no preset has this name, which is nearest, and which there are."""
    plain = {"".join(filter(str.isalnum, known)).lower(): known for known in PRESETS}
    near = get_close_matches("".join(filter(str.isalnum, name)).lower(), plain, n=1, cutoff=0.85)
    meant = f"did you mean {plain[near[0]]}? " if near else ""
    return f"found {name!r}, {meant}allowed are {', '.join(sorted(PRESETS))}"


def _start(slot: str, preset: Document, override: Document) -> Document:
    kind = getattr(override, "type", None)
    if "type" not in override.model_fields_set or kind == getattr(preset, "type", None):
        return preset
    return _STARTS.get((slot, str(kind)), type(override).model_validate({"type": kind}))


def _merged(base: D, override: D) -> D:
    changes = {}
    for field in override.model_fields_set:
        value = getattr(override, field)
        before = getattr(base, field)
        changes[field] = _merged(before, value) if isinstance(value, BaseModel) and before is not None else value
    return base.model_copy(update=changes)
