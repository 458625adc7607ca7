"""What documents set in pods: the platform's list holds in the operator, too, and nothing else reaches a pod, or is lost."""

from dataclasses import replace
from typing import Any, get_args

import pytest
from plan_world import (
    CA,
    NOW,
    SETTINGS,
    conditions_of,
    edited,
    federation,
    managed,
    message_of,
    said,
    settled,
    world,
)
from pydantic.alias_generators import to_camel

from anchorage.api.pod import PodOverrides
from anchorage.api.pod_limits import FORBIDDEN_ENV_PATTERN, OverrideField, PodOverrideLimits
from anchorage_operator.observed import Observed
from anchorage_operator.plan import plan
from anchorage_operator.settings import OperatorSettings

EVERYTHING = PodOverrideLimits(
    fields=get_args(OverrideField), annotation_prefixes=("example.org/",), secrets=("listed",)
)
LISTED = SETTINGS.model_copy(update={"pod_overrides": EVERYTHING})
FROM_SECRET = [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "database", "key": "password"}}}]
OTHERS_STATE = [{"claimName": "state-other-server-0", "mountPath": "/other"}]
BEYOND: list[tuple[dict[str, Any], str]] = [
    ({"image": "evil.example.org/server:1"}, "image"),
    ({"imagePullPolicy": "Always"}, "imagePullPolicy"),
    ({"imagePullSecrets": ["registry"]}, "imagePullSecrets"),
    ({"labels": {"app": "payroll"}}, "labels"),
    ({"env": FROM_SECRET}, "env"),
    ({"env": [{"name": "LEVEL", "value": "debug"}]}, "env"),
    ({"volumes": OTHERS_STATE}, "volumes"),
    ({"priorityClassName": "system-cluster-critical"}, "priorityClassName"),
    ({"schedulerName": "own"}, "schedulerName"),
    ({"annotations": {"vault.hashicorp.com/agent-inject": "true"}}, "annotations.vault.hashicorp.com/agent-inject"),
]
WITHIN = {
    "nodeSelector": {"zone": "a"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "runtimeClassName": "nvidia",
    "sharedMemory": "8Gi",
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "a100"}],
    "annotations": {"user.anchorage.dev/team": "derm"},
}


def template(observed: Observed, name: str) -> dict[str, Any]:
    """Return what a StatefulSet's pods are made of."""
    template: dict[str, Any] = observed.children["StatefulSet", name]["spec"]["template"]
    return template


def federation_status(observed: Observed) -> dict[str, Any]:
    assert observed.federation is not None
    return dict(observed.federation["status"])


def test_the_list_knows_every_field_of_a_pod() -> None:
    assert set(get_args(OverrideField)) == {"resources", *map(to_camel, PodOverrides.model_fields)}


@pytest.mark.parametrize(("pod", "field"), BEYOND)
def test_what_the_platform_does_not_list_is_refused_by_name(pod: dict[str, Any], field: str) -> None:
    new = settled(Observed("study", "derm", federation(server={"pod": pod})))[0]
    assert conditions_of(federation_status(new))["Accepted"] == ("False", "PodOverrideRefused")
    message = message_of(federation_status(new), "Accepted")
    assert f"ANC-1131 PodOverrideRefused: spec.server.pod.{field}: " in message
    assert "podOverrides." in message, "it says what to do"
    assert not new.children, "nothing is made"
    silos = {"a": managed("a", pod=pod), "b": managed("b")}
    other_world = settled(Observed("study", "derm", federation(), silos))[0]
    status = other_world.silos["a"]["status"]
    assert conditions_of(status)["Accepted"] == ("False", "PodOverrideRefused")
    assert f"spec.managed.pod.{field}: " in message_of(status, "Accepted")
    assert ("StatefulSet", "a-silo") not in other_world.children
    assert conditions_of(federation_status(other_world))["Accepted"][0] == "True", "the others' federation goes on"


