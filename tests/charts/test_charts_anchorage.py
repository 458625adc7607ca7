"""What charts/anchorage renders, value by value."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_charts import CHARTS, Helm, Values, container, of_kind

from anchorage.api.pod import ClaimMount, EnvironmentVariable
from anchorage.transport.kube.resources import RESOURCES
from anchorage_operator.build_network import (
    DNS_PORTS,
    OPERATOR_NAME,
    PRIVATE_NETWORKS,
    agent_network_policy,
    server_network_policy,
)
from anchorage_operator.names import CONTROL_PORT, NAME_LABEL, server_labels
from anchorage_operator.observed import CHILD_KINDS
from anchorage_operator.resync import WATCHED
from anchorage_operator.settings import OperatorSettings, read_settings

OPERATOR = "rel-anchorage-operator"
SELF = f"{OPERATOR}-self"
MLFLOW = "rel-anchorage-mlflow"
WITH_MLFLOW: Values = {"mlflow": {"enabled": True}}


def settings(objects: list[dict[str, Any]], tmp_path: Path) -> OperatorSettings:
    """Read the rendered settings as the operator does."""
    file = tmp_path / "operator.yaml"
    file.write_text(of_kind(objects, "ConfigMap", OPERATOR)["data"]["operator.yaml"], encoding="utf-8")
    return read_settings(file)


def role(objects: list[dict[str, Any]], name: str = OPERATOR) -> dict[str, Any]:
    """Return the one Role of a name."""
    return of_kind(objects, "Role", name)


def name_servers(cidrs: Sequence[str]) -> dict[str, Any]:
    """Return the rule for names, as the operator builds it."""
    ports = [{"protocol": protocol, "port": port} for port in DNS_PORTS for protocol in ("UDP", "TCP")]
    return {"to": [{"namespaceSelector": {}}, *({"ipBlock": {"cidr": cidr}} for cidr in cidrs)], "ports": ports}


def mlflow_arguments(objects: list[dict[str, Any]]) -> dict[str, str]:
    """Return MLflow's flags."""
    _, *flags = container(objects, "StatefulSet")["args"]
    return {flag.partition("=")[0]: flag.partition("=")[2] for flag in flags}


def test_by_default_there_is_an_operator_and_nothing_else(helm: Helm) -> None:
    kinds = {each["kind"] for each in helm.template("anchorage", {"crds": {"enabled": False}})}
    policies = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    here = {"ConfigMap", "Deployment", "NetworkPolicy", "Role", "RoleBinding", "Service", "ServiceAccount"}
    assert kinds == here | policies


def test_every_object_has_labels_and_a_namespace(helm: Helm) -> None:
    values = {"crds": {"enabled": False}, **WITH_MLFLOW}
    for each in helm.template("anchorage", values, namespace="sea"):
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "rel"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/part-of"] == "anchorage"
        of_the_cluster = each["kind"].startswith("ValidatingAdmission")
        assert each["metadata"].get("namespace") == (None if of_the_cluster else "sea")


@pytest.mark.parametrize(
    ("values", "release", "expected"),
    [
        ({}, "rel", "rel-anchorage-operator"),
        ({}, "anchorage", "anchorage-operator"),
        ({"nameOverride": "fl"}, "rel", "rel-fl-operator"),
        ({"fullnameOverride": "fl"}, "rel", "fl-operator"),
        ({}, "r" * 53, "r" * 45 + "-operator"),
    ],
)
def test_names(helm: Helm, values: Values, release: str, expected: str) -> None:
    objects = helm.template("anchorage", values, release=release)
    assert of_kind(objects, "Deployment")["metadata"]["name"] == expected


