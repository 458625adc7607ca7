"""What the operator refuses: in the words of `fedctl validate` what the API server takes, and what cannot change; what runs goes on."""

import runpy
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plan_world import (
    DATA,
    NOW,
    SETTINGS,
    SPEC,
    applied,
    conditions_of,
    edited,
    federation,
    managed,
    message_of,
    said,
    settled,
    silo,
    world,
)

from anchorage.api.status import SiloStatus, timestamp
from anchorage_operator.observed import Observed
from anchorage_operator.plan import plan

CLUSTER_TESTS = Path(__file__).parents[2] / "cluster"
with pytest.MonkeyPatch.context() as patched:
    patched.syspath_prepend(CLUSTER_TESTS)
    TABLE = runpy.run_path(str(CLUSTER_TESTS / "left_to_the_operator.py"), run_name="left_to_the_operator")

PARTITION = {"recipe": "PerClient", "parts": 3, "part": 1, "alpha": "0.5"}
STAGE: dict[str, Any] = {"method": "FedBarlow", "rounds": 1, "set": ["local.epochs=1"]}


@pytest.mark.parametrize("case", TABLE["LEFT_TO_THE_OPERATOR"], ids=lambda case: case.name)
def test_what_the_api_server_takes_is_not_accepted(case: Any) -> None:
    of_silo = case.document["kind"] == "Silo"
    federation, silos = (TABLE["ANCHORED"], {"hospital-a": stored(case.document)}) if of_silo else (case.document, {})
    planned = plan(Observed("study", "derm", stored(federation), silos), SETTINGS, NOW)
    status = planned.silo_statuses["hospital-a"] if of_silo else planned.federation_status
    assert conditions_of(status)["Accepted"] == ("False", "InvalidSpec")
    assert f"{case.path}: " in message_of(status, "Accepted")
    assert "more)" not in message_of(status, "Accepted"), "one mistake"


def stored(document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {**document["metadata"], "namespace": "study", "uid": "uid", "generation": 1}
    return {**document, "metadata": metadata}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"protocol": {"minSilos": 3, "silosPerRound": 2}}, "silosPerRound is 2"),
        ({"method": {"name": "NoSuch"}}, "NoSuch"),
        ({"anchorData": None}, "anchorData"),
        ({"rounds": "many"}, "spec.rounds"),
        ({"unknown": 1}, "spec.unknown"),
    ],
)
def test_nonsense_is_refused_and_what_runs_goes_on(spec: dict[str, Any], words: str) -> None:
    observed = world(managed("a"), report=said("a", round=2))
    nonsense = replace(edited(observed, **spec), members=())
    planned = plan(nonsense, SETTINGS, NOW)
    assert (planned.apply, planned.delete) == ((), ())
    assert conditions_of(planned.federation_status)["Accepted"] == ("False", "InvalidSpec")
    assert words in message_of(planned.federation_status, "Accepted")
    assert conditions_of(planned.federation_status)["ServerAvailable"] == ("True", "Available")
    assert conditions_of(planned.federation_status)["Ready"] == ("False", "InvalidSpec")
    assert [type(effect).__name__ for effect in planned.effects] == ["PutMembers"], "members still come and go"
    fresh = plan(Observed("study", "derm", federation(**spec)), SETTINGS, NOW)
    assert (fresh.apply, fresh.effects) == ((), ())
    assert conditions_of(fresh.federation_status)["ServerAvailable"] == ("False", "FederationNotAccepted")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"seed": 2}, "spec.seed is 2, but training began with 1"),
        ({"method": {"name": "FedAvg"}}, "spec.method"),
        ({"method": {"name": "FedAnchor", "local": {"epochs": 9}}}, "spec.method.local.epochs is 9"),
        ({"task": {"classification": {"classes": ["a", "b"]}}}, "spec.task"),
        ({"warmUp": [STAGE | {"rounds": 2}]}, 'spec.warmUp is [{"method": "FedBarlow", "rounds": 2'),
        ({"warmUp": [STAGE | {"set": ["local.epochs=2"]}]}, '"set": ["local.epochs=2"]}], but training began with'),
        ({"rounds": 2}, "spec.rounds is 2, but 3 rounds are committed"),
        ({"anchorData": SPEC["anchorData"] | {"anchors": 90}}, "spec.anchorData.anchors is 90"),
        (
            {"evaluation": {"validation": {"format": "Digits"}}},
            "spec.evaluation.validation.format is Digits, but training began",
        ),
    ],
)
def test_what_is_fixed_once_training_began(spec: dict[str, Any], words: str) -> None:
    observed = world(managed("a"), report=said("a", round=3), federation=federation(warmUp=[STAGE]))
    planned = plan(edited(observed, **spec), SETTINGS, NOW)
    assert planned.apply == ()
    assert conditions_of(planned.federation_status)["Accepted"] == ("False", "ImmutableFieldChanged")
    assert words in message_of(planned.federation_status, "Accepted")


