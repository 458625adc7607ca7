"""What the status of a Federation holds, and how often it is written."""

from dataclasses import replace
from typing import Any

import pytest
from plan_world import NOW, SETTINGS, conditions_of, federation, managed, said, settled, silo, world

from anchorage.api.status import CheckpointStatus, Condition, Metric, SiloStatus, StoredModel, TrackingStatus, timestamp
from anchorage_operator.observed import Json, Observed
from anchorage_operator.plan import plan


def status(observed: Observed) -> Json:
    assert observed.federation is not None
    status_before: Json = observed.federation["status"]
    return status_before


def training(progress: int = 0, last_seen: float = NOW, **more: Any) -> SiloStatus:
    values = {"name": "a", "connected": True, "state": "Training", "task": "Train", "progress": progress}
    return SiloStatus.model_validate(values | {"last_seen_time": timestamp(last_seen)} | more)


def reporting(*silos: SiloStatus, **more: Any) -> Any:
    values: dict[str, Any] = {"silos": silos, "connected_silos": len(silos), "round": 2, "progress_percentage": 10}
    return said(**(values | more))


def test_the_server_s_report_is_carried_over() -> None:
    report = reporting(
        training(40),
        metrics=(Metric(name="balanced_accuracy", value="0.5"), Metric(name="loss", value="1.0")),
        last_checkpoint=CheckpointStatus(
            round=2, path="/var/lib/anchorage/checkpoints/2", digest="xxh3:1", time=timestamp(NOW)
        ),
        model=StoredModel(path="/var/lib/anchorage/model/final.safetensors", digest="xxh3:2", round=2),
        tracking=TrackingStatus(uri="http://mlflow:5000", run_id="7"),
        bytes_up=5,
        bytes_down=6,
        metric="balanced_accuracy 0.500",
    )
    silo_status = status(world(managed("a"), silo("far"), report=report))
    assert (silo_status["round"], silo_status["rounds"], silo_status["progressPercentage"]) == (2, 20, 10)
    assert (silo_status["metric"], silo_status["silosSummary"]) == ("balanced_accuracy 0.500", "1/1")
    assert silo_status["lastCheckpoint"]["round"] == 2
    assert silo_status["tracking"]["runId"] == "7"
    assert silo_status["model"]["digest"] == "xxh3:2"
    assert (silo_status["bytesUp"], silo_status["bytesDown"]) == (5, 6)
    assert silo_status["certificates"].keys() == {"serverNotAfter", "authorityNotAfter"}
    assert silo_status["observedGeneration"] == 1
    assert silo_status["silos"][0]["progress"] == 40


def test_a_silo_s_object_has_every_field_that_the_server_reports_of_it() -> None:
    values: dict[str, Any] = {"rate": 7, "seconds_left": 8, "samples": 40, "weight": "0.5", "acceptance": "0.25"}
    known = training(40, **values, epsilon="1.5", code="ANC-3004", message="NaN", packages=("acme 0.1.0",))
    reported = known.model_dump(mode="json", by_alias=True, exclude={"name", "connected"})
    assert all(reported.values()), "a field whose value is the default proves nothing"
    observed = world(managed("a"), report=reporting(known))
    written = observed.silos["a"]["status"]
    assert {field: written[field] for field in reported} == reported
    assert "packages" not in status(observed)["silos"][0], "those of a thousand silos may not fit into one object"


def test_a_thousand_silos_at_most() -> None:
    silos = tuple(SiloStatus(name=f"s{number}") for number in range(1200))
    silo_status = status(world(managed("a"), report=said(silos=silos)))
    assert len(silo_status["silos"]) == 1000


def test_progress_is_written_once_per_poll() -> None:
    observed = world(managed("a"), report=reporting(training(10)))
    moved = replace(observed, report=reporting(training(60, NOW + 2), bytes_up=9))
    soon = plan(moved, SETTINGS, NOW + 2)
    assert soon.idle
    assert soon.requeue_after <= SETTINGS.poll_seconds
    later = plan(moved, SETTINGS, NOW + 5)
    assert later.federation_status is not None
    assert later.federation_status["silos"][0]["progress"] == 60
    assert later.federation_status["lastUpdatedTime"] == timestamp(NOW + 5)


def test_what_is_not_progress_is_written_at_once() -> None:
    observed = world(managed("a"), report=reporting(training(10)))
    committed = plan(replace(observed, report=reporting(training(10), round=3)), SETTINGS, NOW + 1)
    assert committed.federation_status is not None
    lost = plan(
        replace(observed, report=reporting(training(10, connected=False), connected_silos=0)), SETTINGS, NOW + 1
    )
    assert lost.federation_status is not None
    assert "a" in lost.silo_statuses


