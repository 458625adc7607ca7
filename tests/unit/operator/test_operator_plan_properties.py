"""Whatever is observed: a plan that was carried out leaves nothing to do, and no plan says what the API would refuse."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_world import (
    CA,
    DAY,
    NOW,
    SETTINGS,
    YEAR,
    condition,
    crashed,
    federation,
    managed,
    pod,
    running,
    said,
    settled,
    silo,
    succeeded,
    unscheduled,
    waiting,
)

from anchorage.api.federation import Federation, Silo
from anchorage.api.status import timestamp
from anchorage_operator.observed import (
    AuthorityFacts,
    CertificateFacts,
    CertificateRequest,
    Invitation,
    Json,
    Observed,
    Unreachable,
)
from anchorage_operator.plan import plan
from anchorage_operator.planned import Plan

NAMES = ("a", "b", "far", "near")
SPECS: list[dict[str, Any]] = [
    {},
    {"suspend": True},
    {"rounds": 2},
    {"deletionPolicy": "Delete"},
    {"admission": {"approval": "Automatic"}},
    {"server": {"service": {"type": "LoadBalancer"}, "address": "fed.example.org:443"}},
    {"server": {"resources": {"requests": {"cpu": "1000m"}, "limits": {"nvidia.com/gpu": 1}}}},
    {"rounds": 0},
    {"method": {"name": "SemiAnAgg"}, "protocol": {"mode": "Asynchronous"}},
    {"unknown": True},
]
STATUSES = st.sampled_from(
    [
        running(),
        running(ready=False),
        waiting("ContainerCreating"),
        waiting("ImagePullBackOff", "Back-off"),
        crashed("ANC-3002 DeadlineExceeded: too long", code=5),
        crashed("", code=137, reason="OOMKilled"),
        unscheduled("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."),
        {},
    ]
)
INVITATIONS = st.builds(
    Invitation,
    hash=st.sampled_from(["h1", "h2"]),
    expires=st.sampled_from([NOW - DAY, NOW + DAY / 2, NOW + 5 * DAY]),
    key=st.sampled_from(["", "1" * 64, "2" * 64]),
    has_token=st.booleans(),
    not_after=st.sampled_from([0.0, NOW - 1, NOW + YEAR]),
)
REQUESTS = st.builds(
    CertificateRequest,
    id=st.sampled_from(["1", "2", "3"]),
    kind=st.sampled_from(["Enrol", "Renew"]),
    silo=st.sampled_from([*NAMES, "nobody"]),
    token_hash=st.sampled_from(["h1", "h2", "h3"]),
    key=st.sampled_from(["", "1" * 64, "2" * 64]),
    csr=st.just("csr"),
    time=st.just(NOW),
)
REPORTS = st.sampled_from(
    [
        None,
        Unreachable("Timeout", "no answer", NOW - 3),
        Unreachable("Timeout", "no answer", NOW - 300),
        said(),
        said("a", "b", round=3),
        said("a", others=("b", "far"), round=3),
        said("a", round=3, conditions=(condition("Failed", "True", "DeadlineExceeded", "too long"),)),
        succeeded(),
    ]
)


@st.composite
def silos(draw: st.DrawFn, name: str) -> Json | None:
    kind = draw(st.sampled_from(["none", "managed", "remote", "broken", "approved", "denied", "leaving"]))
    if kind == "none":
        return None
    made = managed(name) if kind in ("managed", "broken", "leaving") else silo(name)
    if kind == "broken":
        made["spec"]["managed"] = {"data": {"format": "ImageFolder"}}
    if kind == "leaving":
        made["metadata"]["deletionTimestamp"] = timestamp(NOW)
    if kind in ("approved", "denied"):
        decided = condition("Approved", "True" if kind == "approved" else "False", "Decided")
        made["status"] = {"conditions": [decided.model_dump(mode="json", by_alias=True)]}
    return made


@st.composite
def worlds(draw: st.DrawFn) -> Observed:
    spec = draw(st.sampled_from(SPECS))
    members = {name: draw(silos(name)) for name in NAMES}
    observed = Observed(
        "study",
        "derm",
        draw(st.sampled_from([federation(**spec), federation(**spec), None])),
        {name: each for name, each in members.items() if each is not None},
        authority=draw(
            st.sampled_from([None, AuthorityFacts(CA, NOW + 10 * YEAR), AuthorityFacts(CA, NOW + DAY, True)])
        ),
        invitations=draw(st.dictionaries(st.sampled_from(NAMES), INVITATIONS, max_size=4)),
        members=draw(st.sampled_from([None, ()])),
        requests=tuple({each.id: each for each in draw(st.lists(REQUESTS, max_size=3))}.values()),
    )
    if observed.authority is not None and draw(st.booleans()):
        observed = replace(observed, server_certificate=CertificateFacts(NOW - DAY, NOW + YEAR, (), CA))
    pods = [pod("derm-server-0", "server", **draw(STATUSES))]
    pods += [pod(f"{name}-silo-0", "silo", name, **draw(STATUSES)) for name in observed.silos]
    return replace(observed, pods=pods, report=draw(REPORTS))


def well_formed(observed: Observed, planned: Plan) -> None:
    """Check what the API server checks."""
    if planned.federation_status is not None:
        named = {**federation(), "metadata": {"name": "derm"}, "status": planned.federation_status}
        Federation.model_validate_json(json.dumps(named))
    for name, status in planned.silo_statuses.items():
        Silo.model_validate_json(json.dumps({**silo(name), "metadata": {"name": name}, "status": status}))
    keys = [(each["kind"], each["metadata"]["name"]) for each in planned.apply]
    assert len(keys) == len(set(keys))
    assert not set(keys) & {(reference.kind, reference.name) for reference in planned.delete}
    for event in planned.events:
        assert event.message
        assert len(event.message.encode()) <= 1024
    assert 1 <= planned.requeue_after <= SETTINGS.resync_seconds
    answered = [effect.request for effect in planned.effects if hasattr(effect, "request")]
    assert len(answered) == len(set(answered))
    assert observed.federation is not None or not planned.effects


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(), REPORTS, st.floats(0, 3 * DAY))
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(observed: Observed, report: Any, later: float) -> None:
    at_rest, plans = settled(observed)
    for planned in plans:
        well_formed(observed, planned)
    resettled, plans = settled(replace(at_rest, report=report), NOW + later)
    for planned in plans:
        well_formed(resettled, planned)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds())
def test_a_plan_depends_on_nothing_else(observed: Observed) -> None:
    assert plan(observed, SETTINGS, NOW) == plan(observed, SETTINGS, NOW)
