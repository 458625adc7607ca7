"""The rules of `anchorage.methods.checks`, made from the built-in presets.

A preset that another package adds is not known to the API server, which takes its slots to be as most presets have them: a field that
another choice reads needs the slot's `type` beside it. What else turns on such a preset's own choices the operator, which knows every
preset, tells in the condition Accepted.
"""

from collections.abc import Iterator
from typing import cast, get_args

from pydantic.alias_generators import to_camel

from anchorage.crd.rule import Rule, one_of
from anchorage.methods.checks import BY_REPRESENTATION, BY_SELECTION, LABELS_FIXED
from anchorage.methods.protocols import BARRIERS, BY_THEMSELVES
from anchorage.methods.registry import BUILT_IN
from anchorage.spec.base import Document
from anchorage.spec.method import ResolvedMethod
from anchorage.spec.slots import READ_BY

_NOTHING = ("None",)
_BY_SIMILARITY = ("AnchorSimilarity",)
LEFT_TO_THE_OPERATOR = ("staleness",)
"""Fields that decide whether others are read, and whose rule would cost more than it is worth."""


def chosen(slot: str, words: tuple[str, ...], method: str = "self") -> str:
    """Write that a slot's choice, the user's or else the preset's, is one of some words.

    Parameters
    ----------
    slot : str
        A slot of `ResolvedMethod`.
    words : tuple of str
        Choices.
    method : str
        Expression of the method.
    """
    switch = "at" if slot == "mixup" else "type"
    names = tuple(preset.name for preset in BUILT_IN if getattr(getattr(preset.slots, slot), switch) in words)
    if len(names) > len(BUILT_IN) / 2:
        return f"!{chosen(slot, _others(slot, switch, words), method)}"
    own = f"{method}.?{to_camel(slot)}.?{switch}"
    return f"{own}.optMap(c, c in {one_of(words)}).orValue({method}.name in {one_of(names)})"


def _choice(slot: str, switch: str) -> str:
    """Write what a slot chooses: the user's choice, else the built-in preset's, else what most presets choose.

    Most presets leave most slots at one choice; naming only the others keeps the definition small.
    """
    names: dict[str, list[str]] = {}
    for preset in BUILT_IN:
        names.setdefault(getattr(getattr(preset.slots, slot), switch), []).append(preset.name)
    most = max(names, key=lambda word: len(names[word]))
    parts = [f"self.name in {one_of(tuple(group))} ? '{word}'" for word, group in names.items() if word != most]
    if switch == "contrastive":  # a type that is not the preset's starts without
        parts.insert(0, f"self.{to_camel(slot)}.?type.orValue('Anchors') != 'Anchors' ? '{most}'")
    return f"self.{to_camel(slot)}.?{to_camel(switch)}.orValue({' : '.join([*parts, repr(most)])})"