@pytest.mark.parametrize(
    ("images", "operator", "server", "mlflow"),
    [
        ({}, "localhost/anchorage-operator:0.1.0", "localhost/anchorage-server:0.1.0", None),
        ({"registry": "r.org/fl/"}, "r.org/fl/anchorage-operator:0.1.0", "r.org/fl/anchorage-server:0.1.0", None),
        ({"tag": "2", "server": "s:1"}, "localhost/anchorage-operator:2", "s:1", None),
        ({"operator": "o@sha256:ab", "mlflow": "m:3"}, "o@sha256:ab", "localhost/anchorage-server:0.1.0", "m:3"),
    ],
)
def test_images(helm: Helm, tmp_path: Path, images: Values, operator: str, server: str, mlflow: str | None) -> None:
    objects = helm.template("anchorage", {"images": images, **WITH_MLFLOW})
    assert container(objects, "Deployment")["image"] == operator
    assert settings(objects, tmp_path).images.server == server
    assert container(objects, "StatefulSet")["image"] == (mlflow or server)


def test_pull_secrets_and_policy_reach_every_pod(helm: Helm, tmp_path: Path) -> None:
    values = {"images": {"pullSecrets": ["a", "b"], "pullPolicy": "Always"}, **WITH_MLFLOW}
    objects = helm.template("anchorage", values)
    for kind in ("Deployment", "StatefulSet"):
        assert of_kind(objects, kind)["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
        assert container(objects, kind)["imagePullPolicy"] == "Always"
    read = settings(objects, tmp_path)
    assert (read.image_pull_secrets, read.image_pull_policy) == (("a", "b"), "Always")


def test_the_operator_reads_the_default_settings(helm: Helm, tmp_path: Path) -> None:
    read = settings(helm.template("anchorage", {}, namespace="sea"), tmp_path)
    assert read.watch == ("sea",)
    assert (read.resync_seconds, read.poll_seconds) == (30, 5)
    assert read.listen == "[::]:8080"
    assert read.tracking_uri is None


def test_the_operator_reads_every_setting(helm: Helm, tmp_path: Path) -> None:
    pod = {
        "image": "other:1",
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "env": [{"name": "TZ", "value": "UTC"}],
        "volumes": [{"claimName": "venv", "mountPath": "/venv", "readOnly": True}],
        "runtimeClassName": "nvidia",
        "priorityClassName": "high",
    }
    values = {
        "defaults": {"server": pod, "agent": pod, "trackingUri": "https://mlflow.example.org"},
        "operator": {"clusterDomain": "k8s.example", "resyncSeconds": 3600, "pollSeconds": 1},
        "watch": {"namespaces": ["b", "a", "b"]},
    }
    read = settings(helm.template("anchorage", values), tmp_path)
    for overrides in (read.server, read.agent):
        assert overrides.volumes == (ClaimMount(claim_name="venv", mount_path="/venv", read_only=True),)
        assert overrides.env == (EnvironmentVariable(name="TZ", value="UTC"),)
        assert (overrides.image, overrides.runtime_class_name) == ("other:1", "nvidia")
    assert read.watch == ("a", "b")
    assert (read.cluster_domain, read.resync_seconds, read.poll_seconds) == ("k8s.example", 3600, 1)
    assert read.tracking_uri == "https://mlflow.example.org"


def test_new_settings_restart_the_operator(helm: Helm) -> None:
    def annotation(values: Values) -> str:
        template = of_kind(helm.template("anchorage", values), "Deployment")["spec"]["template"]
        return str(template["metadata"]["annotations"]["anchorage.dev/config-hash"])

    assert annotation({}) == annotation({})
    assert annotation({}) != annotation({"operator": {"pollSeconds": 7}})


def test_the_rights_are_what_the_operator_uses(helm: Helm) -> None:
    rights = {
        (group, resource): set(rule["verbs"])
        for rule in role(helm.template("anchorage", {}))["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert not any("*" in each for key, verbs in rights.items() for each in (*key, *verbs))
    expected = {}
    for kind in (*WATCHED, "Secret", "Event"):
        key = (RESOURCES[kind].group, RESOURCES[kind].plural)
        if kind in CHILD_KINDS:
            expected[key] = {"get", "list", "watch", "create", "patch", "delete"}
        elif kind == "Secret":
            expected[key] = {"get", "create", "patch", "delete"}
        elif kind == "Event":
            expected[key] = {"list", "create", "patch"}
        elif kind == "PersistentVolumeClaim":
            expected[key] = {"get", "list", "watch", "patch"}
        else:
            expected[key] = {"get", "list", "watch"}
    for resource in ("federations", "silos"):
        expected["anchorage.dev", f"{resource}/status"] = {"get", "patch"}
    assert rights == expected


@pytest.mark.parametrize(
    ("values", "namespaces"),
    [
        ({}, ["ns"]),
        ({"watch": {"namespaces": ["b", "a"]}}, ["a", "b"]),
        ({"watch": {"namespaces": ["b", "ns"]}}, ["b", "ns"]),
    ],
)
def test_rights_are_given_in_every_watched_namespace(helm: Helm, values: Values, namespaces: list[str]) -> None:
    objects = helm.template("anchorage", values)
    for kind in ("Role", "RoleBinding"):
        named = [each["metadata"] for each in objects if each["kind"] == kind]
        assert sorted(each["namespace"] for each in named if each["name"] == OPERATOR) == namespaces
        assert [each["namespace"] for each in named if each["name"] == SELF] == ["ns"]
    assert not [each for each in objects if each["kind"].startswith("ClusterRole")]
    for binding in (each for each in objects if each["kind"] == "RoleBinding"):
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": "ns"}]
        assert binding["roleRef"]["name"] == binding["metadata"]["name"]


def test_approvals_are_protected_where_that_is_asked_for(helm: Helm) -> None:
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    name = "ns-rel-anchorage-approval"
    assert not [each for each in helm.template("anchorage", {}) if each["metadata"]["name"] == name]
    objects = helm.template("anchorage", {"rbac": {"protectAdmission": True, "userRoles": True}})
    policy, binding = (of_kind(objects, kind, name) for kind in kinds)
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    rules = [rule for each in objects if each["kind"] == "ClusterRole" for rule in each["rules"]]
    assert [rule["resources"] for rule in rules if "approve" in rule["verbs"]] == [["silos"]]


def test_the_operator_knows_where_mlflow_s_credentials_are(helm: Helm, tmp_path: Path) -> None:
    assert settings(helm.template("anchorage", {}), tmp_path).tracking_secret is None
    objects = helm.template("anchorage", {"defaults": {"trackingSecret": "mlflow-login"}, **WITH_MLFLOW})
    assert settings(objects, tmp_path).tracking_secret == "mlflow-login"
    alone = helm.try_template("anchorage", {"defaults": {"trackingSecret": "mlflow-login"}})
    assert not alone.ok
    assert "set defaults.trackingUri" in alone.error


def test_where_nothing_is_watched_the_operator_has_its_lease_and_events_about_its_pod(helm: Helm) -> None:
    objects = helm.template("anchorage", {"watch": {"namespaces": ["a"]}})
    (own_role,) = [e for e in objects if e["kind"] == "Role" and e["metadata"]["namespace"] == "ns"]
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    assert own_role["rules"] == [
        {**leases, "resourceNames": [OPERATOR], "verbs": ["get", "patch"]},
        {**leases, "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    ]
    fields = {
        each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in container(objects, "Deployment")["env"][1:4]
    }
    assert fields == {f"POD_{part.upper()}": f"metadata.{part}" for part in ("name", "namespace", "uid")}


def test_cluster_wide_rights_are_the_same_rights(helm: Helm, tmp_path: Path) -> None:
    here = role(helm.template("anchorage", {}))
    objects = helm.template("anchorage", {"rbac": {"scope": "Cluster"}})
    assert of_kind(objects, "ClusterRole")["rules"] == here["rules"]
    assert of_kind(objects, "ClusterRole")["metadata"]["name"] == f"ns-{OPERATOR}"
    assert of_kind(objects, "ClusterRoleBinding")["subjects"][0]["namespace"] == "ns"
    assert {e["metadata"]["name"] for e in objects if e["kind"] in ("Role", "RoleBinding")} == {SELF}
    assert settings(objects, tmp_path).watch == ()


def test_somebody_else_may_give_the_rights(helm: Helm) -> None:
    values = {"rbac": {"create": False}, "serviceAccount": {"create": False, "name": "own"}}
    objects = helm.template("anchorage", values)
    assert not [each for each in objects if "Role" in each["kind"] or each["kind"] == "ServiceAccount"]
    assert of_kind(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "own"


def test_approving_a_silo_is_a_right_of_its_own(helm: Helm) -> None:
    objects = helm.template("anchorage", {"rbac": {"userRoles": True}})
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    with_right = [
        {label.removeprefix(prefix) for label in each["metadata"]["labels"] if label.startswith(prefix)}
        for each in objects
        if each["kind"] == "ClusterRole" and any("silos/status" in rule["resources"] for rule in each["rules"])
    ]
    assert with_right == [{"admin"}]


def test_the_operator_calls_names_the_api_server_and_control_ports(helm: Helm) -> None:
    policy = of_kind(helm.template("anchorage", {}), "NetworkPolicy")["spec"]
    labels = of_kind(helm.template("anchorage", {}), "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert labels[NAME_LABEL] == OPERATOR_NAME, "servers let in the pod with this label"
    dns, api, control = policy["egress"]
    assert dns == name_servers(PRIVATE_NETWORKS)
    assert [port["port"] for port in api["ports"]] == [443, 6443]
    assert "to" not in api
    assert control["ports"] == [{"protocol": "TCP", "port": CONTROL_PORT}]
    (server,) = control["to"]
    assert server["podSelector"]["matchLabels"].items() <= server_labels("derm").items()
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == [8080]


def test_the_way_to_the_api_server_can_be_narrowed(helm: Helm) -> None:
    narrow = {"networkPolicy": {"apiServerCidrs": ["10.0.0.1/32"], "apiServerPorts": [6443]}}
    _, api, _ = of_kind(helm.template("anchorage", narrow), "NetworkPolicy")["spec"]["egress"]
    assert api == {"ports": [{"protocol": "TCP", "port": 6443}], "to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}
    none = helm.template("anchorage", {"networkPolicy": {"enabled": False}, **WITH_MLFLOW})
    assert not [each for each in none if each["kind"] == "NetworkPolicy"]


def test_name_servers_that_are_no_pods_can_be_named(helm: Helm, tmp_path: Path) -> None:
    cidrs = ["8.8.8.8/32", "2001:db8::53/128"]
    objects = helm.template("anchorage", {"networkPolicy": {"dnsCidrs": cidrs}})
    assert of_kind(objects, "NetworkPolicy")["spec"]["egress"][0] == name_servers(cidrs)
    read = settings(objects, tmp_path)
    assert read.dns_cidrs == tuple(cidrs)
    metadata = {"name": "derm", "labels": server_labels("derm")}
    for policy in (
        server_network_policy(metadata, None, read.dns_cidrs),
        agent_network_policy(metadata, "derm", read.dns_cidrs),
    ):
        assert policy["spec"]["egress"][0] == name_servers(cidrs)


def test_monitoring_is_behind_switches(helm: Helm) -> None:
    labels = {"release": "prometheus"}
    on = {"enabled": True, "labels": labels}
    values = {"metrics": {"serviceMonitor": {**on, "intervalSeconds": 7}, "prometheusRule": on}}
    objects = helm.template("anchorage", values)
    operator = of_kind(objects, "ServiceMonitor", OPERATOR)
    service = of_kind(objects, "Service")
    assert operator["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert operator["spec"]["endpoints"] == [
        {"port": service["spec"]["ports"][0]["name"], "interval": "7s", "honorLabels": True}
    ]
    servers = of_kind(objects, "ServiceMonitor", "rel-anchorage-servers")
    assert servers["spec"]["selector"]["matchLabels"].items() <= server_labels("derm").items()
    assert servers["spec"]["namespaceSelector"] == {"matchNames": ["ns"]}
    rule = of_kind(objects, "PrometheusRule")
    alerts = rule["spec"]["groups"][0]["rules"]
    assert all({"alert", "expr", "for", "labels", "annotations"} == set(alert) for alert in alerts)
    assert "{{ $labels.namespace }}" in alerts[-1]["annotations"]["summary"]
    for each in (operator, servers, rule):
        assert each["metadata"]["labels"]["release"] == "prometheus"
    everywhere = helm.template("anchorage", {"rbac": {"scope": "Cluster"}, **values})
    assert of_kind(everywhere, "ServiceMonitor", "rel-anchorage-servers")["spec"]["namespaceSelector"] == {"any": True}


def test_mlflow_is_one_process_that_calls_nobody(helm: Helm) -> None:
    objects = helm.template("anchorage", WITH_MLFLOW)
    stateful = of_kind(objects, "StatefulSet")
    assert (stateful["spec"]["replicas"], mlflow_arguments(objects)["--workers"]) == (1, "1")
    policy = of_kind(objects, "NetworkPolicy", MLFLOW)["spec"]
    assert policy["egress"] == []
    ((peer,), ports) = (policy["ingress"][0]["from"], policy["ingress"][0]["ports"])
    assert peer["podSelector"]["matchLabels"].items() <= server_labels("derm").items()
    assert ports == [{"protocol": "TCP", "port": 5000}]
    every = [*stateful["spec"]["template"]["spec"]["initContainers"], container(objects, "StatefulSet")]
    for each in every:
        env = {variable["name"]: variable.get("value") for variable in each["env"]}
        assert (env["MLFLOW_DISABLE_TELEMETRY"], env["DO_NOT_TRACK"]) == ("true", "true")
        assert "MLFLOW_SERVER_ENABLE_JOB_EXECUTION" in env


def test_mlflow_keeps_everything_on_its_volume(helm: Helm) -> None:
    objects = helm.template("anchorage", WITH_MLFLOW)
    flags = mlflow_arguments(objects)
    (init,) = of_kind(objects, "StatefulSet")["spec"]["template"]["spec"]["initContainers"]
    assert init["args"] == ["db", "upgrade", flags["--backend-store-uri"]]
    mounts = {mount["mountPath"] for mount in container(objects, "StatefulSet")["volumeMounts"]}
    for place in (flags["--backend-store-uri"], flags["--artifacts-destination"]):
        assert "/" + place.split("//", 1)[1].lstrip("/").rsplit("/", 1)[0] in mounts
    assert "--serve-artifacts" in flags


def test_mlflow_answers_by_its_services_names(helm: Helm, tmp_path: Path) -> None:
    values = {"mlflow": {"enabled": True, "service": {"port": 80}, "allowedHosts": ["mlflow.example.org"]}}
    objects = helm.template("anchorage", values)
    hosts = mlflow_arguments(objects)["--allowed-hosts"].split(",")
    uri = settings(objects, tmp_path).tracking_uri
    assert uri == f"http://{MLFLOW}.ns.svc.cluster.local:80"
    assert {MLFLOW, f"{MLFLOW}.ns.svc", f"{MLFLOW}.ns.svc.cluster.local:80", "mlflow.example.org"} <= set(hosts)
    assert "*" not in hosts
    assert "https://mlflow.example.org" in mlflow_arguments(objects)["--cors-allowed-origins"].split(",")


def test_a_given_mlflow_comes_before_the_charts_own(helm: Helm, tmp_path: Path) -> None:
    objects = helm.template("anchorage", {**WITH_MLFLOW, "defaults": {"trackingUri": "http://other:5000"}})
    assert settings(objects, tmp_path).tracking_uri == "http://other:5000"


@pytest.mark.parametrize(
    ("persistence", "claim", "storage_class", "retained"),
    [
        ({}, MLFLOW, None, True),
        ({"storageClass": "fast", "retain": False}, MLFLOW, "fast", False),
        ({"storageClass": "-"}, MLFLOW, "", True),
        ({"existingClaim": "mine"}, "mine", None, None),
    ],
)
def test_mlflows_claim(
    helm: Helm, persistence: Values, claim: str, storage_class: str | None, retained: bool | None
) -> None:
    objects = helm.template("anchorage", {"mlflow": {"enabled": True, "persistence": persistence}})
    volumes = of_kind(objects, "StatefulSet")["spec"]["template"]["spec"]["volumes"]
    assert volumes[0]["persistentVolumeClaim"] == {"claimName": claim}
    claims = [each for each in objects if each["kind"] == "PersistentVolumeClaim"]
    if retained is None:
        assert not claims
        return
    assert claims[0]["spec"].get("storageClassName") == storage_class
    assert claims[0]["spec"]["resources"]["requests"]["storage"] == "20Gi"
    assert ("annotations" in claims[0]["metadata"]) == retained


@pytest.mark.parametrize(
    ("service", "port"),
    [
        ({}, {"port": 5000}),
        ({"type": "NodePort", "nodePort": 30500}, {"port": 5000, "nodePort": 30500}),
        ({"type": "LoadBalancer", "port": 80, "annotations": {"a": "b"}}, {"port": 80}),
        ({"nodePort": 30500}, {"port": 5000}),
    ],
)
def test_mlflows_service(helm: Helm, service: Values, port: Values) -> None:
    objects = helm.template("anchorage", {"mlflow": {"enabled": True, "service": service}})
    services = of_kind(objects, "Service", MLFLOW)
    assert services["spec"]["type"] == service.get("type", "ClusterIP")
    assert services["spec"]["ports"] == [{"name": "http", "targetPort": "http", "protocol": "TCP", **port}]
    assert services["metadata"].get("annotations") == service.get("annotations")
    open_to_all = "from" not in of_kind(objects, "NetworkPolicy", MLFLOW)["spec"]["ingress"][0]
    assert open_to_all == (services["spec"]["type"] != "ClusterIP")


def test_others_are_let_in_to_mlflow_by_name(helm: Helm) -> None:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}
    objects = helm.template("anchorage", {**WITH_MLFLOW, "networkPolicy": {"mlflowFrom": [peer]}})
    assert peer in of_kind(objects, "NetworkPolicy", MLFLOW)["spec"]["ingress"][0]["from"]


@pytest.mark.parametrize(
    ("values", "selectors"),
    [
        ({}, [["ns"]]),
        ({"watch": {"namespaces": ["a", "b"]}}, [["a", "b"]]),
        ({"watch": {"namespaces": ["a"], "labels": {"study": "yes"}}}, [["a"], {"study": "yes"}]),
        ({"rbac": {"scope": "Cluster"}}, [{}]),
    ],
)
def test_mlflow_lets_in_servers_of_the_watched_namespaces_alone(
    helm: Helm, values: Values, selectors: list[Any]
) -> None:
    rules = of_kind(helm.template("anchorage", {**WITH_MLFLOW, **values}), "NetworkPolicy", MLFLOW)["spec"]["ingress"]
    assert all(each["podSelector"] == {"matchLabels": {NAME_LABEL: "anchorage-server"}} for each in rules[0]["from"])
    namespace_selectors = [each["namespaceSelector"] for each in rules[0]["from"]]
    named = [{"key": "kubernetes.io/metadata.name", "operator": "In"}]
    for selector, wanted in zip(namespace_selectors, selectors, strict=True):
        if isinstance(wanted, list):
            assert selector == {"matchExpressions": [{**named[0], "values": wanted}]}
        else:
            assert selector == ({"matchLabels": wanted} if wanted else {})


@pytest.mark.parametrize("keep", [True, False])
def test_definitions_are_those_of_the_spec(helm: Helm, keep: bool) -> None:
    objects = helm.template("anchorage", {"crds": {"keep": keep}})
    definitions = {each["metadata"]["name"]: each for each in objects if each["kind"] == "CustomResourceDefinition"}
    assert set(definitions) == {"federations.anchorage.dev", "silos.anchorage.dev"}
    for name, each in definitions.items():
        file = CHARTS.parent / "crds" / f"{name.partition('.')[0]}.yaml"
        assert each["spec"] == yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
        policy = each["metadata"].get("annotations", {}).get("helm.sh/resource-policy")
        assert policy == ("keep" if keep else None)


def test_definitions_may_be_somebody_elses(helm: Helm) -> None:
    objects = helm.template("anchorage", {"crds": {"enabled": False}})
    assert not [each for each in objects if each["kind"] == "CustomResourceDefinition"]
