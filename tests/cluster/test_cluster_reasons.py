"""What is wrong with a pod or a spec is told in a condition's reason and message."""

from collections.abc import Iterator
from typing import Any

import pytest
from cluster_documents import IMAGES, STUDY, federation, managed_silo, two_silos
from cluster_namespace import Namespace
from cluster_site import Site


def test_a_server_for_which_no_node_has_room(started: Namespace) -> None:
    started.apply(federation(server={"resources": {"limits": {"nvidia.com/gpu": 1}}}), *two_silos())
    condition = started.wait_for_condition("federation", STUDY, "ServerAvailable", "False", "Unschedulable")
    assert "nvidia.com/gpu" in condition["message"]
    ready = started.wait_for_condition("federation", STUDY, "Ready", "False", "Unschedulable")
    assert ready["observedGeneration"] == 1


def test_an_agent_for_which_no_node_has_room(started: Namespace) -> None:
    greedy = managed_silo("silo-a", 0, resources={"limits": {"nvidia.com/gpu": 1}})
    started.apply(federation(), greedy, managed_silo("silo-b", 1))
    condition = started.wait_for_condition("silo", "silo-a", "AgentAvailable", "False", "Unschedulable")
    assert "nvidia.com/gpu" in condition["message"]
    started.wait_for_condition("silo", "silo-b", "Connected")
    waiting = started.wait_for_condition("federation", STUDY, "QuorumMet", "False", "WaitingForSilos")
    assert "silo-a" in waiting["message"]


def test_a_claim_that_does_not_exist(started: Namespace) -> None:
    data = {"format": "ImageFolder", "claimName": "nobody-made-this", "path": "images"}
    started.apply(federation(), managed_silo("silo-a", 0, data=data), managed_silo("silo-b", 1))
    condition = started.wait_for_condition("silo", "silo-a", "AgentAvailable", "False", "VolumeMissing")
    assert "nobody-made-this" in condition["message"]


@pytest.fixture
def listing(namespace: Namespace) -> Namespace:
    """Give a namespace in which the platform lets documents set the image and the priority class."""
    namespace.install_chart("--set", "podOverrides.fields={image,priorityClassName}")
    return namespace


def test_an_image_that_does_not_exist(listing: Namespace) -> None:
    started = listing
    image = "localhost/nobody-built-this:1"
    started.apply(federation(server={"pod": {"image": image}}), *two_silos())
    condition = started.wait_for_condition("federation", STUDY, "ServerAvailable", "False", "ImagePullBackOff")
    assert image in condition["message"]
    started.patch("federation", STUDY, {"spec": {"server": {"pod": {"priorityClassName": "nobody-made-this"}}}})
    started.kubectl("delete", "pod", f"{STUDY}-server-0", "--ignore-not-found")
    condition = started.wait_for_condition("federation", STUDY, "ServerAvailable", "False", "PodRefused")
    assert "no PriorityClass with name nobody-made-this was found" in condition["message"]


def test_a_failure_of_the_catalogue_in_a_pod(started: Namespace) -> None:
    """The agents' folder does not exist: that is told, not as a crash, and without the path, which may name somebody."""
    data = {**IMAGES, "use": "Part", "claimName": "empty", "format": "ImageFolder", "path": "no-such-folder"}
    data = {key: value for key, value in data.items() if key not in ("testPercent", "anchors", "use")}
    started.apply(_empty_claim("empty"))
    started.apply(federation(), managed_silo("silo-a", 0, data=data), managed_silo("silo-b", 1))
    condition = started.wait_for_condition("silo", "silo-a", "AgentAvailable", "False", "DataMissing")
    assert (
        "the folder of the images is not there" in condition["message"] and "no-such-folder" not in condition["message"]
    )


def test_what_the_platform_does_not_list_without_a_policy(namespace: Namespace) -> None:
    namespace.install_chart("--set", "podOverrides.admissionPolicy=false")
    environment = [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "database", "key": "password"}}}]
    namespace.apply(federation(server={"pod": {"env": environment}}), *two_silos())
    condition = namespace.wait_for_condition("federation", STUDY, "Accepted", "False", "PodOverrideRefused")
    assert "ANC-1131 PodOverrideRefused: spec.server.pod.env: " in condition["message"]
    assert namespace.get("statefulset", f"{STUDY}-server") is None


def _empty_claim(name: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def test_a_silo_waits_for_its_federation(started: Namespace) -> None:
    started.apply(managed_silo("silo-a", 0))
    condition = started.wait_for_condition("silo", "silo-a", "Accepted", "False", "FederationNotFound")
    assert STUDY in condition["message"]
    assert not started.names("statefulsets")
    started.apply(federation(1, min_silos=1))
    started.wait_for_condition("federation", STUDY, "Succeeded")


@pytest.fixture
def neighbour(site: Site) -> Iterator[Namespace]:
    """Give a second namespace."""
    with Namespace.made(site) as made:
        yield made


def test_one_name_in_two_namespaces(started: Namespace, neighbour: Namespace) -> None:
    neighbour.install_chart()
    for namespace in (started, neighbour):
        namespace.apply(federation(1, min_silos=1), managed_silo("silo-a", 0))
    for namespace in (started, neighbour):
        namespace.wait_for_condition("federation", STUDY, "Succeeded")


def test_a_spec_edited_into_nonsense_while_training(started: Namespace) -> None:
    started.apply(federation(500, epochs=10), *two_silos())
    at = started.wait_for_round(STUDY, 1)
    started.patch("federation", STUDY, {"spec": {"seed": 2}})
    refused = started.wait_for_condition("federation", STUDY, "Accepted", "False", "ImmutableFieldChanged")
    assert "spec.seed is 2, but training began with 1" in refused["message"]
    started.patch("federation", STUDY, {"spec": {"suspend": True}})
    started.wait_for_condition("federation", STUDY, "ServerAvailable", "False", "Suspended")
    started.eventually("no pod is left", lambda: not started.objects("pods", f"anchorage.dev/federation={STUDY}"))
    started.patch("federation", STUDY, {"spec": {"suspend": False, "seed": 1}})
    started.wait_for_condition("federation", STUDY, "Accepted")
    for change in ({"labels": "None"}, {"managed": {"data": {"partition": {"part": 2}}}}):
        started.patch("silo", "silo-a", {"spec": change})
        started.wait_for_condition("silo", "silo-a", "Accepted", "False", "ImmutableFieldChanged")
        started.apply(managed_silo("silo-a", 0))
        started.wait_for_condition("silo", "silo-a", "Accepted")
    size = started.must_get("federation", STUDY)["spec"]["server"]["storage"]["size"]
    started.patch("federation", STUDY, {"spec": {"server": {"storage": {"size": "900Gi"}}, "rounds": 501}})
    condition = started.eventually(
        "it is told that the tests' storage class cannot grow a volume",
        lambda: next((each for each in started.events(STUDY) if each["reason"] == "VolumeNotGrown"), None),
    )
    assert "resize" in condition["message"]
    started.wait_for_condition("federation", STUDY, "Accepted")
    at = started.wait_for_round(STUDY, at + 1)
    started.patch("federation", STUDY, {"spec": {"server": {"storage": {"size": size}}}})
    started.wait_for_condition("federation", STUDY, "Ready")
    started.wait_for_round(STUDY, at + 1)