def test_before_training_began_everything_may_change() -> None:
    observed = settled(Observed("study", "derm", federation()))[0]
    planned = plan(edited(observed, seed=2, method={"name": "FedAvg"}), SETTINGS, NOW)
    assert ("ConfigMap", "derm-server") in applied(planned)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": "All"}, "silo a spec.labels is All, but training began with None"),
        ({"managed": {"data": DATA | {"path": "other"}}}, "silo a spec.managed.data.path is other"),
        ({"managed": {"data": DATA | {"partition": PARTITION}}}, "silo a spec.managed.data.partition"),
    ],
)
def test_a_silo_s_images_are_fixed_once_it_trained(change: dict[str, Any], words: str) -> None:
    begun = world(managed("a"), report=said("a", round=2))
    for samples, accepted in ((0, ("True", "Accepted")), (40, ("False", "ImmutableFieldChanged"))):
        silos = (SiloStatus(name="a", connected=True, samples=samples, last_seen_time=timestamp(NOW)),)
        observed = settled(replace(begun, report=said("a", round=2, silos=silos)))[0]
        old = observed.silos["a"]
        metadata = {**old["metadata"], "generation": old["metadata"]["generation"] + 1}
        edited_silo = {**old, "metadata": metadata, "spec": {**old["spec"], **change}}
        planned = plan(replace(observed, silos={"a": edited_silo}), SETTINGS, NOW)
        assert conditions_of(planned.silo_statuses["a"])["Accepted"] == accepted
        assert (("ConfigMap", "a-silo") in applied(planned)) == (samples == 0)
        if samples:
            assert words in message_of(planned.silo_statuses["a"], "Accepted")


def test_a_silo_s_mistake_is_its_own() -> None:
    observed = world(managed("a"), report=said("a", round=2))
    broken = managed("b")
    broken["spec"]["managed"]["data"] = {"format": "ImageFolder"}
    planned = plan(replace(observed, silos={**observed.silos, "b": broken}), SETTINGS, NOW)
    assert conditions_of(planned.federation_status)["Accepted"] == ("True", "Accepted")
    assert message_of(planned.federation_status, "Accepted") == "silos that are not accepted: b"
    assert conditions_of(planned.silo_statuses["b"])["Ready"] == ("False", "InvalidSpec")
    assert "claimName" in message_of(planned.silo_statuses["b"], "Accepted")
    assert applied(planned) == []


@pytest.mark.parametrize(
    ("method", "labels", "words"),
    [
        ("FedAnchor", "None", ""),
        ("FedAnchor", "All", "a: FedAnchor guesses the labels of all images at silos"),
        ("FedAvg", "All", "b: labels: None, and FedAvg learns from labelled images alone"),
    ],
)
def test_what_an_author_may_not_mean_is_said_and_accepted(method: str, labels: str, words: str) -> None:
    silos = (silo("a", managed={"data": DATA}, labels=labels), managed("b"))
    accepted = world(*silos, federation=federation(method={"name": method})).federation
    assert accepted is not None
    assert conditions_of(accepted["status"])["Accepted"] == ("True", "Accepted")
    message = message_of(accepted["status"], "Accepted")
    assert words in message if words else not message


def drawing(name: str, part: int, percent: int = 20) -> dict[str, Any]:
    """A managed silo that takes a part of the federation's own images."""
    partition = {"recipe": "PerClient", "parts": 3, "part": part}
    data = {"format": "Digits", "use": "Part", "testPercent": percent, "anchors": 80, "partition": partition}
    return silo(name, managed={"data": data})


