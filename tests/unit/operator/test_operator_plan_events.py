"""The story that Events tell: few, on transitions, never twice."""

from dataclasses import replace
from typing import Any

from plan_world import (
    NOW,
    SETTINGS,
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
    world,
)

from anchorage.api.status import SiloStatus
from anchorage_operator.conditions import LONGEST_MESSAGE, clip_message
from anchorage_operator.observed import Invitation, Observed, Unreachable
from anchorage_operator.planned import Event


def story(observed: Observed, now: float = NOW) -> tuple[Observed, list[Event]]:
    after, plans = settled(observed, now)
    return after, [event for planned in plans for event in planned.events]


def told(events: list[Event], about: str = "derm") -> list[tuple[str, str, str]]:
    return [(event.type, event.reason, event.message) for event in events if event.about["name"] == about]


def reasons(events: list[Event], about: str = "derm") -> list[str]:
    return [reason for _, reason, _ in told(events, about)]


SERVER = pod("derm-server-0", "server", **running())
AGENTS = [pod(f"{name}-silo-0", "silo", name, **running()) for name in ("a", "b")]


def test_a_run_from_beginning_to_end() -> None:
    observed, events = story(Observed("study", "derm", federation(), {"a": managed("a"), "b": managed("b")}))
    assert reasons(events) == ["Accepted"]
    invitations = {name: replace(i, key=f"{name}-key") for name, i in observed.invitations.items()}
    observed, events = story(replace(observed, pods=[SERVER, *AGENTS], report=said(), invitations=invitations))
    assert told(events) == [("Normal", "ServerAvailable", "the server's pod is running and responding")]
    assert reasons(events, "a") == ["SiloEnrolled"]
    observed, events = story(replace(observed, report=said("a", "b", step="train")))
    assert reasons(events) == ["QuorumMet", "TrainingStarted", "SiloConnected", "SiloConnected"]
    assert reasons(events, "a") == ["SiloConnected"]
    observed, events = story(replace(observed, report=said("a", "b", round=1)))
    assert events == [], "a round is no news"
    observed, events = story(replace(observed, report=said("a", "b", round=2)))
    assert told(events) == [("Normal", "Progress", "round 2 of 20 is committed")]
    observed, events = story(replace(observed, report=said("a", others=("b",), round=3)))
    assert told(events) == [
        ("Warning", "QuorumLost", "1 of 2 required silos are connected; missing: b"),
        ("Warning", "SiloLost", "silo b is no longer connected"),
    ]
    assert reasons(events, "b") == ["SiloLost"]
    observed, events = story(replace(observed, report=said("a", "b", round=3)))
    assert reasons(events) == ["QuorumMet", "SiloConnected"]
    observed, events = story(replace(observed, report=succeeded(progress_percentage=100)))
    assert told(events)[-2:] == [
        ("Normal", "Progress", "round 20 of 20 is committed; accuracy 0.969"),
        ("Normal", "Succeeded", "all rounds are committed"),
    ]
    assert observed.federation is not None
    assert observed.federation["status"]["silosSummary"] == "2/2"
    _, events = story(replace(observed, pods=[SERVER], report=succeeded(connected_silos=0, silos=())))
    assert events == [], "agents are expected to leave"


def test_a_server_that_comes_back_says_where_it_goes_on() -> None:
    observed = world(managed("a"), managed("b"), report=said("a", "b", round=7))
    killed = {"terminated": {"exitCode": 137, "reason": "Error"}}
    restarting = pod("derm-server-0", "server", **running(False, restartCount=1, lastState=killed))
    down, events = story(replace(observed, pods=[restarting, *AGENTS], report=Unreachable("Refused", "no", NOW - 1)))
    assert told(events)[0] == ("Warning", "Restarting", "the process exited with status 137 (killed)")
    _, events = story(replace(down, pods=[SERVER, *AGENTS], report=said("a", "b", round=7)))
    assert ("Normal", "CheckpointRestored", "the server resumed after round 7, the last committed one") in told(events)
    assert "TrainingStarted" not in reasons(events)
    alone = said(others=("a", "b"), round=7)
    _, events = story(replace(down, pods=[SERVER, *AGENTS], report=alone))
    assert "QuorumLost" not in reasons(events), "silos come back in seconds"