def _others(slot: str, field: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that a slot's field takes beside some."""
    kind = cast(type[Document], ResolvedMethod.model_fields[slot].annotation)
    return tuple(word for word in get_args(kind.model_fields[field].annotation) if word not in words)


def _unread() -> Iterator[Rule]:
    """Yield a rule for the fields of a slot that only some of its choices read."""
    for slot, readers in READ_BY.items():
        own = to_camel(slot)
        for switch in dict.fromkeys(switch for switch, _ in readers.values() if switch not in LEFT_TO_THE_OPERATOR):
            groups: dict[tuple[str, ...], list[str]] = {}
            for field, (decisive, words) in readers.items():
                if decisive == switch:
                    groups.setdefault(words, []).append(to_camel(field))
            told = (f"{' and '.join(fields)} with {' or '.join(words)}" for words, fields in groups.items())
            read = " && ".join(
                f"({' && '.join(f'!has(self.{own}.{field})' for field in fields)} || c in {one_of(words)})"
                for words, fields in groups.items()
            )
            yield Rule(
                f"!has(self.{own}) || [{_choice(slot, switch)}].all(c, {read})",
                f"{own}.{switch} reads {', '.join(told)} only; leave out what is not read",
                f".{own}",
                "FieldValueForbidden",
            )


METHOD_RULES = (
    Rule(
        f"!{chosen('mixup', ('Server', 'Both'))} || !{chosen('server_training', _NOTHING)}",
        "mixup at the server, but the server trains on nothing; set serverTraining.type: Anchors, or mixup elsewhere",
        ".mixup.at",
    ),
    Rule(
        f"!{chosen('mixup', ('Client', 'Both'))} || {chosen('pseudo_labels', LABELS_FIXED)}",
        f"silos mix images whose labels are fixed for the round, which pseudoLabels.type {' and '.join(LABELS_FIXED)} "
        "do; set one of them, or no mixup at the silos",
        ".mixup.at",
    ),
    Rule(
        f"!{chosen('regulariser', BY_REPRESENTATION)} || {chosen('pseudo_labels', _NOTHING)}",
        f"{' and '.join(BY_REPRESENTATION)} compare representations of labelled images, but silos learn pseudo-labels; "
        "set regulariser.type: Proximal or None",
        ".regulariser.type",
    ),
    Rule(
        f"self.?serverTraining.?contrastive.orValue('') != 'Enabled' || !{chosen('server_training', _NOTHING)}",
        "the server trains on nothing; set serverTraining.type: Anchors, or contrastive: Disabled",
        ".serverTraining.contrastive",
    ),
    Rule(
        f"!{chosen('weighting', BY_SELECTION)} || !{chosen('pseudo_labels', _NOTHING)}",
        f"{', '.join(BY_SELECTION)} weigh silos by accepted pseudo-labels, but there are none; set pseudoLabels.type",
        ".weighting.type",
    ),
    Rule(
        f"!has(self.supervised) || !{chosen('pseudo_labels', _BY_SIMILARITY)}",
        "AnchorSimilarity labels all images of a silo, so no silo trains on labels of its own; remove supervised",
        ".supervised",
        "FieldValueForbidden",
    ),
    *_unread(),
)
"""Rules of `MethodSpec`."""

_SERVER_LEARNS = chosen("server_training", ("Anchors",), "self.method")
_NEEDS_ANCHORS = f"({_SERVER_LEARNS} || {chosen('pseudo_labels', _BY_SIMILARITY, 'self.method')})"
_NO_ROUNDS = tuple(preset.name for preset in BUILT_IN if "Synchronous" not in preset.protocols)
_ROUNDS_ONLY = tuple(preset.name for preset in BUILT_IN if "Asynchronous" not in preset.protocols)

STUDY_RULES = (
    Rule(
        f"self.protocol.mode != 'Asynchronous' || !{chosen('weighting', BARRIERS, 'self.method')}",
        f"the weightings {' and '.join(BARRIERS)} need the announcements of all silos of a round (a barrier); "
        "set Synchronous, or another weighting",
        ".protocol.mode",
    ),
    Rule(
        f"self.protocol.mode != 'Asynchronous' || !{_SERVER_LEARNS}",
        "the server trains on its anchors after each round's aggregation; set Synchronous, or serverTraining.type: None",
        ".protocol.mode",
    ),
    Rule(
        f"self.protocol.mode != 'Asynchronous' || {chosen('server_step', BY_THEMSELVES, 'self.method')}",
        "this server step takes the mean of a whole round; set Synchronous, or serverStep.type: Replace",
        ".protocol.mode",
    ),
    Rule(
        f"self.protocol.mode != 'Asynchronous' || !(self.method.name in {one_of(_ROUNDS_ONLY)}) || "
        "has(self.method.weighting) || has(self.method.serverTraining) || has(self.method.serverStep)",
        "this method has rounds only; set Synchronous",
        ".protocol.mode",
    ),
    Rule(
        f"self.protocol.mode != 'Synchronous' || !(self.method.name in {one_of(_NO_ROUNDS)}) || "
        "has(self.method.weighting) || has(self.method.serverTraining) || has(self.method.serverStep)",
        "this method has no rounds; set Asynchronous",
        ".protocol.mode",
    ),
    Rule(
        "self.protocol.mode != 'Asynchronous' || !has(self.warmUp) || size(self.warmUp) == 0",
        "an asynchronous protocol has no rounds to divide into stages; set Synchronous, or no warmUp",
        ".warmUp",
    ),
    Rule(
        f"has(self.anchorData) || !{_NEEDS_ANCHORS}",
        "this method needs labelled anchors at the server; add anchorData",
        ".anchorData",
        "FieldValueRequired",
    ),
    Rule(
        "!has(self.anchorData) || self.anchorData.use != 'Anchors' || self.anchorData.anchors == 0 || "
        f"self.anchorData.anchors >= self.model.numClasses || !{_NEEDS_ANCHORS}",
        "each class of the model needs an anchor; take more",
        ".anchorData.anchors",
    ),
)
"""Rules of `FederationSpec` about its method."""
