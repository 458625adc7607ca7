"""What only a cluster reads of the documents: pods, services, admission, and what was observed of a silo."""

from typing import Any

import pytest
from pydantic import ValidationError

from anchorage.api.federation import Admission, Managed, Server, Service, Silo
from anchorage.api.files import as_mapping
from anchorage.api.pod import ClaimMount, PodOverrides, Toleration
from anchorage.api.silo_status import SiloCrStatus
from anchorage.api.status import Condition, timestamp

POD: dict[str, Any] = {
    "image": "example.org:5000/anchorage/server:0.2@sha256:00",
    "imagePullPolicy": "IfNotPresent",
    "imagePullSecrets": ["registry"],
    "nodeSelector": {"example.org/gpu": "a100"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, {"operator": "Exists"}],
    "env": [
        {"name": "OMP_NUM_THREADS", "value": "1"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "proxy", "key": "token"}}},
    ],
    "volumes": [{"claimName": "venv", "mountPath": "/opt/venv"}],
    "labels": {"team": "derm"},
    "annotations": {"example.org/team": "derm"},
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "sharedMemory": "8Gi",
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "a100"}],
    "schedulerName": "volcano",
    "runtimeClassName": "nvidia",
    "priorityClassName": "high",
}


SECRET = {"secretKeyRef": {"name": "proxy", "key": "token"}}
CLAIM = {"name": "gpu", "resourceClaimName": "gpu-0"}


def test_a_pod_comes_back_as_it_was() -> None:
    pod = PodOverrides.model_validate(POD, strict=False)
    assert pod.volumes[0].read_only
    assert pod.tolerations[1].key is None
    assert pod.model_dump(mode="json", by_alias=True, exclude_unset=True) == POD


def test_defaults_of_a_cluster() -> None:
    server = Server()
    assert (server.storage.size, server.service.type, server.address, server.names) == ("20Gi", "ClusterIP", None, ())
    managed = Managed.model_validate({"data": {"format": "Digits"}})
    assert (managed.storage.size, managed.storage.class_name) == ("5Gi", None)
    assert Admission().approval == "Manual"


@pytest.mark.parametrize(
    ("kind", "values", "complaint"),
    [
        (Toleration, {"value": "yes"}, "found no key, which tolerates every taint"),
        (Toleration, {"key": "gpu", "operator": "Exists", "value": "yes"}, "operator Exists takes none"),
        (ClaimMount, {"claimName": "a", "mountPath": "/data/"}, "a folder that the operator mounts itself"),
        (ClaimMount, {"claimName": "a", "mountPath": "data"}, "should match pattern"),
        (ClaimMount, {"claimName": "a", "mountPath": "/"}, "at least 2 characters"),
        (PodOverrides, {"env": [{"name": "A"}, {"name": "A"}]}, "found the variable A twice in env"),
        (
            PodOverrides,
            {"volumes": [{"claimName": "a", "mountPath": "/x"}, {"claimName": "b", "mountPath": "/x"}]},
            "found two volumes at /x",
        ),
        (PodOverrides, {"env": [{"name": "A", "value": "1", "valueFrom": SECRET}]}, "found value and valueFrom"),
        (PodOverrides, {"labels": {"app.kubernetes.io/component": "server"}}, "is not for overrides"),
        (PodOverrides, {"labels": {"kueue.x-k8s.io/queue-name": "mine"}}, "is not for overrides"),
        (
            PodOverrides,
            {"annotations": {"container.apparmor.security.beta.kubernetes.io/server": "unconfined"}},
            "is not for overrides",
        ),
        (PodOverrides, {"resourceClaims": [{"name": "gpu"}]}, "needed is either"),
        (PodOverrides, {"resourceClaims": [CLAIM, CLAIM]}, "the name gpu twice in resourceClaims"),
        (PodOverrides, {"affinity": {"nodeAffinity": "x" * 20_000}}, "more than 16384 characters"),
        (PodOverrides, {"volumes": [{"claimName": "a", "mountPath": "/dev/shm"}]}, "the operator mounts itself"),
        (PodOverrides, {"nodeSelector": {"a": "b c"}}, "should match pattern"),
        (PodOverrides, {"image": "an image"}, "should match pattern"),
        (Service, {"nodePorts": {"silos": 30443}}, "the type ClusterIP has none"),
        (Service, {"type": "NodePort", "nodePorts": {"silos": 65536}}, "less than or equal to 65535"),
        (Server, {"address": "derm.example.org"}, "should match pattern"),
        (Server, {"address": "derm.example.org:0"}, "should match pattern"),
        (Server, {"names": ["derm example"]}, "should match pattern"),
    ],
)
def test_refused(kind: Any, values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        kind.model_validate(values, strict=False)


@pytest.mark.parametrize("address", ["derm.example.org:8443", "10.0.0.1:30443", "[fd00::1]:8443"])
def test_addresses(address: str) -> None:
    assert Server(address=address).address == address


@pytest.mark.parametrize("name", ["derm.example.org", "*.example.org", "10.0.0.1", "fd00::1"])
def test_names_of_a_certificate(name: str) -> None:
    assert Server(names=(name,)).names == (name,)


def test_a_silo_s_status_is_printed_whole() -> None:
    approved = Condition(type="Approved", status="True", reason="ByPerson", last_transition_time=timestamp(0))
    silo = Silo.model_validate(
        {"metadata": {"name": "a"}, "spec": {"federation": "derm"}, "status": SiloCrStatus(conditions=(approved,))}
    )
    values = as_mapping(silo)
    assert values["status"]["conditions"][0]["type"] == "Approved"
    assert values["status"]["weight"] == "0"
    assert "certificate" not in values["status"]