def test_a_failure_is_told_once_with_its_line() -> None:
    line = "ANC-1202 FolderMissing: nothing at /data/x"
    observed = world(managed("a"), pods=[pod("derm-server-0", "server", **crashed(line))])
    _, events = story(replace(observed, pods=[pod("derm-server-0", "server", **crashed(line, restarts=9))]))
    assert events == []
    observed = world(managed("a"), pods=[SERVER])
    _, events = story(replace(observed, pods=[pod("derm-server-0", "server", **crashed(line))]))
    failed = [message for kind, reason, message in told(events) if reason == "Failed" and kind == "Warning"]
    assert len(failed) == 1
    assert line in failed[0]


def test_an_agent_s_trouble_is_told_at_the_silo() -> None:
    observed = world(managed("a"))
    stuck = pod("a-silo-0", "silo", "a", **unscheduled("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."))
    _, events = story(replace(observed, pods=[SERVER, stuck]))
    (event,) = [event for event in events if event.about["name"] == "a"]
    assert (event.about["kind"], event.type, event.reason) == ("Silo", "Warning", "Unschedulable")
    assert event.message.startswith("no node has a free nvidia.com/gpu")


def test_a_hospital_on_its_way_in() -> None:
    observed = world(silo("far"), report=said())
    observed, events = story(replace(observed, invitations={"far": Invitation("h", NOW + 60)}))
    assert events == []
    observed, events = story(observed, NOW + 61)
    assert reasons(events, "far") == ["TokenExpired"]
    person = condition("Approved", "True", "ApprovedByUser").model_dump(mode="json", by_alias=True)
    far: dict[str, Any] = dict(observed.silos["far"])
    others = [each for each in far["status"]["conditions"] if each["type"] != "Approved"]
    far["status"] = {**far["status"], "conditions": [person, *others]}
    fresh = {"far": Invitation("h", NOW + 900, "k", not_after=NOW + 1000)}
    observed, events = story(replace(observed, silos={"far": far}, invitations=fresh), NOW + 70)
    assert reasons(events, "far") == ["SiloEnrolled"]


def test_many_silos_share_an_event() -> None:
    names = [f"silo-{number:02}" for number in range(30)]
    silos = tuple(SiloStatus(name=name, connected=True) for name in names)
    observed = world(*(silo(name) for name in names), report=said())
    _, events = story(replace(observed, report=said(silos=silos, connected_silos=30)))
    (event,) = [message for _, reason, message in told(events) if reason == "SiloConnected"]
    assert event.startswith("30 silos are connected: silo-00, silo-01")
    assert event.endswith("and 22 more")


def test_nobody_is_lost_before_there_was_a_quorum() -> None:
    observed, events = story(world(managed("a"), managed("b"), report=said("a", others=("b",), step="select")))
    assert observed.federation is not None
    quorum = next(each for each in observed.federation["status"]["conditions"] if each["type"] == "QuorumMet")
    assert (quorum["status"], quorum["reason"]) == ("False", "WaitingForSilos")
    _, events = story(replace(observed, report=said("a", "b", step="select")))
    assert reasons(events) == ["QuorumMet", "TrainingStarted", "SiloConnected"]


def test_suspension_is_told() -> None:
    observed = world(managed("a"), report=said("a"))
    old = observed.federation or {}
    suspended, events = story(replace(observed, federation={**old, "spec": {**old["spec"], "suspend": True}}))
    assert "Suspended" in reasons(events)
    back, events = story(replace(suspended, federation={**(suspended.federation or {}), "spec": old["spec"]}))
    assert "Resumed" in reasons(events)
    assert story(back)[1] == []


def test_messages_are_one_line_and_not_too_long() -> None:
    text = clip_message("ä\n" * 2000)
    assert "\n" not in text
    assert len(text.encode()) <= LONGEST_MESSAGE
    assert clip_message(" short\n line ") == "short line"
    observed = world(managed("a"), pods=[SERVER])
    _, events = story(replace(observed, pods=[pod("derm-server-0", "server", **unscheduled("x" * 5000))]))
    assert events
    assert all(len(event.message.encode()) <= LONGEST_MESSAGE for event in events)


def test_events_name_their_object() -> None:
    _, events = story(Observed("study", "derm", federation(), {"a": managed("a")}))
    assert events[0].about == {
        "apiVersion": "anchorage.dev/v1alpha1",
        "kind": "Federation",
        "name": "derm",
        "namespace": "study",
        "uid": "uid-derm",
    }
    assert SETTINGS.poll_seconds == 5