def test_a_federation_that_no_longer_fits_its_silos_is_refused_and_they_stay() -> None:
    evaluation = {"validation": {"format": "Digits", "use": "Test", "testPercent": 20, "anchors": 80}}
    observed = world(drawing("a", 0), drawing("b", 1), federation=federation(evaluation=evaluation))
    anchors = {"format": "Digits", "use": "Anchors", "testPercent": 30, "anchors": 80}
    changed = edited(
        observed, anchorData=anchors, evaluation={"validation": {**evaluation["validation"], "testPercent": 30}}
    )
    planned = plan(changed, SETTINGS, NOW)
    assert conditions_of(planned.federation_status)["Accepted"] == ("False", "InvalidSpec")
    assert "Silo a: spec.managed.data.testPercent" in message_of(planned.federation_status, "Accepted")
    assert (planned.apply, planned.delete, planned.silo_statuses) == ((), (), {})
    assert settled(changed)[0].silos["a"]["status"] == observed.silos["a"]["status"]


def test_a_silo_trained_whatever_became_of_its_status() -> None:
    """As after its status was lost: the server knows."""
    silos = (SiloStatus(name="a", connected=True, samples=40, last_seen_time=timestamp(NOW)),)
    observed = world(managed("a"), report=said("a", round=2, silos=silos))
    bare = {key: value for key, value in observed.silos["a"].items() if key != "status"}
    edited_silo = {**bare, "spec": {**bare["spec"], "labels": "All"}}
    planned = plan(replace(observed, silos={"a": edited_silo}), SETTINGS, NOW)
    assert conditions_of(planned.silo_statuses["a"])["Accepted"] == ("False", "ImmutableFieldChanged")


def test_the_validation_images_are_fixed_once_training_began() -> None:
    """Scores on the anchors, which the server trains on, would be others."""
    pool = {"format": "Digits", "testPercent": 20, "anchors": 80}
    evaluation = {"validation": {**pool, "use": "Test"}}
    observed = world(managed("a"), report=said("a", round=2), federation=federation(evaluation=evaluation))
    planned = plan(edited(observed, evaluation={"validation": {**pool, "use": "Anchors"}}), SETTINGS, NOW)
    assert "spec.evaluation.validation.use is Anchors" in message_of(planned.federation_status, "Accepted")
    assert planned.apply == ()


def test_the_silo_that_takes_another_s_part_is_refused() -> None:
    observed = world(drawing("b", 0), drawing("c", 1))
    planned = plan(replace(observed, silos={**observed.silos, "a": drawing("a", 1)}), SETTINGS, NOW)
    assert conditions_of(planned.silo_statuses["a"])["Accepted"] == ("False", "InvalidSpec")
    assert "c" not in planned.silo_statuses
    assert "the same part as silo c" in message_of(planned.silo_statuses["a"], "Accepted")


def test_a_running_silo_that_is_edited_into_nonsense_stays_a_member() -> None:
    observed = world(managed("a"), report=said("a", round=2))
    broken = deepcopy(observed.silos["a"])
    broken["spec"]["managed"]["data"] = {"format": "ImageFolder"}
    planned = plan(replace(observed, silos={"a": broken}, members=None), SETTINGS, NOW)
    assert (planned.apply, planned.delete) == ((), ())
    assert conditions_of(planned.silo_statuses["a"])["Connected"] == ("True", "Connected")


def test_silos_that_no_method_can_learn_from_are_told_before_training_began() -> None:
    unlabelled = Observed("study", "derm", federation(method={"name": "FedAvg"}), {"a": managed("a")})
    planned = plan(unlabelled, SETTINGS, NOW)
    assert conditions_of(planned.federation_status)["Accepted"] == ("False", "InvalidSpec")
    assert "every silo has labels: None" in message_of(planned.federation_status, "Accepted")
    alone = settled(replace(unlabelled, silos={}))[0]
    begun = settled(replace(alone, report=said(), silos={"a": managed("a")}))[0]
    assert begun.federation is not None
    assert conditions_of(begun.federation["status"])["Accepted"] == ("True", "Accepted")


def test_names_that_pods_cannot_carry_are_refused() -> None:
    long = "f" * 46
    planned = plan(Observed("study", long, federation(long)), SETTINGS, NOW)
    assert "at most 45 are allowed" in message_of(planned.federation_status, "Accepted")
