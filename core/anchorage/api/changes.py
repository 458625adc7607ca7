"""What may change in a study's documents once training has begun: one verdict per field, for every place that asks."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from blake3 import blake3

from anchorage.api.agent import option_names
from anchorage.api.base import Document
from anchorage.api.federation import Federation, Silo
from anchorage.api.method import MethodSpec
from anchorage.api.task import Task

Resolve = Callable[[MethodSpec, Task], Document]
"""Returns a method with every slot filled for a task, so that a slot that spells out its preset's own choice is no change."""

Fields = Mapping[str, Any]
"""Every value of a document by its dotted field, such as ``spec.protocol.minSilos``; lists are single values, None is what is absent."""


class Verdict(Enum):
    """When a field may change."""

    FROZEN = "never once training has begun: every round depends on it"
    ROUNDS = "at any time, but not below the rounds that are committed; the server restarts"
    LATER = "at any time, for the rounds to come; the server restarts"
    SERVER = "at any time, without effect on what is trained; the server restarts"
    FREE = "at any time, without effect on the server"


FEDERATION: Mapping[str, Verdict] = {
    "metadata.name": Verdict.FROZEN,
    "metadata.namespace": Verdict.FREE,
    "spec.rounds": Verdict.ROUNDS,
    "spec.seed": Verdict.FROZEN,
    "spec.task": Verdict.FROZEN,
    "spec.model": Verdict.FROZEN,
    "spec.method": Verdict.FROZEN,
    "spec.warmUp": Verdict.FROZEN,
    "spec.protocol.mode": Verdict.FROZEN,
    "spec.protocol.minSilos": Verdict.LATER,
    "spec.protocol.silosPerRound": Verdict.LATER,
    "spec.protocol.roundDeadlineSeconds": Verdict.LATER,
    "spec.protocol.idleTimeoutSeconds": Verdict.SERVER,
    "spec.protocol.maximumImages": Verdict.LATER,
    "spec.protocol.secureAggregation": Verdict.FROZEN,
    "spec.protocol.modelEncoding": Verdict.FROZEN,
    "spec.suspend": Verdict.FREE,
    "spec.activeDeadlineSeconds": Verdict.SERVER,
    "spec.anchorData": Verdict.FROZEN,
    "spec.evaluation.validation": Verdict.FROZEN,
    "spec.evaluation.test": Verdict.FROZEN,
    "spec.evaluation.averageDecay": Verdict.FROZEN,
    "spec.evaluation.siloPercent": Verdict.FROZEN,
    "spec.evaluation.onLeakage": Verdict.FROZEN,
    "spec.evaluation.everyRounds": Verdict.LATER,
    "spec.evaluation.embeddings": Verdict.SERVER,
    "spec.server": Verdict.FREE,
    "spec.queueName": Verdict.FREE,
    "spec.admission": Verdict.FREE,
    "spec.deletionPolicy": Verdict.FREE,
    "spec.tracking": Verdict.SERVER,
}
"""Verdicts on a Federation; one on a mapping is on all that it holds. A volume that cannot change is the cluster's own affair."""

SILO: Mapping[str, Verdict] = {
    "metadata.name": Verdict.FROZEN,
    "metadata.namespace": Verdict.FREE,
    "spec.federation": Verdict.FROZEN,
    "spec.labels": Verdict.FROZEN,
    "spec.managed.data": Verdict.FROZEN,
    "spec.managed.data.onChange": Verdict.FREE,
    "spec.managed.resources": Verdict.FREE,
    **{f"spec.managed.{name}": Verdict.FROZEN for name in option_names(deciding=True)},
    **{f"spec.managed.{name}": Verdict.FREE for name in option_names(deciding=False)},
    "spec.managed.policy": Verdict.FREE,
    "spec.managed.storage": Verdict.FREE,
    "spec.managed.pod": Verdict.FREE,
}
"""Verdicts on a Silo. Which silos there are may change for the rounds to come."""

RESULTS = frozenset({Verdict.FROZEN, Verdict.ROUNDS, Verdict.LATER})
"""Verdicts on what decides the model that a whole run reaches."""


@dataclass(frozen=True, slots=True)
class Change:
    """A field that differs between two versions of a study."""

    field: str
    """Dotted, such as ``spec.seed``; empty where a silo as a whole was added or removed."""
    before: Any
    """Its former value, None where it was absent."""
    after: Any
    """Its value now, likewise."""
    verdict: Verdict
    silo: str = ""
    """Name of the silo whose document it is in; empty for the federation's."""

    @property
    def place(self) -> str:
        """The field with its silo."""
        return f"silo {self.silo} {self.field}".strip() if self.silo else self.field

    def __str__(self) -> str:
        return f"{self.place} is {_text(self.after)}, but training began with {_text(self.before)}"


