"""A small world for `plan`: objects as the API server gives them back, and what becomes of it when a plan is carried out."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from anchorage.api.status import Condition, FederationStatus, Metric, SiloStatus, seconds_of, timestamp
from anchorage_operator.drift import digest
from anchorage_operator.observed import (
    AuthorityFacts,
    CertificateFacts,
    Invitation,
    Json,
    Member,
    Observed,
)
from anchorage_operator.plan import plan
from anchorage_operator.planned import (
    MakeAuthority,
    MakeInvitation,
    MakeServerCertificate,
    MakeTrackingLogin,
    OwnAuthority,
    Plan,
    PutMembers,
    Refuse,
    Sign,
)
from anchorage_operator.settings import Images, OperatorSettings

NOW = seconds_of("2026-11-21T12:00:00Z")
YEAR = 365 * 86_400.0
DAY = 86_400.0
CA = "-----BEGIN CERTIFICATE-----\nthe authority of derm\n-----END CERTIFICATE-----\n"
SETTINGS = OperatorSettings(
    images=Images(server="example.org/anchorage-server:1", agent="example.org/anchorage-agent:1")
)
SPEC: dict[str, Any] = {
    "rounds": 20,
    "task": {"classification": {"classes": list("0123456789")}},
    "model": {"network": "SmallCnn", "imageSize": 8, "channels": 1, "augmentation": "Digits"},
    "method": {"name": "FedAnchor"},
    "protocol": {"minSilos": 2},
    "anchorData": {"format": "Digits", "use": "Anchors", "testPercent": 20, "anchors": 80},
}
DATA = {"format": "ImageFolder", "claimName": "images", "path": "train"}


def federation(name: str = "derm", *, generation: int = 1, status: Json | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "study", "uid": f"uid-{name}", "generation": generation}
    made: dict[str, Any] = {"apiVersion": "anchorage.dev/v1alpha1", "kind": "Federation", "metadata": metadata}
    return made | {"spec": deepcopy(SPEC) | spec} | ({} if status is None else {"status": status})


def silo(name: str, *, managed: Json | None = None, labels: str = "None", status: Json | None = None) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "study", "uid": f"uid-{name}", "generation": 1}
    spec: dict[str, Any] = {"federation": "derm", "labels": labels}
    if managed is not None:
        spec["managed"] = managed
    made: dict[str, Any] = {"apiVersion": "anchorage.dev/v1alpha1", "kind": "Silo", "metadata": metadata, "spec": spec}
    return made if status is None else {**made, "status": status}


def managed(name: str, **more: Any) -> dict[str, Any]:
    return silo(name, managed={"data": DATA, **more})


def pod(name: str, component: str, silo_name: str = "", **status: Any) -> dict[str, Any]:
    labels = {"anchorage.dev/federation": "derm", "app.kubernetes.io/component": component}
    if silo_name:
        labels["anchorage.dev/silo"] = silo_name
    metadata = {"name": name, "namespace": "study", "labels": labels, "creationTimestamp": timestamp(NOW - 60)}
    name_of_container = "agent" if component == "silo" else component
    containers = [{"name": name_of_container, "image": "example.org/anchorage-server:1"}]
    if silo_name and "containerStatuses" in status:
        other_containers = [{**each, "name": name_of_container} for each in status["containerStatuses"]]
        status = {**status, "containerStatuses": other_containers}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers},
        "status": status,
    }


def running(ready: bool = True, **container: Any) -> dict[str, Any]:
    """Status of a pod whose container runs."""
    each = {"name": "server", "ready": ready, "restartCount": 0, "state": {"running": {}}, **container}
    conditions = [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Ready", "status": "True" if ready else "False"},
    ]
    return {"phase": "Running", "containerStatuses": [each], "conditions": conditions}


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    """Status of a pod whose container waits."""
    state = {"waiting": {"reason": reason, "message": message}}
    each = {"name": "server", "ready": False, "restartCount": 0, "state": state, **more}
    return {"phase": "Pending", "containerStatuses": [each], "conditions": [{"type": "PodScheduled", "status": "True"}]}


def crashed(message: str = "", code: int = 3, reason: str = "Error", restarts: int = 2) -> dict[str, Any]:
    """Status of a pod in CrashLoopBackOff."""
    last = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return waiting("CrashLoopBackOff", "back-off", lastState=last, restartCount=restarts)


def unscheduled(message: str) -> dict[str, Any]:
    """Status of a pod that no node takes."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [condition]}