def test_a_silo_that_is_only_heard_of_is_no_news() -> None:
    observed = world(managed("a"), report=reporting(training(10)))
    reporting_world = replace(observed, report=reporting(training(10, NOW + 50), last_updated_time=timestamp(NOW + 50)))
    assert plan(reporting_world, SETTINGS, NOW + 50).idle
    long_after = replace(observed, report=reporting(training(10, NOW + 61)))
    assert plan(long_after, SETTINGS, NOW + 61).silo_statuses.keys() == {"a"}


def test_a_silo_s_progress_is_written_more_seldom() -> None:
    observed = world(managed("a"), report=reporting(training(10)))
    moved = replace(observed, report=reporting(training(60, NOW + 6)))
    planned = plan(moved, SETTINGS, NOW + 6)
    assert planned.federation_status is not None
    assert planned.silo_statuses == {}
    assert plan(replace(observed, report=reporting(training(60, NOW + 9))), SETTINGS, NOW + 9).silo_statuses.keys() == {
        "a"
    }


def test_what_the_api_server_fills_in_is_no_difference() -> None:
    observed = world(managed("a"), report=reporting(training(10)))
    old = observed.federation or {}
    filled = {**old, "status": {**old["status"], "completionTime": None, "bestModel": {}, "endpoint2": "", "bytes": 0}}
    assert plan(replace(observed, federation=filled), SETTINGS, NOW).idle


def test_without_a_server_nobody_is_connected() -> None:
    observed = world(managed("a"), report=reporting(training(10)))
    gone = settled(replace(observed, pods=(), report=None))[0]
    silo_status = status(gone)
    assert (silo_status["connectedSilos"], silo_status["silosSummary"], silo_status["step"]) == (0, "0/1", "")
    (silo,) = silo_status["silos"]
    assert (silo["connected"], silo["state"], silo["task"], silo["progress"]) == (False, "Waiting", "", 0)
    assert silo_status["round"] == 2
    assert not {"state", "task", "progress"} & gone.silos["a"]["status"].keys()


def tracked(status: str, reason: str, message: str = "") -> tuple[Condition, ...]:
    values = {"type": "Tracked", "status": status, "reason": reason, "message": message}
    return (Condition.model_validate({**values, "last_transition_time": timestamp(NOW)}),)


def test_what_mlflow_has_is_told_as_the_server_tells_it() -> None:
    assert "Tracked" not in conditions_of(status(world(managed("a"))))
    observed = world(managed("a"), report=reporting(conditions=tracked("Unknown", "Sending")))
    assert conditions_of(status(observed))["Tracked"] == ("Unknown", "Sending")
    down = replace(observed, report=reporting(conditions=tracked("False", "TrackingUnreachable", "it is down")))
    planned = plan(down, SETTINGS, NOW)
    assert [(event.type, event.reason, event.message) for event in planned.events] == [
        ("Warning", "TrackingUnreachable", "it is down")
    ]
    known = settled(down)[0]
    assert conditions_of(status(known))["Tracked"] == ("False", "TrackingUnreachable")
    assert conditions_of(status(known))["Ready"] == conditions_of(status(observed))["Ready"]
    assert conditions_of(status(settled(replace(known, report=None))[0]))["Tracked"][0] == "False"
    away = settled(replace(observed, pods=(), report=None))[0]
    assert conditions_of(status(away))["Tracked"] == ("Unknown", "ServerUnavailable")
    sent = plan(replace(known, report=reporting(conditions=tracked("True", "Sent"))), SETTINGS, NOW)
    assert [(event.type, event.reason) for event in sent.events] == [("Normal", "Tracked")]


def test_a_quiet_federation_is_looked_at_once_per_resync() -> None:
    assert plan(world(managed("a")), SETTINGS, NOW).requeue_after == SETTINGS.poll_seconds, "the server starts"
    well = world(managed("a"), managed("b"), report=said("a", "b"))
    assert plan(well, SETTINGS, NOW).requeue_after == SETTINGS.resync_seconds
    suspended = settled(Observed("study", "derm", federation(suspend=True)))[0]
    assert plan(suspended, SETTINGS, NOW).requeue_after == SETTINGS.resync_seconds


@pytest.mark.parametrize(("seconds", "written"), [(200, False), (301, True)])
def test_the_status_of_a_federation_that_trains_shows_that_somebody_looks(seconds: int, written: bool) -> None:
    observed = settled(world(managed("a"), managed("b"), report=said("a", "b", round=3)))[0]
    planned = plan(observed, SETTINGS, NOW + seconds)
    assert (planned.federation_status is not None) is written
