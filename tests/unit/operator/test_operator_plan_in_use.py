"""A refused edit keeps nobody from stopping a study, freeing its devices or giving its pods other resources; volumes block nothing."""

from dataclasses import replace
from typing import Any

import pytest
from plan_world import (
    DATA,
    NOW,
    SETTINGS,
    applied,
    conditions_of,
    edited,
    federation,
    managed,
    message_of,
    said,
    settled,
    silo,
    stateful_set,
    succeeded,
    world,
)

from anchorage.api.status import SiloStatus, timestamp
from anchorage_operator.observed import Observed
from anchorage_operator.plan import plan
from anchorage_operator.planned import GrowClaim, OwnAuthority

REFUSED: list[dict[str, Any]] = [{"seed": 2}, {"rounds": "many"}, {"method": {"name": "NoSuch"}}]
LIMITS = {"resources": {"limits": {"cpu": "3"}}}


def training(**spec: Any) -> Observed:
    """A study in its third round, of two managed silos that trained."""
    last_used = timestamp(NOW)
    silos = tuple(SiloStatus(name=each, connected=True, samples=40, last_seen_time=last_used) for each in "ab")
    report = said("a", "b", round=3, silos=silos)
    return world(managed("a"), managed("b"), report=report, federation=federation(**spec))


def edited_silo(observed: Observed, name: str, **spec: Any) -> Observed:
    old = observed.silos[name]
    metadata = {**old["metadata"], "generation": old["metadata"]["generation"] + 1}
    return replace(
        observed, silos={**observed.silos, name: {**old, "metadata": metadata, "spec": {**old["spec"], **spec}}}
    )


def replicas(observed: Observed) -> dict[str, int]:
    sets = ((name, child) for (kind, name), child in observed.children.items() if kind == "StatefulSet")
    return {name: int(child["spec"]["replicas"]) for name, child in sets}


@pytest.mark.parametrize("wrong", REFUSED)
def test_suspend_stops_everything_whatever_else_is_wrong(wrong: dict[str, Any]) -> None:
    stopped = settled(edited(training(), suspend=True, **wrong))[0]
    assert set(replicas(stopped).values()) == {0}
    assert stopped.federation is not None
    conditions = conditions_of(stopped.federation["status"])
    assert (conditions["Accepted"][0], conditions["ServerAvailable"][1]) == ("False", "Suspended")
    back = settled(edited(stopped, suspend=False))[0]
    assert set(replicas(back).values()) == {1}


@pytest.mark.parametrize("wrong", REFUSED)
def test_a_study_that_is_over_frees_its_agents_whatever_was_edited(wrong: dict[str, Any]) -> None:
    over = settled(replace(edited(training(), **wrong), report=succeeded()))[0]
    assert {name: count for name, count in replicas(over).items() if name != "derm-server"} == {
        "a-silo": 0,
        "b-silo": 0,
    }