def said(*connected: str, others: tuple[str, ...] = (), round: int = 0, **more: Any) -> FederationStatus:
    """What a server reports while it trains."""
    silos = [SiloStatus(name=name, connected=name in connected) for name in sorted((*connected, *others))]
    values: dict[str, Any] = {
        "round": round,
        "rounds": 20,
        "progress_percentage": round * 5,
        "step": "train" if round else "",
        "connected_silos": len(connected),
        "silos": tuple(silos),
        "start_time": timestamp(NOW - 60),
        "last_updated_time": timestamp(NOW),
    }
    return FederationStatus(**(values | more))


def condition(kind: str, status: str, reason: str, message: str = "") -> Condition:
    values = {"type": kind, "status": status, "reason": reason, "message": message}
    return Condition.model_validate(values | {"last_transition_time": timestamp(NOW)})


def succeeded(**more: Any) -> FederationStatus:
    """What a server reports after the last round."""
    conditions = (condition("Succeeded", "True", "AllRoundsCommitted"),)
    metrics = (Metric(name="loss", value="0.2"), Metric(name="accuracy", value="0.96912"))
    return said(
        round=20, others=("a", "b"), step="", conditions=conditions, metrics=metrics, metric="accuracy 0.969", **more
    )


AUTHORITY = AuthorityFacts(CA, NOW + 10 * YEAR)


def world(*silos: Json, federation: Json | None = None, **more: Any) -> Observed:
    """A federation whose objects were made, whose server runs, and whose managed silos are enrolled."""
    fed = globals()["federation"]() if federation is None else federation
    observed = Observed("study", "derm", fed, {each["metadata"]["name"]: each for each in silos})
    observed = settled(observed)[0]
    invitations = {
        name: replace(invitation, key=f"{name}-key", not_after=NOW + YEAR)
        for name, invitation in observed.invitations.items()
    }
    pods = [pod("derm-server-0", "server", **running())]
    pods += [pod(f"{name}-silo-0", "silo", name, **running()) for name in invitations]
    return settled(replace(observed, **({"invitations": invitations, "pods": pods} | more)))[0]


def carried_out(observed: Observed, planned: Plan, now: float = NOW) -> Observed:
    """What is observed after a plan was carried out."""
    children = dict(observed.children)
    for built in planned.apply:
        key = (built["kind"], built["metadata"]["name"])
        children[key] = defaulted(built, children.get(key))
    invitations = dict(observed.invitations)
    for reference in planned.delete:
        if reference.kind == "Secret":
            invitations.pop(reference.name.removesuffix("-enrolment"), None)
        else:
            del children[reference.kind, reference.name]
    fed = observed.federation
    if planned.federation_status is not None and fed is not None:
        fed = {**fed, "status": deepcopy(planned.federation_status)}
    silos = {name: _with_status(each, planned.silo_statuses.get(name)) for name, each in observed.silos.items()}
    observed = replace(observed, federation=fed, silos=silos, children=children, invitations=invitations)
    for effect in planned.effects:
        observed = _effected(observed, effect, now)
    return observed


def settled(observed: Observed, now: float = NOW, settings: OperatorSettings = SETTINGS) -> tuple[Observed, list[Plan]]:
    """Plan and carry out until nothing is left to do; return every plan."""
    plans: list[Plan] = []
    for _ in range(6):
        plans.append(plan(observed, settings, now))
        if plans[-1].idle:
            return observed, plans
        observed = carried_out(observed, plans[-1], now)
    raise AssertionError(f"never at rest; the last plan was {plans[-1]}")


