"""Who is signed for, who is refused and with which words, and whom the server is told to let in."""

from dataclasses import replace
from typing import Any

import pytest
from plan_world import (
    DAY,
    NOW,
    SETTINGS,
    YEAR,
    crashed,
    effects_of,
    managed,
    pod,
    running,
    said,
    settled,
    silo,
    world,
)

from anchorage.api.errors import Failure
from anchorage.api.errors.identity import (
    NOT_APPROVED,
    REQUEST_REFUSED,
    TOKEN_EXPIRED,
    TOKEN_OF_ANOTHER_SILO,
    TOKEN_UNKNOWN,
    TOKEN_USED,
)
from anchorage.api.status import timestamp
from anchorage.transport.server_client import CertificateRequest, Member
from anchorage_operator.observed import Invitation, Observed
from anchorage_operator.plan import plan
from anchorage_operator.planned import MakeInvitation, PutMembers, Refuse, Sign

FRESH = Invitation("far-hash", NOW + DAY)
USED = Invitation("far-hash", NOW - DAY, "far-key", not_after=NOW + YEAR)
OTHER = Invitation("near-hash", NOW + DAY)


def decided(status: str) -> dict[str, Any]:
    reason = "ApprovedByUser" if status == "True" else "DeniedByUser"
    condition = {
        "type": "Approved",
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": timestamp(NOW),
    }
    return silo("far", status={"conditions": [condition]})


def enrol(name: str = "far", token: str = "far-hash", key: str = "far-key") -> CertificateRequest:
    return CertificateRequest("1", "Enrol", name, token, key, "csr", NOW)


def renew(name: str = "far", key: str = "far-key") -> CertificateRequest:
    return CertificateRequest("1", "Renew", name, "", key, "csr", NOW)


def asked(request: CertificateRequest, far: dict[str, Any], invitation: Invitation | None) -> Observed:
    invitations = {"near": OTHER} | ({} if invitation is None else {"far": invitation})
    observed = world(far, silo("near"), report=said())
    return replace(observed, requests=(request,), invitations=invitations, members=())


@pytest.mark.parametrize(
    ("request_", "far", "invitation"),
    [
        (enrol(), decided("True"), FRESH),
        (enrol(), decided("True"), replace(USED, expires=NOW - DAY)),
        (renew(), decided("True"), USED),
        (renew(key="another"), decided("True"), USED),
    ],
    ids=["first", "again-with-the-same-key", "renewal", "renewal-over-another-key"],
)
def test_who_is_signed_for(request_: CertificateRequest, far: dict[str, Any], invitation: Invitation) -> None:
    planned = plan(asked(request_, far, invitation), SETTINGS, NOW)
    (sign,) = effects_of(planned, Sign)
    assert (sign.request, sign.silo, sign.key, sign.csr) == ("1", "far", request_.key, "csr")
    assert (sign.owner["kind"], sign.owner["name"]) == ("Silo", "far")
    assert not list(effects_of(planned, Refuse))


@pytest.mark.parametrize(
    ("request_", "far", "invitation"),
    [
        (enrol(), silo("far"), FRESH),
        (renew(), silo("far"), USED),
        (enrol(), managed("far"), None),
    ],
    ids=["undecided", "renewal-undecided", "managed-before-its-invitation"],
)
def test_who_waits(request_: CertificateRequest, far: dict[str, Any], invitation: Invitation | None) -> None:
    planned = plan(asked(request_, far, invitation), SETTINGS, NOW)
    assert not list(effects_of(planned, Sign))
    assert not list(effects_of(planned, Refuse))


@pytest.mark.parametrize(
    ("request_", "far", "invitation", "failure"),
    [
        (enrol("nobody"), silo("far"), FRESH, TOKEN_UNKNOWN),
        (enrol(token="wrong"), decided("True"), FRESH, TOKEN_UNKNOWN),
        (enrol(token="wrong"), silo("far"), FRESH, TOKEN_UNKNOWN),
        (enrol(token="near-hash"), decided("True"), FRESH, TOKEN_OF_ANOTHER_SILO),
        (enrol(), decided("True"), None, TOKEN_UNKNOWN),
        (enrol(key="another"), decided("True"), USED, TOKEN_USED),
        (enrol(), decided("True"), replace(FRESH, expires=NOW), TOKEN_EXPIRED),
        (enrol(key=""), decided("True"), FRESH, REQUEST_REFUSED),
        (enrol(), decided("False"), FRESH, NOT_APPROVED),
        (renew(), decided("False"), USED, NOT_APPROVED),
        (renew(), decided("True"), FRESH, NOT_APPROVED),
        (renew("nobody"), decided("True"), USED, TOKEN_UNKNOWN),
    ],
)
def test_who_is_refused(
    request_: CertificateRequest, far: dict[str, Any], invitation: Invitation | None, failure: Failure
) -> None:
    planned = plan(asked(request_, far, invitation), SETTINGS, NOW)
    (refuse,) = effects_of(planned, Refuse)
    assert (refuse.request, refuse.code) == ("1", failure.code)
    assert "hash" not in refuse.message
    assert not list(effects_of(planned, Sign))