def test_resources_and_deletion_policy_are_taken_beside_a_refused_field() -> None:
    observed = training(server=LIMITS)
    planned = plan(edited(observed, seed=2, server={"resources": {"limits": {"cpu": "4"}}}), SETTINGS, NOW)
    (container,) = stateful_set(planned, "derm-server")["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "4"}
    config = next(each for each in planned.apply if each["kind"] == "ConfigMap")
    assert config["data"] == observed.children["ConfigMap", "derm-server"]["data"], "what is trained stays"
    given_up = plan(edited(observed, seed=2, deletionPolicy="Delete"), SETTINGS, NOW)
    assert any(isinstance(effect, OwnAuthority) and effect.owner for effect in given_up.effects)


def test_of_several_wrong_fields_the_last_sound_values_stay() -> None:
    """A server section that makes no sense is not replaced by the defaults, and admission stays as it was."""
    observed = training(server=LIMITS, admission={"approval": "Automatic"})
    taints = {"pod": {"tolerations": [{"value": "yes"}]}}
    planned = plan(edited(observed, suspend=True, server=taints), SETTINGS, NOW)
    spec = stateful_set(planned, "derm-server")["spec"]
    assert spec["replicas"] == 0
    assert spec["template"]["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "3"}


def test_an_edited_refusal_approves_as_before() -> None:
    observed = world(silo("far"), federation=federation(admission={"approval": "Automatic"}))
    planned = plan(edited(observed, rounds="many"), SETTINGS, NOW)
    assert "far" not in planned.silo_statuses, "it stays approved in advance"


def test_a_refused_silo_s_pod_is_still_the_operator_s() -> None:
    """Its images are fixed; its resources and the study's end are not."""
    wrong: dict[str, Any] = {"managed": {"data": {**DATA, "path": "other"}, **LIMITS}}
    refused = edited_silo(training(), "a", **wrong)
    planned = plan(refused, SETTINGS, NOW)
    assert conditions_of(planned.silo_statuses["a"])["Accepted"] == ("False", "ImmutableFieldChanged")
    (container,) = stateful_set(planned, "a-silo")["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "3"}
    assert ("ConfigMap", "a-silo") in applied(planned), "its annotation alone"
    config = next(each for each in planned.apply if each["metadata"]["name"] == "a-silo")
    assert config["data"] == refused.children["ConfigMap", "a-silo"]["data"]
    assert set(replicas(settled(edited(refused, suspend=True))[0]).values()) == {0}
    assert replicas(settled(replace(refused, report=succeeded()))[0])["a-silo"] == 0


def test_the_number_of_devices_stays_once_a_silo_has_trained() -> None:
    """Another number gives other bits; when the device is given back does not."""
    wrong: dict[str, Any] = {"managed": {"data": DATA, "devices": 2, "release": "BetweenRounds"}}
    planned = plan(edited_silo(training(), "a", **wrong), SETTINGS, NOW)
    assert "spec.managed.devices is 2, but training began with 1" in message_of(planned.silo_statuses["a"], "Accepted")
    config = next(each for each in planned.apply if (each["kind"], each["metadata"]["name"]) == ("ConfigMap", "a-silo"))
    text = config["data"]["silo.yaml"]
    assert "release: BetweenRounds" in text and "devices" not in text


def test_a_silo_that_was_never_accepted_gets_no_pod() -> None:
    broken = silo("c", managed={"data": {"format": "ImageFolder"}})
    observed = edited(training(), suspend=True, seed=2)
    planned = plan(replace(observed, silos={**observed.silos, "c": broken}), SETTINGS, NOW)
    assert not any(name == "c-silo" for _, name in applied(planned))


def test_a_larger_volume_is_asked_for_and_blocks_nothing() -> None:
    sizes = {"state-derm-server-0": "20Gi", "state-a-silo-0": "5Gi", "state-b-silo-0": "5Gi"}
    observed = edited(replace(training(), claim_sizes=sizes), server={"storage": {"size": "40Gi"}}, rounds=30)
    planned = plan(observed, SETTINGS, NOW)
    assert [(each.name, each.size) for each in planned.effects if isinstance(each, GrowClaim)] == [
        ("state-derm-server-0", "40Gi")
    ]
    assert conditions_of(planned.federation_status)["Accepted"] == ("True", "Accepted")
    (template,) = stateful_set(planned, "derm-server")["spec"]["volumeClaimTemplates"]
    assert template["spec"]["resources"]["requests"]["storage"] == "20Gi", "a template cannot change"
    grown = plan(replace(observed, claim_sizes={**sizes, "state-derm-server-0": "40960Mi"}), SETTINGS, NOW)
    assert not any(isinstance(each, GrowClaim) for each in grown.effects)
    greedy = edited_silo(observed, "a", managed={"data": DATA, "storage": {"size": "6Gi"}})
    assert "state-a-silo-0" in {
        each.name for each in plan(greedy, SETTINGS, NOW).effects if isinstance(each, GrowClaim)
    }


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        ({"size": "1Gi"}, "spec.server.storage.size is 1Gi, but the volume has 20Gi, and volumes do not shrink"),
        (
            {"className": "fast"},
            "spec.server.storage.className is fast, but the volume was created with None and keeps it",
        ),
        ({"size": "20480Mi"}, ""),
    ],
)
def test_what_a_volume_cannot_do_is_said_and_blocks_nothing(storage: dict[str, str], words: str) -> None:
    observed = replace(training(), claim_sizes={"state-derm-server-0": "20Gi"})
    planned = plan(edited(observed, server={"storage": storage}, rounds=30), SETTINGS, NOW)
    assert conditions_of(planned.federation_status)["Accepted"] == ("True", "Accepted")
    assert message_of(planned.federation_status, "Accepted") == words
    assert ("ConfigMap", "derm-server") in applied(planned), "the other change is in use"
    assert not any(isinstance(each, GrowClaim) for each in planned.effects)