def defaulted(built: Json, before: Json | None) -> dict[str, Any]:
    """An object as the API server gives it back: empty parts left out, defaults filled in, quantities in its own form."""
    made = _bare(deepcopy(dict(built)))
    made["metadata"] |= {"resourceVersion": "7", "uid": f"uid-{made['kind']}", "generation": 1}
    if made["kind"] == "StatefulSet":
        spec = made["spec"]
        defaults = {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default"}
        spec["template"]["spec"] = defaults | spec["template"]["spec"]
        for container in spec["template"]["spec"]["containers"]:
            container["terminationMessagePath"] = "/dev/termination-log"
            for kind, part in container.get("resources", {}).items():
                if kind != "claims":
                    part.update({name: "1" if value == "1000m" else value for name, value in part.items()})
        spec["volumeClaimTemplates"][0]["status"] = {"phase": "Pending"}
    if made["kind"] == "Service":
        status = (before or {}).get("status", {"loadBalancer": {}})
        made |= {"status": status}
        made["spec"] |= {"clusterIP": "10.0.0.7", "sessionAffinity": "None"}
    return made


def conditions_of(status: Json | None) -> dict[str, tuple[str, str]]:
    """Status and reason of every condition."""
    assert status is not None
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def message_of(status: Json | None, kind: str) -> str:
    assert status is not None
    return next(str(each["message"]) for each in status["conditions"] if each["type"] == kind)


def stateful_set(planned: Plan, name: str) -> Json:
    stateful_sets = [
        each for each in planned.apply if each["kind"] == "StatefulSet" and each["metadata"]["name"] == name
    ]
    assert len(stateful_sets) == 1, f"{name} is not among {[each['metadata']['name'] for each in planned.apply]}"
    return stateful_sets[0]


def _bare(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _bare(item) for key, item in value.items() if item != []}
    return [_bare(item) for item in value] if isinstance(value, list) else value


def _with_status(each: Json, status: Json | None) -> Json:
    if status is None:
        return each
    types = {condition["type"] for condition in status["conditions"]}
    before = each.get("status", {}).get("conditions", ())
    others = [item for item in before if item["type"] == "Approved" and "Approved" not in types]
    return {**each, "status": {**deepcopy(dict(status)), "conditions": [*others, *status["conditions"]]}}


def _effected(observed: Observed, effect: object, now: float) -> Observed:
    invitations = dict(observed.invitations)
    match effect:
        case MakeAuthority():
            return replace(
                observed, authority=AuthorityFacts(CA, now + 10 * YEAR, effect.owner is not None, origin=digest(CA))
            )
        case OwnAuthority():
            assert observed.authority is not None
            return replace(observed, authority=replace(observed.authority, owned=effect.owner is not None))
        case MakeServerCertificate():
            assert observed.authority is not None
            made = CertificateFacts(now, now + YEAR, effect.names, observed.authority.certificate)
            return replace(observed, server_certificate=made)
        case MakeTrackingLogin():
            return replace(observed, has_tracking_login=True)
        case MakeInvitation():
            invitations[effect.silo] = Invitation(f"{effect.silo}-hash", effect.expires, has_token=True)
        case Sign():
            invitations[effect.silo] = replace(invitations[effect.silo], key=effect.key, not_after=now + YEAR)
            return replace(observed, invitations=invitations, requests=_without(observed, effect.request))
        case Refuse():
            return replace(observed, requests=_without(observed, effect.request))
        case PutMembers():
            return replace(observed, members=effect.members)
    return replace(observed, invitations=invitations)


def _without(observed: Observed, request: str) -> tuple[Any, ...]:
    return tuple(each for each in observed.requests if each.id != request)


def members(*names: str) -> tuple[Member, ...]:
    return tuple(Member(name, "None", f"{name}-key") for name in names)


def effects_of(planned: Plan, kind: type) -> Iterator[Any]:
    return (effect for effect in planned.effects if isinstance(effect, kind))


def applied(planned: Plan) -> list[tuple[str, str]]:
    """Kinds and names of what a plan makes or changes."""
    return [(each["kind"], each["metadata"]["name"]) for each in planned.apply]


def edited(observed: Observed, **spec: Any) -> Observed:
    """The federation with another spec and its next generation."""
    old: Json = observed.federation or {}
    metadata = {**old["metadata"], "generation": old["metadata"]["generation"] + 1}
    return replace(observed, federation={**old, "metadata": metadata, "spec": {**old["spec"], **spec}})