def test_what_it_lists_by_default_reaches_pods() -> None:
    limits = {"limits": {"memory": "9Gi"}}
    document = federation(server={"pod": WITHIN, "resources": limits})
    made = settled(world(managed("a", pod=WITHIN, resources=limits), federation=document))[0]
    assert conditions_of(federation_status(made))["Accepted"] == ("True", "Accepted")
    for name in ("derm-server", "a-silo"):
        pod = template(made, name)
        assert pod["metadata"]["annotations"]["user.anchorage.dev/team"] == "derm"
        assert pod["spec"]["nodeSelector"] == {"zone": "a"}
        assert pod["spec"]["runtimeClassName"] == "nvidia"
        assert pod["spec"]["containers"][0]["resources"]["limits"] == {"memory": "9Gi"}


@pytest.mark.parametrize(("pod", "field"), BEYOND)
def test_an_edit_of_what_runs_changes_no_pod(pod: dict[str, Any], field: str) -> None:
    running = world(managed("a"), report=said("a", round=3))
    before = template(running, "derm-server")
    refused = settled(edited(running, server={"pod": pod}))[0]
    assert conditions_of(federation_status(refused))["Accepted"] == ("False", "PodOverrideRefused"), field
    assert template(refused, "derm-server") == before


def test_where_the_list_becomes_shorter_pods_go_on_without_what_is_not_on_it() -> None:
    pod = {"env": [{"name": "LEVEL", "value": "debug"}], "image": "example.org/own:1", "nodeSelector": {"zone": "a"}}
    document = federation(server={"pod": pod})
    before = settled(world(managed("a", pod=pod), federation=document, report=said("a", round=3)), settings=LISTED)[0]
    assert template(before, "derm-server")["spec"]["containers"][0]["image"] == "example.org/own:1"
    planned = plan(before, SETTINGS, NOW, upgrade=True)
    made = {each["metadata"]["name"]: each for each in planned.apply if each["kind"] == "StatefulSet"}
    assert made.keys() == {"derm-server", "a-silo"}
    for each in made.values():
        spec = each["spec"]["template"]["spec"]
        assert "example.org/own:1" not in str(spec)
        assert "LEVEL" not in str(spec)
        assert spec["nodeSelector"] == {"zone": "a"}
        assert each["spec"]["replicas"] == 1
    assert not planned.delete
    assert conditions_of(planned.federation_status)["Accepted"] == ("False", "PodOverrideRefused")


NAMES = (
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PATH",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "BASH_ENV",
)
TRUSTED = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "https_proxy", "HTTP_PROXY", "MLFLOW_REGISTRY_URI", "OPENSSL_CONF")


@pytest.mark.parametrize("name", [*NAMES, *TRUSTED])
def test_variables_of_the_loader_stay_forbidden_where_env_is_listed(name: str) -> None:
    document = federation(server={"pod": {"env": [{"name": name, "value": "/data/evil.so"}]}})
    new = settled(Observed("study", "derm", document), settings=LISTED)[0]
    assert f"ANC-1131 PodOverrideRefused: spec.server.pod.env[0]: documents may not set {name}" in message_of(
        federation_status(new), "Accepted"
    )
    assert not new.children


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OMP_NUM_THREADS", "NO_PROXY", "CUDA_VISIBLE_DEVICES"])
def test_other_variables_are_set_where_env_is_listed(name: str) -> None:
    document = federation(server={"pod": {"env": [{"name": name, "value": "1"}]}})
    made = settled(world(managed("a"), federation=document), settings=LISTED)[0]
    assert {"name": name, "value": "1"} in template(made, "derm-server")["spec"]["containers"][0]["env"]