def test_members_are_approved_silos_that_have_a_certificate() -> None:
    observed = world(managed("a"), managed("b"), silo("far"), decided("False"), members=())
    observed = replace(observed, invitations={**observed.invitations, "far": USED}, members=())
    (put,) = effects_of(plan(observed, SETTINGS, NOW), PutMembers)
    assert put.members == (Member("a", "None", "a-key"), Member("b", "None", "b-key"))
    assert put.generation == 1
    approved = replace(observed, silos={**observed.silos, "far": decided("True")}, members=put.members)
    (put,) = effects_of(plan(approved, SETTINGS, NOW), PutMembers)
    assert Member("far", "None", "far-key") in put.members


def test_the_server_is_not_told_what_it_knows() -> None:
    observed = world(managed("a"), members=())
    assert observed.members == (Member("a", "None", "a-key"),)
    assert not list(effects_of(plan(observed, SETTINGS, NOW), PutMembers))
    assert not list(effects_of(plan(replace(observed, members=None), SETTINGS, NOW), PutMembers))


@pytest.mark.parametrize("change", ["deleted", "relabelled", "new key"])
def test_a_changed_member_is_told_at_once(change: str) -> None:
    observed = world(managed("a"), managed("b"), members=())
    silos, invitations = dict(observed.silos), dict(observed.invitations)
    if change == "deleted":
        silos["b"] = {**silos["b"], "metadata": {**silos["b"]["metadata"], "deletionTimestamp": timestamp(NOW)}}
        expected = {"a"}
    elif change == "relabelled":
        silos["b"] = {**silos["b"], "spec": {**silos["b"]["spec"], "labels": "All"}}
        expected = {"a", "b"}
    else:
        invitations["b"] = replace(invitations["b"], key="b-new")
        expected = {"a", "b"}
    planned = plan(replace(observed, silos=silos, invitations=invitations), SETTINGS, NOW)
    (put,) = effects_of(planned, PutMembers)
    assert {member.name for member in put.members} == expected


@pytest.mark.parametrize(
    ("invitation", "made"),
    [
        (None, True),
        (Invitation("h", NOW + 7 * DAY), True),
        (Invitation("h", NOW + 7 * DAY, has_token=True), False),
        (Invitation("h", NOW + DAY / 2, has_token=True), True),
        (Invitation("h", NOW - DAY, "key", has_token=True), False),
    ],
    ids=["none", "without-token", "fresh", "ending", "used"],
)
def test_a_managed_silo_s_pod_always_has_a_token_it_can_use(invitation: Invitation | None, made: bool) -> None:
    observed = world(managed("a"), pods=())
    invitations = {} if invitation is None else {"a": invitation}
    effects = list(effects_of(plan(replace(observed, invitations=invitations), SETTINGS, NOW), MakeInvitation))
    assert bool(effects) is made
    if made:
        assert effects[0].expires == NOW + 7 * DAY
        assert effects[0].owner["kind"] == "Silo"


def test_an_agent_that_lost_its_volume_gets_another_token() -> None:
    line = "ANC-2002 TokenUsed: the token of silo a was used with another key"
    pods = [pod("derm-server-0", "server", **running()), pod("a-silo-0", "silo", "a", **crashed(line, code=4))]
    observed = world(managed("a"), report=said())
    lost = replace(observed, pods=pods)
    assert len(list(effects_of(plan(lost, SETTINGS, NOW), MakeInvitation))) == 1
    after = settled(lost)[0]
    assert after.invitations["a"].key == ""
    assert after.members == () or after.members is None


def test_a_managed_silo_enrols_without_anybody() -> None:
    observed = world(managed("a"), report=said())
    fresh = replace(observed, invitations={"a": Invitation("a-hash", NOW + DAY, has_token=True)}, members=())
    asks = replace(fresh, requests=(CertificateRequest("7", "Enrol", "a", "a-hash", "k", "csr", NOW),))
    after, plans = settled(asks)
    assert [type(effect).__name__ for planned in plans for effect in planned.effects] == ["Sign", "PutMembers"]
    assert after.members == (Member("a", "None", "k"),)