def find_changes(
    before: Federation, after: Federation, resolve: Resolve, silos: Sequence[Silo] = (), now: Sequence[Silo] = ()
) -> list[Change]:
    """Return every difference between two versions of a study, in the documents' order.

    Parameters
    ----------
    before, after : Federation
        As they were read; their status is not looked at.
    resolve : callable
        As in `Resolve`.
    silos, now : sequence of Silo
        The silos before and now.
    """
    changes = [] if before == after else compare(fields_of(before, resolve), fields_of(after, resolve), FEDERATION)
    old, new = ({silo.metadata.name: silo for silo in each} for each in (silos, now))
    for name in dict.fromkeys([*old, *new]):
        if name in old and name in new:
            changes += silo_changes(old[name], new[name])
        else:
            was, is_now = ("present" if name in each else None for each in (old, new))
            changes.append(Change("", was, is_now, Verdict.LATER, name))
    return changes


def silo_changes(before: Silo, after: Silo) -> list[Change]:
    """Return every difference between two versions of a silo's document."""
    if before == after:
        return []
    return compare(fields_of(before), fields_of(after), SILO, after.metadata.name)


def compare(
    before: Fields, after: Fields, verdicts: Mapping[str, Verdict] | None = None, silo: str = ""
) -> list[Change]:
    """Return every difference between the fields of two documents of one kind; without verdicts none of them may change."""
    fields = dict.fromkeys([*before, *after])
    differing = [field for field in fields if before.get(field) != after.get(field)]
    field_verdicts = [Verdict.FROZEN if verdicts is None else verdict_on(field, verdicts) for field in differing]
    return [
        Change(field, before.get(field), after.get(field), verdict, silo)
        for field, verdict in zip(differing, field_verdicts, strict=True)
    ]


def broken(stored: Fields, now: Fields) -> list[Change]:
    """Return what is no longer as it was stored; a field that an older version did not know may have any value."""

    def is_known(field: str) -> bool:
        return field in stored or ("." in field and is_known(field.rpartition(".")[0]))

    return [change for change in compare(stored, now) if is_known(change.field)]


def refusals(changes: Sequence[Change], committed: int | None, trained: Collection[str]) -> list[str]:
    """Say what cannot be changed any more, a line for each change.

    Parameters
    ----------
    changes : sequence of Change
        What differs.
    committed : int or None
        The last committed round; None before the first, while everything may change.
    trained : collection of str
        Names of the silos whose images were trained on; the documents of the others may change.
    """
    if committed is None:
        return []
    lines = []
    for change in changes:
        if change.verdict is Verdict.FROZEN and (not change.silo or change.silo in trained):
            lines.append(str(change))
        elif change.verdict is Verdict.ROUNDS and change.after < committed:
            lines.append(f"{change.place} is {change.after}, but {committed} rounds are committed")
    return lines


def fields_of(document: Federation | Silo, resolve: Resolve | None = None) -> Fields:
    """Return every field of a document; with `resolve` its method has every slot filled."""
    parts = {"metadata": document.metadata, "spec": document.spec}
    values = {name: _values(part) for name, part in parts.items()}
    if isinstance(document, Federation) and resolve is not None:
        values["spec"]["method"] = _values(resolve(document.spec.method, document.spec.task))
    return dict(_leaves(values, ""))


def frozen_fields(federation: Federation, resolve: Resolve) -> Fields:
    """Return what of a federation cannot change once training has begun."""
    return _having(fields_of(federation, resolve), FEDERATION, {Verdict.FROZEN})


def digest_of_study(federation: Federation, silos: Sequence[Silo], resolve: Resolve, *, length: bool = True) -> str:
    """Return BLAKE3, hex, over everything that decides what a whole run with these silos reaches, its number of rounds only with `length`."""
    deciding = RESULTS if length else RESULTS - {Verdict.ROUNDS}
    parts = [_having(fields_of(federation, resolve), FEDERATION, deciding)]
    parts += [_having(fields_of(silo), SILO, RESULTS) for silo in silos]
    return blake3(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def verdict_on(field: str, verdicts: Mapping[str, Verdict]) -> Verdict:
    """Return the verdict on a field, or on the mapping that holds it; on one that holds several, and is absent, the strictest.

    Raises
    ------
    KeyError
        There is none.
    """
    path = field
    while path and path not in verdicts:
        path = path.rpartition(".")[0]
    if path:
        return verdicts[path]
    below = {verdict for held, verdict in verdicts.items() if held.startswith(f"{field}.")}
    if not below:
        raise KeyError(field)
    return next(verdict for verdict in Verdict if verdict in below)


def _having(fields: Fields, verdicts: Mapping[str, Verdict], among: Collection[Verdict]) -> Fields:
    return {field: value for field, value in fields.items() if verdict_on(field, verdicts) in among}


def _values(document: Document) -> dict[str, Any]:
    return document.model_dump(mode="json", by_alias=True)


def _leaves(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, Mapping) and item:  # an alternative without options is a leaf, too
            yield from _leaves(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", item


def _text(value: Any) -> str:
    if value is None:
        return "absent"
    return value if isinstance(value, str) else json.dumps(value)