def test_a_secret_is_read_only_where_the_platform_lists_it() -> None:
    for pod in ({"env": FROM_SECRET}, {"imagePullSecrets": ["database"]}):
        new = settled(Observed("study", "derm", federation(server={"pod": pod})), settings=LISTED)[0]
        assert 'the Secret "database"; remove it, or have the platform list it in podOverrides.secrets' in message_of(
            federation_status(new), "Accepted"
        )
        assert not new.children
    pod = {"env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "listed", "key": "token"}}}]}
    made = settled(world(managed("a"), federation=federation(server={"pod": pod})), settings=LISTED)[0]
    assert "listed" in str(template(made, "derm-server")["spec"]["containers"][0]["env"])


CSV = {"format": "CsvManifest", "path": "derm", "manifest": "anchors.csv"}


def places(claim: str) -> list[tuple[dict[str, Any], str]]:
    """Return every place where a Federation names a claim."""
    model = {"network": "SmallCnn", "imageSize": 8, "channels": 1}
    return [
        ({"anchorData": {**CSV, "claimName": claim}}, "spec.anchorData.claimName"),
        ({"evaluation": {"test": {**CSV, "claimName": claim}}}, "spec.evaluation.test.claimName"),
        ({"evaluation": {"validation": {**CSV, "claimName": claim}}}, "spec.evaluation.validation.claimName"),
        ({"model": {**model, "initial": f"{claim}/models/1.safetensors"}}, "spec.model.initial"),
        (
            {"server": {"pod": {"volumes": [{"claimName": claim, "mountPath": "/o"}]}}},
            "spec.server.pod.volumes[0].claimName",
        ),
    ]


def of_silos(claim: str) -> list[tuple[dict[str, Any], str]]:
    """Return every place where a Silo names a claim."""
    return [
        ({"data": {**CSV, "claimName": claim}}, "spec.managed.data.claimName"),
        ({"policy": f"{claim}/policy.yaml"}, "spec.managed.policy"),
        ({"pod": {"volumes": [{"claimName": claim, "mountPath": "/o"}]}}, "spec.managed.pod.volumes[0].claimName"),
    ]


FOREIGN = {
    "state-other-server-0": "has the name of a server's or an agent's state",
    "state-derm-server-0": "has the name of a server's or an agent's state",
    "state-a-silo-0": "has the name of a server's or an agent's state",
    "images-of-other": "has the label of the federation other",
    "fl-mlflow": "is the platform's own",
}
RESERVED: OperatorSettings = LISTED.model_copy(update={"reserved_claims": ("study/fl-mlflow", "elsewhere/images")})
LABELS = {"images-of-other": "other", "images-of-derm": "derm"}


@pytest.mark.parametrize("claim", FOREIGN)
def test_the_state_and_the_images_of_others_are_mounted_nowhere(claim: str) -> None:
    for spec, path in places(claim):
        observed = Observed("study", "derm", federation(**spec), claim_federations=LABELS)
        new = settled(observed, settings=RESERVED)[0]
        message = message_of(federation_status(new), "Accepted")
        assert f'ANC-1132 ClaimRefused: {path}: the claim "{claim}" {FOREIGN[claim]}' in message
        assert not new.children
    for part, path in of_silos(claim):
        observed = Observed("study", "derm", federation(), {"a": managed("a", **part)}, claim_federations=LABELS)
        made = settled(observed, settings=RESERVED)[0]
        assert f"{path}: " in message_of(made.silos["a"]["status"], "Accepted")
        assert claim not in str(made.children.get(("StatefulSet", "a-silo")))


@pytest.mark.parametrize("claim", ["images", "images-of-derm", "state-of-the-art", "elsewhere"])
def test_a_federation_s_own_claims_are_mounted(claim: str) -> None:
    for spec, _ in places(claim):
        observed = world(managed("a"), federation=federation(**spec), claim_federations=LABELS)
        made = settled(observed, settings=RESERVED)[0]
        assert conditions_of(federation_status(made))["Accepted"] == ("True", "Accepted")
        assert f"'claimName': '{claim}'" in str(template(made, "derm-server"))


def test_what_was_mounted_before_the_operator_knew_better_is_mounted_no_more() -> None:
    """As after an upgrade: the claim got its label since, or the version of before did not look."""
    document = federation(anchorData={**CSV, "claimName": "images-of-other"})
    before = world(managed("a"), federation=document, report=said("a", round=3))
    assert "images-of-other" in str(template(before, "derm-server"))
    after = settled(replace(before, claim_federations=LABELS))[0]
    assert "images-of-other" not in str(template(after, "derm-server"))
    assert after.authority is not None and after.authority.certificate == CA


def test_the_policy_at_the_api_server_knows_the_same_patterns() -> None:
    """RE2 has no look-around and no back references."""
    assert (
        "(?=" not in FORBIDDEN_ENV_PATTERN and "(?!" not in FORBIDDEN_ENV_PATTERN and "'" not in FORBIDDEN_ENV_PATTERN
    )
