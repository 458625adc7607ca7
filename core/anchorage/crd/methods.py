"""The rules of `anchorage.methods.checks`, made from the built-in presets.

A preset that another package adds is not known to the API server, which takes its slots to be as most presets have them: a field that
another choice reads needs the slot's `type` beside it. What else turns on such a preset's own choices the operator, which knows every
preset, tells in the condition Accepted. So it does with what costs more here than it is worth: `tests/cluster/refused_methods.py`
lists it under LEFT_TO_THE_OPERATOR. Where one choice excludes several others one rule, with one message, stands for all.
"""

import json
from collections.abc import Iterable, Iterator
from typing import cast, get_args

from pydantic.alias_generators import to_camel

from anchorage.api.base import Document
from anchorage.api.method import ResolvedMethod, Weighting
from anchorage.api.slots import READ_BY
from anchorage.crd.rule import Rule, one_of
from anchorage.methods.checks import BY_REPRESENTATION, BY_SELECTION, LABELS_FIXED
from anchorage.methods.labelled_work import POOLED
from anchorage.methods.norms import RECOUNTED
from anchorage.methods.preset import Preset
from anchorage.methods.protocols import BARRIERS, BY_ANNOUNCEMENTS, BY_THEMSELVES
from anchorage.methods.registry import BUILT_IN
from anchorage.methods.second_heads import LABELLED_BY

_NOTHING = ("None",)
_BY_SIMILARITY = ("AnchorSimilarity",)
_VARIATES = ("ControlVariates",)
_SWITCHES = {"mixup": "at", "heads": "second", "batch_norm": "policy", "local": "start"}
"""The field of a slot that chooses, where it is not `type`."""

UNSAID = ("staleness",)
"""Fields that decide whether others are read, and whose rule would cost more than it is worth."""


def named(presets: Iterable[Preset], name: str = "self.name") -> str:
    """Write that a name, an expression, is one of these presets'; a pattern is shorter than a list."""
    variants: dict[str, list[str]] = {}
    for one in sorted(preset.name for preset in presets):
        base = next((base for base in variants if one.startswith(base)), one)
        variants.setdefault(base, []).append(one.removeprefix(base))
    words = [base + (f"({'|'.join(ends)})" if len(ends) > 1 else "") for base, ends in variants.items()]
    return (
        f'{name} == "{words[0]}"'
        if words[0].isalnum() and len(words) == 1
        else f'{name}.matches("^({"|".join(words)})$")'
    )


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
    switch = _SWITCHES.get(slot, "type")
    presets = [preset for preset in BUILT_IN if getattr(getattr(preset.slots, slot), switch) in words]
    if len(presets) > len(BUILT_IN) / 2:
        return f"!{chosen(slot, _others(slot, switch, words), method)}"
    own = f"{method}.?{to_camel(slot)}.?{switch}"
    preset = named(presets, f"{method}.name") if presets else "false"
    return f"{own}.optMap(c, {_among(slot, switch, words)}).orValue({preset})"


def _among(slot: str, switch: str, words: tuple[str, ...]) -> str:
    """Write that the choice c is one of some words, or none of the others where they are fewer."""
    others = _others(slot, switch, words)
    if len(words) <= len(others):
        return f"c in {one_of(words)}" if len(words) > 1 else f'c == "{words[0]}"'
    return f"!(c in {one_of(others)})" if len(others) > 1 else f'c != "{others[0]}"'


def _choice(slot: str, switch: str) -> str:
    """Write what a slot chooses: the user's choice in s, else the built-in preset's, else what most presets choose.

    Most presets leave most slots at one choice; naming only the others keeps the definition small.
    """
    presets: dict[str, list[Preset]] = {}
    for preset in BUILT_IN:
        presets.setdefault(getattr(getattr(preset.slots, slot), switch), []).append(preset)
    most = max(presets, key=lambda word: len(presets[word]))
    parts = [f'{named(group)} ? "{word}"' for word, group in presets.items() if word != most]
    if switch == "contrastive":  # a type that is not the preset's starts without
        parts.insert(0, f's.?type.orValue("Anchors") != "Anchors" ? "{most}"')
    return f"s.?{switch}.orValue({' : '.join([*parts, json.dumps(most)])})"


