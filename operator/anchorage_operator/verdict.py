"""Validates users' objects: the rules of `anchorage.api` and `anchorage.methods`, and fields that cannot change once training has started."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from anchorage.api.changes import find_changes, refusals, silo_changes
from anchorage.api.errors.documents import LABELS_MISSING, OUT_OF_RANGE, TOO_FEW_SILOS
from anchorage.api.federation import Federation, Silo
from anchorage.api.mistakes import Mistake
from anchorage.api.objects import add_silo_name, read_objects
from anchorage.api.status import ConditionType, FederationStatus
from anchorage.methods import resolve
from anchorage.methods.checks import check
from anchorage.transport.kube.resources import Json
from anchorage_operator import reasons
from anchorage_operator.conditions import find_written
from anchorage_operator.in_use import running_federation, running_silo
from anchorage_operator.names import (
    LONGEST_FEDERATION,
    LONGEST_SILO,
)
from anchorage_operator.observed import Observed
from anchorage_operator.pod_policy import federation_mistakes, silo_mistakes
from anchorage_operator.settings import OperatorSettings

_OF_SILOS = (LABELS_MISSING, TOO_FEW_SILOS)
"""Mistakes about which silos there are: these come and go once training began, and the quorum tells."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an object is not accepted."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which specs are accepted."""

    federation: Federation | None
    """Typed; None where it is refused."""
    refusal: Refusal | None
    """Why."""
    silos: Mapping[str, Silo]
    """The silos that are sound, by name."""
    refused: Mapping[str, Refusal]
    """The others."""


def judge(observed: Observed, silos: Mapping[str, Json], settings: OperatorSettings) -> Verdict:
    """Check a federation and its silos.

    A mistake of a silo is held against that silo alone, unless it was accepted as it is: then the Federation was changed so that
    they no longer fit, and the change is refused.

    Parameters
    ----------
    observed : Observed
        Has the Federation object, and the children that run.
    silos : mapping of str to Json
        The silos that count, by name.
    settings : OperatorSettings
        What documents may set in pods.
    """
    if observed.federation is None:
        reading = read_objects({}, list(silos.values()))
        sound = {name: silo for name, silo in zip(silos, reading.silos, strict=True) if silo is not None}
        return Verdict(None, None, sound, {})
    settled = [name for name, silo in silos.items() if _was_accepted_before(silo)]
    order = [*settled, *(name for name in silos if name not in settled)]
    refused: dict[str, Refusal] = {}
    while True:
        names = [name for name in order if name not in refused]
        federation, mistakes, made = _check_documents(observed.federation, [silos[name] for name in names])
        if _has_begun(observed):
            mistakes = [mistake for mistake in mistakes if mistake.failure not in _OF_SILOS]
        faulty = {names[m.silo]: m for m in reversed(mistakes) if m.silo is not None}
        refused |= {name: Refusal(reasons.INVALID_SPEC, _line([mistake])) for name, mistake in faulty.items()}
        if not faulty:
            break
    sound = {name: silo for name, silo in zip(names, made, strict=True) if silo is not None}
    refusal = Refusal(reasons.INVALID_SPEC, _line(mistakes)) if mistakes else None
    for name in [name for name in settled if name in refused]:
        silo = read_objects(observed.federation, [silos[name]]).silos[0]
        if silo is not None:
            sound[name] = silo
            refusal = refusal or refused[name]
            del refused[name]
    for name, silo in sound.items():
        if override_mistakes := [*silo_mistakes(silo, observed, settings)]:
            refused[name] = Refusal(reasons.POD_OVERRIDE_REFUSED, _line(override_mistakes))
    refused |= {name: change for name, silo in sound.items() for change in _immutable_silo_change(silo, observed)}
    sound = {name: sound[name] for name in silos if name in sound and name not in refused}
    if (
        refusal is None
        and federation is not None
        and (override_mistakes := [*federation_mistakes(federation, observed, settings)])
    ):
        refusal = Refusal(reasons.POD_OVERRIDE_REFUSED, _line(override_mistakes))
    if refusal is None and federation is not None:
        refusal = next(_immutable_change(federation, observed), None)
    return Verdict(None if refusal else federation, refusal, sound, refused)


def _was_accepted_before(silo: Json) -> bool:
    """Return whether the silo was accepted unchanged before: an error that it has now was caused by the Federation's spec."""
    generation = silo["metadata"].get("generation")
    accepted = find_written(silo.get("status") or {}, ConditionType.ACCEPTED)
    return accepted is not None and accepted["status"] == "True" and accepted.get("observedGeneration") == generation


def _check_documents(
    federation: Json, silos: Sequence[Json]
) -> tuple[Federation | None, list[Mistake], Sequence[Silo | None]]:
    reading = read_objects(federation, silos)
    mistakes = [*reading.mistakes, *_long_names(federation, silos)]
    members = [silo for silo in reading.silos if silo is not None]
    if reading.federation is not None and len(members) == len(silos):
        mistakes += [add_silo_name(mistake, silos) for mistake in check(reading.federation, members)]
    return reading.federation, mistakes, reading.silos


def _long_names(federation: Json, silos: Sequence[Json]) -> Iterator[Mistake]:
    path = ("metadata", "name")
    message = "found {} characters, at most {} are allowed because the pods are named after it"
    length = len(federation["metadata"]["name"])
    if length > LONGEST_FEDERATION:
        yield Mistake(OUT_OF_RANGE, path, message.format(length, LONGEST_FEDERATION))
    for index, silo in enumerate(silos):
        length = len(silo["metadata"]["name"])
        if length > LONGEST_SILO and "managed" in silo["spec"]:
            yield Mistake(OUT_OF_RANGE, path, message.format(length, LONGEST_SILO), silo=index)


def _line(mistakes: Sequence[Mistake]) -> str:
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return f"{mistakes[0]}{more}"


def _immutable_change(federation: Federation, observed: Observed) -> Iterator[Refusal]:
    """Return the immutable fields that were changed."""
    before = running_federation(observed)
    if before is not None:
        committed = int(_status(observed).get("round", 0)) if _has_begun(observed) else None
        for message in refusals(find_changes(before, federation, resolve), committed, ()):
            yield Refusal(reasons.IMMUTABLE_FIELD_CHANGED, f"{message}; restore it")


def _immutable_silo_change(silo: Silo, observed: Observed) -> Iterator[Refusal]:
    """Return the immutable fields of a silo that were changed; its images are fixed from the first round in which it can train."""
    name = silo.metadata.name
    before = running_silo(observed, name)
    if before is not None and _has_begun(observed):
        reported = observed.report.silos if isinstance(observed.report, FederationStatus) else ()
        samples = (observed.silos[name].get("status") or {}).get("samples")
        trained = {name} if samples or any(each.samples for each in reported if each.name == name) else set()
        for message in refusals(silo_changes(before, silo), 0, trained):
            remedy = "restore it, or delete the Silo and create another one"
            yield Refusal(reasons.IMMUTABLE_FIELD_CHANGED, f"{message}; {remedy}")


def _status(observed: Observed) -> Json:
    return (observed.federation or {}).get("status") or {}


def _has_begun(observed: Observed) -> bool:
    return bool(_status(observed).get("round") or _status(observed).get("startTime"))
