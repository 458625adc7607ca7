"""What conditions say of certificates and of remote silos on their way in."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from plan_world import (
    CA,
    DAY,
    NOW,
    SETTINGS,
    YEAR,
    conditions_of,
    federation,
    managed,
    said,
    silo,
    world,
)

from anchorage.api.status import SiloStatus, timestamp
from anchorage_operator.membership import OWN_REASONS
from anchorage_operator.observed import (
    AuthorityFacts,
    CertificateFacts,
    CertificateRequest,
    Invitation,
    Json,
    Observed,
)
from anchorage_operator.plan import plan


@pytest.mark.parametrize(
    ("authority", "server", "expected"),
    [
        (None, None, ("False", "Pending")),
        (10 * YEAR, None, ("False", "Pending")),
        (10 * YEAR, YEAR, ("True", "Valid")),
        (60 * DAY, 30 * DAY, ("True", "CertificateExpiring")),
        (10 * YEAR, -1.0, ("False", "CertificateExpired")),
        (-1.0, YEAR, ("False", "CertificateExpired")),
        (10 * YEAR, 20 * DAY, ("True", "CertificateExpiring")),
    ],
)
def test_certificates(authority: float | None, server: float | None, expected: tuple[str, str]) -> None:
    observed = world(managed("a"))
    names = observed.server_certificate.names if observed.server_certificate else ()
    facts = None if authority is None else AuthorityFacts(CA, NOW + authority)
    certificate = None if server is None else CertificateFacts(NOW + server - YEAR, NOW + server, names, CA)
    planned = plan(replace(observed, authority=facts, server_certificate=certificate), SETTINGS, NOW)
    status = planned.federation_status or (observed.federation or {})["status"]
    assert conditions_of(status)["CertificatesValid"] == expected


REMOTE: dict[str, tuple[dict[str, Any], tuple[str, str], tuple[str, str]]] = {
    "not-invited": ({}, ("Unknown", "PendingApproval"), ("False", "NotInvited")),
    "invited": (
        {"invitations": {"far": Invitation("h", NOW + DAY)}},
        ("Unknown", "PendingApproval"),
        ("False", "Invited"),
    ),
    "late": (
        {"invitations": {"far": Invitation("h", NOW - 1)}},
        ("Unknown", "PendingApproval"),
        ("False", "TokenExpired"),
    ),
    "asks": (
        {
            "invitations": {"far": Invitation("h", NOW + DAY)},
            "requests": (CertificateRequest("1", "Enrol", "far", "h", "k", "csr", NOW),),
        },
        ("Unknown", "PendingApproval"),
        ("False", "PendingApproval"),
    ),
    "signed": (
        {"invitations": {"far": Invitation("h", NOW - DAY, "k", not_after=NOW + YEAR)}},
        ("Unknown", "PendingApproval"),
        ("True", "CertificateSigned"),
    ),
    "ended": (
        {"invitations": {"far": Invitation("h", NOW - DAY, "k", not_after=NOW - 1)}},
        ("Unknown", "PendingApproval"),
        ("False", "CertificateExpired"),
    ),
}


@pytest.mark.parametrize("name", REMOTE)
def test_a_remote_silo_on_its_way_in(name: str) -> None:
    more, approved, enrolled = REMOTE[name]
    observed = world(silo("far"), report=said(), **more)
    conditions = conditions_of(observed.silos["far"]["status"])
    assert (conditions["Approved"], conditions["Enrolled"]) == (approved, enrolled)
    assert "AgentAvailable" not in conditions
    assert conditions["Ready"][0] == "False"


@pytest.mark.parametrize(("status", "reason"), [("True", "ApprovedByUser"), ("False", "DeniedByUser")])
def test_a_person_s_decision_is_left_alone(status: str, reason: str) -> None:
    assert reason not in OWN_REASONS
    decision = {"type": "Approved", "status": status, "reason": reason, "lastTransitionTime": timestamp(NOW)}
    far = silo("far", status={"conditions": [decision]})
    planned = plan(Observed("study", "derm", federation(), {"far": far}), SETTINGS, NOW)
    written = planned.silo_statuses["far"]
    assert "Approved" not in conditions_of(written), "its owner stays fedctl"
    assert conditions_of(written)["Enrolled"][1] == ("Denied" if status == "False" else "NotInvited")
    assert plan(world(far), SETTINGS, NOW).idle


@pytest.mark.parametrize(
    "admission", [{"approval": "Automatic"}, {"approval": "Manual", "silos": ["far"]}, {"silos": ["far", "other"]}]
)
def test_approval_in_advance(admission: Mapping[str, Any]) -> None:
    observed = world(silo("far"), federation=federation(admission=admission))
    assert conditions_of(observed.silos["far"]["status"])["Approved"] == ("True", "ApprovedInAdvance")


def test_a_silo_tells_what_the_server_says_of_it() -> None:
    far = SiloStatus(
        name="far", connected=True, state="Training", task="Train", progress=40, rate=500_000, seconds_left=81, samples=812, weight="0.25",
        epsilon="1.5", last_seen_time=timestamp(NOW),
    )  # fmt: skip
    invitation = Invitation("h", NOW - DAY, "a" * 64, not_after=NOW + YEAR)
    report = said(silos=(far,), connected_silos=1)
    status: Json = world(silo("far"), report=report, invitations={"far": invitation}).silos["far"]["status"]
    observed_fields = (
        "role",
        "state",
        "progress",
        "rate",
        "secondsLeft",
        "samples",
        "weight",
        "epsilon",
        "lastSeenTime",
    )
    assert {key: status[key] for key in observed_fields} == {
        "role": "Remote",
        "state": "Training",
        "progress": 40,
        "rate": 500_000,
        "secondsLeft": 81,
        "samples": 812,
        "weight": "0.25",
        "epsilon": "1.5",
        "lastSeenTime": timestamp(NOW),
    }
    assert status["certificate"] == {"key": "a" * 64, "notAfter": timestamp(NOW + YEAR)}
    assert conditions_of(status)["Connected"] == ("True", "Connected")
    put_out = silo("far", status=status)
    status = world(put_out, report=said()).silos["far"]["status"]
    assert status["samples"] == 812 and not {"state", "task", "progress", "rate", "secondsLeft"} & status.keys(), (
        "it does nothing any more"
    )
