"""Every object that the operator builds, against files that people review (tests/golden/README.md)."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from plan_world import NOW, SETTINGS, federation, managed, settled, silo, succeeded, world
from pod_security import violations

from anchorage.api.pod import ClaimMount, EnvironmentVariable, PodOverrides, Toleration
from anchorage.api.pod_limits import OverrideField, PodOverrideLimits
from anchorage_operator.names import LONGEST_FEDERATION, LONGEST_SILO
from anchorage_operator.observed import Observed
from anchorage_operator.settings import OperatorSettings

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden/operator"
REWRITE = "ANCHORAGE_REWRITE_GOLDEN"

GPU_SILO = managed(
    "a",
    resources={"requests": {"memory": "8Gi"}, "limits": {"nvidia.com/gpu": 1, "memory": "16Gi"}},
    policy="hospital-a/policy.yaml",
    storage={"size": "10Gi", "className": "fast"},
    pod={
        "image": "example.org/own-agent:2",
        "imagePullPolicy": "Always",
        "imagePullSecrets": ["own"],
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "env": [
            {"name": "OMP_NUM_THREADS", "value": "4"},
            {"name": "LEVEL", "value": "own"},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "proxy", "key": "token"}}},
        ],
        "labels": {"team": "derm"},
        "annotations": {"example.org/team": "derm"},
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "a100"}],
        "sharedMemory": "8Gi",
        "schedulerName": "volcano",
        "volumes": [{"claimName": "cache", "mountPath": "/cache", "readOnly": False}],
        "runtimeClassName": "nvidia",
        "priorityClassName": "training",
    },
)
GPU_SERVER = federation(
    deletionPolicy="Delete",
    activeDeadlineSeconds=86400,
    model={"network": "SmallCnn", "imageSize": 8, "channels": 1, "initial": "weights/first.safetensors"},
    anchorData={"format": "CsvManifest", "claimName": "anchors", "path": "derm", "manifest": "anchors.csv"},
    evaluation={
        "validation": {"format": "CsvManifest", "claimName": "anchors", "path": "derm", "manifest": "validation.csv"},
        "test": {"format": "CsvManifest", "claimName": "tests", "manifest": "test.csv"},
    },
    tracking={"uri": "https://mlflow.example.org", "experiment": "derm"},
    server={
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "storage": {"size": "100Gi", "className": "fast"},
        "service": {
            "type": "LoadBalancer",
            "annotations": {"example.org/internal": "true"},
            "nodePorts": {"silos": 30443, "enrolment": 30444},
        },
        "address": "fed.example.org:443",
        "names": ["10.1.2.3"],
        "pod": {"nodeSelector": {"zone": "b"}},
    },
    queueName="gpus",
    admission={"approval": "Automatic"},
)
LISTED = SETTINGS.model_copy(
    update={
        "pod_overrides": PodOverrideLimits(
            fields=get_args(OverrideField), annotation_prefixes=("example.org/",), secrets=("own", "proxy")
        )
    }
)
OWN_SETTINGS = LISTED.model_copy(
    update={
        "image_pull_secrets": ("registry",),
        "tracking_uri": "http://anchorage-mlflow.anchorage.svc:5000",
        "server": PodOverrides(volumes=(ClaimMount(claim_name="venv", mount_path="/venv"),)),
        "agent": PodOverrides(
            env=(
                EnvironmentVariable(name="LEVEL", value="default"),
                EnvironmentVariable(name="PYTHONPATH", value="/venv"),
            ),
            volumes=(ClaimMount(claim_name="venv", mount_path="/venv"),),
            tolerations=(Toleration(key="study", value="yes"),),
            node_selector={"zone": "a"},
        ),
    }
)


class Blocks(yaml.SafeDumper):
    """Writes text of several lines as it reads."""


Blocks.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def digits() -> Observed:
    first, *silos = yaml.safe_load_all((ROOT / "examples/digits.yaml").read_text())
    for document in (first, *silos):
        document["metadata"] |= {"namespace": "study", "uid": f"uid-{document['metadata']['name']}", "generation": 1}
    return Observed("study", "digits", first, {each["metadata"]["name"]: each for each in silos})


def after_success() -> Observed:
    observed = world(managed("a"), managed("b"))
    return settled(replace(observed, report=succeeded()), NOW)[0]


SCENARIOS: dict[str, tuple[Observed, OperatorSettings]] = {
    "digits": (digits(), SETTINGS),
    "gpu": (Observed("study", "derm", GPU_SERVER, {"a": GPU_SILO}), LISTED),
    "settings": (Observed("study", "derm", federation(), {"a": GPU_SILO, "b": managed("b")}), OWN_SETTINGS),
    "suspended": (Observed("study", "derm", federation(suspend=True), {"a": managed("a")}), SETTINGS),
    "remote": (Observed("study", "derm", federation(), {"far": silo("far")}), SETTINGS),
    "results": (after_success(), SETTINGS),
}


def built(name: str) -> list[dict[str, Any]]:
    """Every child of a scenario at rest, as it was applied."""
    observed, settings = SCENARIOS[name]
    later = NOW + 120 if name == "results" else NOW
    _, plans = settled(observed, later, settings)
    objects = {(each["kind"], each["metadata"]["name"]): each for planned in plans for each in planned.apply}
    return [dict(each) for each in objects.values()]


def templates() -> Iterator[Any]:
    for name in SCENARIOS:
        for each in built(name):
            if each["kind"] == "StatefulSet":
                yield pytest.param(each, id=f"{name}-{each['metadata']['name']}")


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_objects_are_those_of_the_file(name: str) -> None:
    text = yaml.dump_all(built(name), Dumper=Blocks, sort_keys=False, explicit_start=True, width=120)
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get(REWRITE):
        path.write_text(text)
    assert text == path.read_text(), f"if that is wanted: {REWRITE}=1, see tests/golden/README.md"


def test_no_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == SCENARIOS.keys()


@pytest.mark.parametrize("each", list(templates()))
def test_pods_keep_the_restricted_standard(each: dict[str, Any]) -> None:
    template = each["spec"]["template"]
    assert list(violations(template)) == []
    spec = template["spec"]
    assert spec["automountServiceAccountToken"] is False
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    mounted = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    writable = {path for path, mount in mounted.items() if not mount.get("readOnly")}
    assert writable <= {"/tmp", "/var/lib/anchorage", "/cache", "/dev/shm"}
    assert len(mounted) == len(container["volumeMounts"]), "two mounts at one place"
    volumes = {volume["name"] for volume in spec["volumes"]} | {"state"}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_object_is_owned_and_labelled(name: str) -> None:
    for each in built(name):
        metadata = each["metadata"]
        (owner,) = metadata["ownerReferences"]
        component = metadata["labels"]["app.kubernetes.io/component"]
        assert (owner["kind"], owner["controller"]) == ("Silo" if component == "silo" else "Federation", True)
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "anchorage-operator"
        assert metadata["labels"]["anchorage.dev/federation"] == SCENARIOS[name][0].name
        assert each["kind"] != "Secret", "key material is never built by the plan"


@pytest.mark.parametrize("name", SCENARIOS)
def test_pods_are_chosen_by_their_labels(name: str) -> None:
    objects = built(name)
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in objects if each["kind"] == "StatefulSet"]
    for each in objects:
        match = each.get("spec", {}).get("podSelector", {}).get("matchLabels") or each.get("spec", {}).get("selector")
        if each["kind"] in ("NetworkPolicy", "Service"):
            assert sum(match.items() <= labels.items() for labels in pods) == 1


def test_nothing_but_silos_and_enrolment_is_reached_from_outside() -> None:
    services = {each["metadata"]["name"]: each["spec"] for each in built("gpu") if each["kind"] == "Service"}
    assert services["derm-server"]["type"] == "ClusterIP"
    public = services["derm-server-public"]
    assert (public["type"], [port["port"] for port in public["ports"]]) == ("LoadBalancer", [8443, 8444])


def test_names_are_short_enough_for_the_labels_of_pods() -> None:
    assert LONGEST_FEDERATION + len("-server") <= 52
    assert LONGEST_SILO + len("-silo") <= 52
