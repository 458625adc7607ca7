"""The specs in use: the objects' own where they are accepted, else what was accepted last.

Of a refused object, the fields that do not depend on what is trained are honoured one by one: a study can be stopped, and its pods be
given other resources, whatever else is wrong.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

import yaml

from anchorage.api.agent import option_names
from anchorage.api.federation import Federation, Silo
from anchorage.api.objects import read_objects
from anchorage.transport.kube.resources import Json, json_object, kube_object
from anchorage_operator.names import ACCEPTED_SPEC, AGENT_FILE, FEDERATION_FILE, agent_name, server_name
from anchorage_operator.observed import Observed
from anchorage_operator.yaml_text import as_yaml

CLUSTER_ONLY = ("suspend", "deletionPolicy", "admission", "server", "queueName")
"""Fields of a Federation's spec that the server does not see, so that a change of them does not restart it."""
OF_THE_POD = ("resources", "storage", "pod", "policy", *option_names(deciding=False))
"""Fields of a Silo's ``managed`` that do not decide what its agent trains on."""

Typed = TypeVar("Typed", Federation, Silo)


@dataclass(frozen=True, slots=True)
class InUse(Generic[Typed]):
    """An object whose spec is in use."""

    typed: Typed
    object: Json
    """The same as it was written."""


def accepted_spec(values: Json) -> dict[str, str]:
    """Return the annotation of a ConfigMap that keeps what was accepted and is not in its data."""
    return {ACCEPTED_SPEC: json.dumps(values, sort_keys=True, separators=(",", ":"))}


def cluster_only(federation: Json) -> dict[str, object]:
    """Return those fields of a Federation's spec that its server does not see."""
    return {name: federation["spec"][name] for name in CLUSTER_ONLY if name in federation["spec"]}


def running_federation(observed: Observed) -> Federation | None:
    """Return what the server runs by its ConfigMap; None if there is none, or if an older version wrote it in another form."""
    config = observed.children.get(("ConfigMap", server_name(observed.name)))
    return _federation_in(_text(config, FEDERATION_FILE)) if config is not None else None


def running_silo(observed: Observed, name: str) -> Silo | None:
    """Return what a managed silo's agent trains on by its ConfigMap, None as above; how its pod is made is not told there."""
    config = observed.children.get(("ConfigMap", agent_name(name)))
    spec = _trained_on(_text(config, AGENT_FILE)) if config is not None else None
    return _silo(kube_object("Silo", {"name": name}, spec=spec)) if spec is not None else None


def last_federation(observed: Observed) -> InUse[Federation] | None:
    """Return the Federation as it was accepted last, with `CLUSTER_ONLY` as the refused object says where that makes sense."""
    config = observed.children.get(("ConfigMap", server_name(observed.name)))
    if config is None or observed.federation is None or running_federation(observed) is None:
        return None
    document = _mapping(_text(config, FEDERATION_FILE))
    spec = _apply_fields(
        {**document["spec"], **_read_annotation(config)},
        observed.federation["spec"],
        CLUSTER_ONLY,
        lambda trial: _federation_in(as_yaml({**document, "spec": trial})) is not None,
    )
    made = _federation_in(as_yaml({**document, "spec": spec}))
    return InUse(made, {**observed.federation, "spec": spec}) if made is not None else None


def last_silo(observed: Observed, name: str) -> InUse[Silo] | None:
    """Return a managed Silo as it was accepted last, with `OF_THE_POD` as the refused object says where that makes sense."""
    config, silo_object = observed.children.get(("ConfigMap", agent_name(name))), observed.silos[name]
    known = _trained_on(_text(config, AGENT_FILE)) if config is not None else None
    if config is None or known is None:
        return None
    asked: Json = silo_object["spec"].get("managed") or {}
    spec = {**known, **_read_annotation(config)}
    managed = _apply_fields(
        spec["managed"],
        asked,
        OF_THE_POD,
        lambda trial: _silo({**silo_object, "spec": {**spec, "managed": trial}}) is not None,
    )
    made = {**silo_object, "spec": {**spec, "managed": managed}}
    silo = _silo(made)
    return InUse(silo, made) if silo is not None else None


def _apply_fields(
    known: Json, asked: Json, fields: Sequence[str], makes_sense: Callable[[dict[str, object]], bool]
) -> dict[str, object]:
    """Return the known values with each of the fields as asked for, if that makes sense."""
    values = dict(known)
    for field in fields:
        trial = {name: value for name, value in values.items() if name != field}
        trial |= {field: asked[field]} if field in asked else {}
        if trial != values and makes_sense(trial):
            values = trial
    return values


def _text(config: Json, file: str) -> str:
    return str(config.get("data", {}).get(file, ""))


def _read_annotation(config: Json) -> Json:
    """Return what the annotation keeps; nothing where somebody wrote something else into it."""
    return json_object(config["metadata"].get("annotations", {}).get(ACCEPTED_SPEC, "{}").encode())


def _mapping(text: str) -> dict[str, Any]:
    """Parse a YAML mapping; return an empty one where the text is none, as somebody else may have written it."""
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


@lru_cache(maxsize=1024)  # every look at a federation reads the same text again
def _federation_in(text: str) -> Federation | None:
    document = _mapping(text)
    if not document:
        return None
    reading = read_objects(document, ())
    return reading.federation if not reading.mistakes else None


@lru_cache(maxsize=16_384)
def _trained_on(text: str) -> Json | None:
    """Return the part of a Silo's spec that is in its agent's configuration."""
    agent = _mapping(text)
    if not agent:
        return None
    return {
        "federation": agent.get("federation"),
        "labels": agent.get("labels"),
        "managed": {name: agent[name] for name in ("data", *option_names(deciding=True)) if name in agent},
    }


def _silo(silo: Json) -> Silo | None:
    return _silo_in(json.dumps({"metadata": {"name": silo["metadata"]["name"]}, "spec": silo["spec"]}, sort_keys=True))


@lru_cache(maxsize=16_384)
def _silo_in(text: str) -> Silo | None:
    values = json.loads(text)
    return read_objects({}, [kube_object("Silo", values["metadata"], spec=values["spec"])]).silos[0]