def _others(slot: str, field: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that a slot's field takes beside some."""
    kind = cast(type[Document], ResolvedMethod.model_fields[slot].annotation)
    return tuple(word for word in get_args(kind.model_fields[field].annotation) if word not in words)


def _enabled(slot: str, field: str, off: str, method: str = "self") -> str:
    """Write that a field is not off, the user's or else, with the preset's type, the preset's."""
    presets = [preset for preset in BUILT_IN if getattr(getattr(preset.slots, slot), field) != off]
    (word,) = {getattr(preset.slots, slot).type for preset in presets}
    own = f"{method}.?{to_camel(slot)}"
    preset = f'{named(presets, f"{method}.name")} && {own}.?type.orValue("{word}") == "{word}"'
    return f'{own}.?{to_camel(field)}.optMap(c, c != "{off}").orValue({preset})'


def _not(rule: str) -> str:
    return rule.removeprefix("!") if rule.startswith("!") else f"!{rule}"


def _unread() -> Iterator[Rule]:
    """Yield a rule for the fields of a slot that only some of its choices read."""
    for slot, readers in READ_BY.items():
        own = to_camel(slot)
        for switch in dict.fromkeys(switch for switch, _ in readers.values() if switch not in UNSAID):
            groups: dict[tuple[str, ...], list[str]] = {}
            for field, (decisive, words) in readers.items():
                if decisive == switch:
                    groups.setdefault(words, []).append(to_camel(field))
            told = (f"{', '.join(fields)} with {', '.join(words)}" for words, fields in groups.items())
            read = [
                f"({' && '.join(f'!has(s.{field})' for field in fields)} || {_among(slot, switch, words)})"
                for words, fields in groups.items()
            ]
            if slot == "server_training" and switch == "type":  # Disabled is true of every type
                read.append('(s.?contrastive.orValue("") != "Enabled" || c == "Anchors")')
                told = (f"contrastive, {text}" for text in told)
            yield Rule(
                f"!has(self.{own}) || [self.{own}].all(s, [{_choice(slot, switch)}].all(c, {' && '.join(read)}))",
                f"{own}.{switch} reads {'; '.join(told)} only; leave out what is not read",
                f".{own}",
                "FieldValueForbidden",
            )


_PSEUDO_LABELS = _not(chosen("pseudo_labels", _NOTHING))
_WITHOUT_LABELS = _not(chosen("self_supervised", _NOTHING))
_NO_LABEL_READ = f"{_WITHOUT_LABELS} && !({_enabled('self_supervised', 'online_classifier', 'Disabled')})"
_BALANCED = chosen("heads", ("Balanced",))
_POOLED = chosen("input_mixing", POOLED)
_CYCLE = f"({{0}}.?local.?cycle.hasValue() || {named([p for p in BUILT_IN if p.slots.local.cycle], '{0}.name')})"
_HEADS = " && ".join(
    f"(!{chosen('heads', (head,))} || {chosen('pseudo_labels', tuple(kind for kind in kinds if kind != 'None'))}"
    f"{' || !c[0]' if 'None' in kinds else ''})"
    for head, kinds in LABELLED_BY.items()
)
_SECOND = ", ".join(f"{head} beside {' or '.join(kinds)}" for head, kinds in LABELLED_BY.items())
_PAIRS = (
    ("decomposition", "SigmaPsi", "pseudo_labels", "Helpers"),
    ("regulariser", "ControlVariates", "server_step", "ControlVariates"),
    ("local", "Own", "server_step", "Keep"),
)
"""Choices of two slots that need each other."""


def _field(slot: str) -> str:
    return f"{to_camel(slot)}.{_SWITCHES.get(slot, 'type')}"


METHOD_RULES = (
    Rule(
        f"!{chosen('mixup', ('Server', 'Both'))} || {chosen('server_training', ('Anchors',))}",
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
        f"[[{_PSEUDO_LABELS}, {_WITHOUT_LABELS}]].all(c, [c[0] || {_not(chosen('heads', _NOTHING))}, c[1], "
        f"{chosen('regulariser', BY_REPRESENTATION)}, {_not(chosen('input_mixing', _NOTHING))}].filter(l, l).size() < 2 && "
        f"!((c[0] || c[1]) && {_CYCLE.format('self')}) && {_HEADS})",
        f"one loss at a time: pseudoLabels, perhaps with heads.second ({_SECOND}); selfSupervised; inputMixing; "
        f"regulariser.type {' or '.join(BY_REPRESENTATION)}; and local.cycle with neither of the first two; set the others to None",
    ),
    Rule(
        f"!{chosen('weighting', BY_SELECTION)} || {_PSEUDO_LABELS}",
        f"{', '.join(BY_SELECTION)} weigh silos by accepted pseudo-labels, but there are none; set pseudoLabels.type",
        ".weighting.type",
    ),
    Rule(
        f"!has(self.supervised) || !({chosen('pseudo_labels', _BY_SIMILARITY)} || {_BALANCED} || {_NO_LABEL_READ})",
        "no silo trains on labels by a loss of its own choice: AnchorSimilarity labels all images, heads.second Balanced "
        "has its own losses, selfSupervised reads no label; remove supervised",
        ".supervised",
        "FieldValueForbidden",
    ),
    Rule(
        f"!({_enabled('pseudo_labels', 'adjustment', 'None')}) || {_BALANCED}",
        "labels are adjusted for a balanced head only; set heads.second: Balanced, or adjustment: None",
        ".pseudoLabels.adjustment",
    ),
    Rule(
        " && ".join(f"{chosen(a, (one,))} == {chosen(b, (other,))}" for a, one, b, other in _PAIRS),
        "need each other: "
        + ", ".join(f"{_field(a)} {one} and {_field(b)} {other}" for a, one, b, other in _PAIRS)
        + "; set both of them, or neither",
    ),
    Rule(
        f"!{chosen('server_step', ('ControlVariates', 'Mix'))} || {chosen('weighting', ('Uniform',))}",
        "control variates are a plain mean, and the server step Mix weighs updates by their age alone; set Uniform",
        ".weighting.type",
    ),
    Rule(
        f"!{chosen('regulariser', _VARIATES)} || !({_WITHOUT_LABELS} || {_POOLED} || {chosen('batch_norm', ('Local',))})",
        "control variates are of the loss on labels, of every trained tensor, and beside no pool of images; remove "
        f"selfSupervised, inputMixing.type {', '.join(POOLED)} and batchNorm.policy Local",
    ),
    Rule(
        f"!{chosen('weighting', ('DVW',))} || !({chosen('batch_norm', ('Local', 'Static'))} || {_NO_LABEL_READ})",
        "DVW has the silos' whole models score images; set batchNorm.policy: Average, and a loss on labels",
    ),
    Rule(
        f"!{chosen('weighting', ('StepCount',))} || {chosen('self_supervised', ('Clusters',))}",
        "silos tell their steps with selfSupervised.type: Clusters only; set SampleCount",
        ".weighting.type",
    ),
    *_unread(),
)
"""Rules of `MethodSpec`."""

_SERVER_LEARNS = ("server_training", ("Anchors",))
_ANCHORED = (_SERVER_LEARNS, ("pseudo_labels", _BY_SIMILARITY), ("batch_norm", RECOUNTED))
"""Choices that need labelled anchors at the server."""


def _asynchronous(*unless: str) -> str:
    return " || ".join(('self.protocol.mode != "Asynchronous"', *unless))


def _chooses(preset: Preset, slot: str, words: tuple[str, ...]) -> bool:
    return getattr(getattr(preset.slots, slot), _SWITCHES.get(slot, "type")) in words


def _warmed_up_by(presets: Iterable[Preset]) -> str:
    """Write that a stage is one of these presets as it is; what becomes of its overrides is the operator's to say."""
    return f"(has(self.warmUp) && self.warmUp.exists(w, !has(w.set) && {named(presets, 'w.method')}))"


_NO_ROUNDS = [preset for preset in BUILT_IN if "Synchronous" not in preset.protocols]
_STEP_NEEDS_ROUNDS = ("server_step", _others("server_step", "type", BY_THEMSELVES))
_REFUSED_FOR_THEIR_SLOTS = (("weighting", BARRIERS), _SERVER_LEARNS, _STEP_NEEDS_ROUNDS)
_ROUNDS_ONLY = [
    preset
    for preset in BUILT_IN
    if "Asynchronous" not in preset.protocols
    and not any(_chooses(preset, slot, words) for slot, words in _REFUSED_FOR_THEIR_SLOTS)
]
_OVERRIDDEN = "has(self.method.weighting) || has(self.method.serverTraining) || has(self.method.serverStep)"
_PER_ROUND = (
    ("pseudo_labels", BY_ANNOUNCEMENTS),
    ("self_supervised", ("Clusters",)),
    ("batch_norm", ("Pooled", *RECOUNTED)),
    ("input_mixing", POOLED),
)
_PRESETS_WITH_ANCHORS = [p for p in BUILT_IN if any(_chooses(p, slot, words) for slot, words in _ANCHORED)]
_NEEDS_ANCHORS = " || ".join(
    (
        *(chosen(slot, words, "self.method") for slot, words in _ANCHORED),
        f"(has(self.evaluation) && {chosen('batch_norm', ('Local',), 'self.method')})",
        f"{_warmed_up_by(_PRESETS_WITH_ANCHORS)}",
    )
)

STUDY_RULES = (
    Rule(
        _asynchronous(f"!{chosen('weighting', BARRIERS, 'self.method')}"),
        f"the weightings {' and '.join(BARRIERS)} need the announcements of all silos of a round (a barrier); "
        "set Synchronous, or another weighting",
        ".protocol.mode",
    ),
    Rule(
        _asynchronous(f"!{chosen(*_SERVER_LEARNS, 'self.method')}"),
        "the server trains on its anchors after each round's aggregation; set Synchronous, or serverTraining.type: None",
        ".protocol.mode",
    ),
    Rule(
        _asynchronous(f"!{chosen(*_STEP_NEEDS_ROUNDS, 'self.method')}"),
        "this server step takes the mean of a whole round; set Synchronous, or serverStep.type: Replace",
        ".protocol.mode",
    ),
    Rule(
        _asynchronous(
            f"!({' || '.join(chosen(slot, words, 'self.method') for slot, words in _PER_ROUND)} || "
            f"{_enabled('self_supervised', 'online_classifier', 'Disabled', 'self.method')})"
        ),
        f"pseudoLabels.type {' and '.join(BY_ANNOUNCEMENTS)}, selfSupervised.type Clusters, onlineClassifier, "
        f"inputMixing.type {', '.join(POOLED)} and batchNorm.policy Pooled, {', '.join(RECOUNTED)} go by rounds; "
        "set Synchronous, or other ones",
        ".protocol.mode",
    ),
    Rule(
        _asynchronous(f"!{named(_ROUNDS_ONLY, 'self.method.name')}", _OVERRIDDEN),
        "this method has rounds only; set Synchronous",
        ".protocol.mode",
    ),
    Rule(
        f'self.protocol.mode != "Synchronous" || ({_OVERRIDDEN} || !{named(_NO_ROUNDS, "self.method.name")}) && '
        f"!{chosen('server_step', ('Mix',), 'self.method')} && !{_CYCLE.format('self.method')} && "
        f"!{_warmed_up_by(_NO_ROUNDS)}",
        "this method, or one of warmUp, has no rounds (nor have serverStep.type Mix and local.cycle); set Asynchronous, "
        "or another method",
        ".protocol.mode",
    ),
    Rule(
        _asynchronous("!has(self.warmUp)", "size(self.warmUp) == 0"),
        "an asynchronous protocol has no rounds to divide into stages; set Synchronous, or no warmUp",
        ".warmUp",
    ),
    Rule(
        "!has(self.warmUp) || size(self.warmUp) == 0 || self.warmUp.map(w, w.rounds).sum() < self.rounds",
        "the warm-up takes all rounds; set more, since some are for the method after it",
        ".rounds",
    ),
    Rule(
        f'!({_NEEDS_ANCHORS}) || has(self.anchorData) && (self.anchorData.use != "Anchors" || '
        "self.anchorData.anchors == 0 || self.anchorData.anchors >= self.model.numClasses)",
        "this method, or one of warmUp, needs labelled anchors of each class at the server; add anchorData, or anchors to it",
        ".anchorData",
        "FieldValueRequired",
    ),
    Rule(
        f"!{chosen('weighting', ('SubConsensus',), 'self.method')} || "
        f"self.method.?weighting.?groupSize.orValue({Weighting().group_size}) >= self.protocol.minSilos",
        "a group is to reach the quorum; set groupSize to protocol.minSilos or more",
        ".method.weighting.groupSize",
    ),
)
"""Rules of `FederationSpec` about its method."""
