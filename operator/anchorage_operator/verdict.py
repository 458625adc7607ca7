"""Validates users' objects: the rules of `anchorage.api` and `anchorage.methods`, and fields that cannot change once training has started."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from anchorage.api.errors.documents import LABELS_MISSING, OUT_OF_RANGE, TOO_FEW_SILOS
from anchorage.api.federation import Federation, FederationSpec, Silo
from anchorage.api.mistakes import Mistake, dotted
from anchorage.api.objects import named, read_objects
from anchorage.methods import resolve
from anchorage.methods.checks import check
from anchorage.transport.kube.resources import Json
from anchorage_operator import reasons
from anchorage_operator.build_server import FEDERATION_FILE
from anchorage_operator.drift import parse_quantity
from anchorage_operator.names import LONGEST_FEDERATION, LONGEST_SILO, agent_name, server_name
from anchorage_operator.observed import Observed

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


def judge(observed: Observed, silos: Mapping[str, Json]) -> Verdict:
    """Check a federation and its silos.

    A mistake of a silo is held against that silo alone, unless it was accepted as it is: then the Federation was changed so that
    they no longer fit, and the change is refused.

    Parameters
    ----------
    observed : Observed
        Has the Federation object, and the children that run.
    silos : mapping of str to Json
        The silos that count, by name.
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
        federation, mistakes, made = _checked(observed.federation, [silos[name] for name in names])
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
    refused |= {
        name: change for name, silo in sound.items() for change in _immutable_silo_change(silo, observed.children)
    }
    sound = {name: sound[name] for name in silos if name in sound and name not in refused}
    if refusal is None and federation is not None:
        refusal = next(_immutable_change(federation, observed), None)
    return Verdict(None if refusal else federation, refusal, sound, refused)


def _was_accepted_before(silo: Json) -> bool:
    """Return whether the silo was accepted unchanged before: an error that it has now was caused by the Federation's spec."""
    generation = silo["metadata"].get("generation")
    conditions = (silo.get("status") or {}).get("conditions", ())
    accepted = next((each for each in conditions if each["type"] == "Accepted"), None)
    return accepted is not None and accepted["status"] == "True" and accepted.get("observedGeneration") == generation


def running_spec(observed: Observed) -> FederationSpec | None:
    """Return the spec in the server's ConfigMap; None if there is none, or if an older version wrote it in another form."""
    config = observed.children.get(("ConfigMap", server_name(observed.name)))
    return _spec_in(str(config.get("data", {}).get(FEDERATION_FILE, ""))) if config is not None else None


@lru_cache(maxsize=1024)  # every look at a federation reads the same text again
def _spec_in(text: str) -> FederationSpec | None:
    document = yaml.safe_load(text)
    if not isinstance(document, Mapping):
        return None
    reading = read_objects(document, ())
    return reading.federation.spec if reading.federation is not None and not reading.mistakes else None


def _checked(federation: Json, silos: Sequence[Json]) -> tuple[Federation | None, list[Mistake], Sequence[Silo | None]]:
    reading = read_objects(federation, silos)
    mistakes = [*reading.mistakes, *_long_names(federation, silos)]
    members = [silo for silo in reading.silos if silo is not None]
    if reading.federation is not None and len(members) == len(silos):
        mistakes += [named(mistake, silos) for mistake in check(reading.federation, members)]
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
    """Return the immutable field that was changed."""
    spec, before = federation.spec, running_spec(observed)
    if before is not None and _has_begun(observed):
        pairs: dict[str, tuple[Any, Any]] = {
            "spec.method": (resolve(before.method), resolve(spec.method)),
            "spec.warmUp": (_stages(before), _stages(spec)),
            "spec.model": (before.model, spec.model),
            "spec.seed": (before.seed, spec.seed),
            "spec.protocol.mode": (before.protocol.mode, spec.protocol.mode),
        }
        for path, (old, new) in pairs.items():
            if old != new:
                field, was, now = _difference(old, new)
                message = f"{path}{field} is {now}, but training started with {was}; restore it"
                yield Refusal(reasons.IMMUTABLE_FIELD_CHANGED, message)
    storage = spec.server.storage
    child = observed.children.get(("StatefulSet", server_name(observed.name)))
    yield from _immutable_volume_change("spec.server.storage", storage.size, storage.class_name, child)


def _immutable_silo_change(silo: Silo, children: Mapping[tuple[str, str], Json]) -> Iterator[Refusal]:
    if silo.spec.managed is not None:
        storage = silo.spec.managed.storage
        child = children.get(("StatefulSet", agent_name(silo.metadata.name)))
        yield from _immutable_volume_change("spec.managed.storage", storage.size, storage.class_name, child)


def _immutable_volume_change(path: str, size: str, class_name: str | None, child: Json | None) -> Iterator[Refusal]:
    claims = child["spec"].get("volumeClaimTemplates", ()) if child is not None else ()
    for claim in claims:
        found = str(claim["spec"]["resources"]["requests"]["storage"])
        if parse_quantity(found) != parse_quantity(size):
            message = f"{path}.size is {size}, but the volume was created with {found}; restore it"
            yield Refusal(reasons.IMMUTABLE_FIELD_CHANGED, message)
        found_class = claim["spec"].get("storageClassName")
        if class_name != found_class:
            message = f"{path}.className is {class_name}, but the volume was created with {found_class}; restore it"
            yield Refusal(reasons.IMMUTABLE_FIELD_CHANGED, message)


def _has_begun(observed: Observed) -> bool:
    status = observed.federation.get("status", {}) if observed.federation is not None else {}
    return bool(status.get("round") or status.get("startTime"))


def _stages(spec: FederationSpec) -> str:
    return "; ".join(", ".join((f"{s.method} for {s.rounds} rounds", *s.set)) for s in spec.warm_up) or "absent"


def _difference(old: Any, new: Any) -> tuple[str, Any, Any]:
    """Return the first field in which two values differ, with its old and new value."""
    if not hasattr(old, "model_dump"):
        return "", old, new
    return _first(old.model_dump(by_alias=True), new.model_dump(by_alias=True), ())


def _first(old: Any, new: Any, path: tuple[str, ...]) -> tuple[str, Any, Any]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in old.keys() | new.keys():
            if old.get(key) != new.get(key):
                return _first(old.get(key), new.get(key), (*path, key))
    return (f".{dotted(path)}" if path else ""), old, new
