"""What charts/silo-agent renders, value by value."""

import base64
from pathlib import Path
from typing import Any

import pytest
from agent_options import other_options
from helm_charts import AUTHORITY, DATA, ENROLMENT, SITE, Helm, Values, container, of_kind

from anchorage.api.agent import SiteOptions
from anchorage.api.single import read_document
from anchorage_operator.build_network import DNS_PORTS, PRIVATE_NETWORKS
from anchorage_silo.config import SiloConfig
from anchorage_silo.policy import Policy

NAME = "rel-silo-agent"


def silo(**changes: Any) -> dict[str, Any]:
    return {**SITE, **changes}


def invited(**changes: Any) -> dict[str, Any]:
    return silo(enrolment={**ENROLMENT, **changes})


def files(objects: list[dict[str, Any]], folder: Path) -> Path:
    """Write the rendered files as the pod sees them; return their folder."""
    for name, text in of_kind(objects, "ConfigMap")["data"].items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def config(objects: list[dict[str, Any]], folder: Path) -> SiloConfig:
    """Read the rendered configuration as the agent does."""
    return read_document(files(objects, folder) / "silo.yaml", SiloConfig)


def mounts(objects: list[dict[str, Any]]) -> dict[str, tuple[dict[str, Any], bool]]:
    """Return source and read-only of every mounted volume by its path."""
    volumes = {v["name"]: v for v in of_kind(objects, "StatefulSet")["spec"]["template"]["spec"]["volumes"]}
    return {
        mount["mountPath"]: (volumes[mount["name"]], mount.get("readOnly", False))
        for mount in container(objects, "StatefulSet")["volumeMounts"]
    }


def test_an_agent_and_nothing_that_could_be_called(helm: Helm) -> None:
    objects = helm.template("silo-agent", SITE)
    kinds = sorted(each["kind"] for each in objects)
    expected = ["ConfigMap", "NetworkPolicy", "PersistentVolumeClaim", "Secret", "Service", "ServiceAccount"]
    assert kinds == [*expected, "StatefulSet"]
    assert of_kind(objects, "StatefulSet")["spec"]["replicas"] == 1
    service = of_kind(objects, "Service")["spec"]
    assert (service["type"], service["clusterIP"]) == ("ClusterIP", "None")
    assert [port["port"] for port in service["ports"]] == [8080]
    for each in objects:
        assert each["metadata"]["labels"]["anchorage.dev/silo"] == "hospital-a"
        assert each["metadata"]["namespace"] == "ns"


def test_the_agent_reads_its_configuration(helm: Helm, tmp_path: Path) -> None:
    objects = helm.template("silo-agent", SITE)
    read = config(objects, tmp_path)
    assert (read.silo, read.federation, read.labels) == ("hospital-a", "derm", "None")
    assert (read.server, read.enrolment) == (ENROLMENT["server"], ENROLMENT["enrolment"])
    assert read.data is not None
    assert (read.data.claim_name, read.data.path) == ("images", "dermoscopy")
    assert (read.probes_listen, read.stay, read.patience_seconds) == ("[::]:8080", True, 0)
    assert (read.proxy, read.policy) == (None, None)
    assert (tmp_path / "ca.pem").read_text(encoding="utf-8").strip() == AUTHORITY.strip()


def test_every_option_of_an_agent_reaches_its_configuration(helm: Helm, tmp_path: Path) -> None:
    options = other_options(SiteOptions)
    read = config(helm.template("silo-agent", silo(**options)), tmp_path)
    assert {
        name: getattr(read, field) for field, name in zip(SiteOptions.model_fields, options, strict=True)
    } == options
    assert config(helm.template("silo-agent", SITE), tmp_path).changed_options() == {}


def test_agents_of_several_federations_share_a_claim(helm: Helm, tmp_path: Path) -> None:
    objects = helm.template("silo-agent", silo(sharedWeights="weights"))
    shared = config(objects, tmp_path).shared_weights
    volume, read_only = mounts(objects)[str(shared)]
    assert volume["persistentVolumeClaim"] == {"claimName": "weights"} and not read_only
    alone = helm.template("silo-agent", SITE)
    assert config(alone, tmp_path).shared_weights is None and str(shared) not in mounts(alone)


def test_every_path_of_the_configuration_is_mounted(helm: Helm, tmp_path: Path) -> None:
    objects = helm.template("silo-agent", silo(policy={"minimumSamples": 10}))
    read, mounted = config(objects, tmp_path), mounts(objects)
    assert read.token is not None
    assert read.policy is not None
    for file in (read.authority, read.policy):
        assert mounted[str(file.parent)][0]["configMap"]["name"] == NAME
        assert file.name in of_kind(objects, "ConfigMap")["data"]
    assert mounted[str(read.token.parent)][0]["secret"]["secretName"] == f"{NAME}-enrolment"
    assert mounted[str(read.state)][0]["persistentVolumeClaim"]["claimName"] == f"{NAME}-state"
    data, read_only = mounted[f"{read.data_root}/images"]
    assert data["persistentVolumeClaim"] == {"claimName": "images", "readOnly": True}
    assert read_only
    assert [path for path, (_, only) in mounted.items() if not only] == [str(read.state), "/tmp"]


@pytest.mark.parametrize(
    "data",
    [
        DATA,
        {"format": "Digits"},
        {
            "format": "CsvManifest",
            "claimName": "images",
            "manifest": "list.csv",
            "classMap": {"1": "null", "yes": "0.5"},
            "testPercent": 20,
            "partition": {"recipe": "PerClass", "parts": 3, "part": 0, "alpha": "0.5", "minSize": 1000000},
            "use": "Part",
        },
    ],
)
def test_data_sections_arrive_as_they_were_written(helm: Helm, tmp_path: Path, data: Values) -> None:
    objects = helm.template("silo-agent", silo(data=data))
    read = config(objects, tmp_path).data
    assert read is not None
    assert read.model_dump(mode="json", by_alias=True, exclude_unset=True) == data
    assert [path for path in mounts(objects) if path.startswith("/data/")] == (
        ["/data/images"] if "claimName" in data else []
    )


def test_the_policy_arrives_as_it_was_written(helm: Helm, tmp_path: Path) -> None:
    policy = {
        "allowedMethods": ["FedAnchor", "FedAvg"],
        "allowedAuxiliaryData": [],
        "minimumSamples": 10000000,
        "maximumRounds": 200,
        "clipNorm": "1.50",
        "noiseStd": "0.001",
        "noiseSeed": 123456789012,
    }
    files(helm.template("silo-agent", silo(policy=policy)), tmp_path)
    read = read_document(tmp_path / "policy.yaml", Policy)
    assert read.model_dump(mode="json", by_alias=True, exclude_unset=True) == policy


def test_the_token_is_in_a_secret_and_nowhere_else(helm: Helm) -> None:
    objects = helm.template("silo-agent", SITE)
    secret = of_kind(objects, "Secret")
    assert base64.b64decode(secret["data"]["token"]).decode() == ENROLMENT["token"]
    assert ENROLMENT["token"] not in str([each for each in objects if each["kind"] != "Secret"])


def test_the_token_may_be_in_a_secret_of_the_hospital(helm: Helm, tmp_path: Path) -> None:
    objects = helm.template("silo-agent", invited(token="", existingSecret="mine"))
    assert not [each for each in objects if each["kind"] == "Secret"]
    source, read_only = mounts(objects)["/etc/anchorage-enrolment"]
    assert source["secret"]["secretName"] == "mine"
    assert source["secret"]["items"] == [{"key": "token", "path": "token"}]
    assert read_only
    assert config(objects, tmp_path).token == Path("/etc/anchorage-enrolment/token")


def test_an_enrolled_agent_needs_no_token(helm: Helm, tmp_path: Path) -> None:
    objects = helm.template("silo-agent", invited(token=""))
    assert not [each for each in objects if each["kind"] == "Secret"]
    assert "/etc/anchorage-enrolment" not in mounts(objects)
    assert config(objects, tmp_path).token is None


@pytest.mark.parametrize(
    ("values", "ports"),
    [
        (SITE, ["8443", "8444"]),
        (invited(server="[2001:db8::1]:443", enrolment="h:443"), ["443"]),
        (silo(proxy="http://proxy.example.org:3128"), ["3128"]),
        (silo(proxy="http://[2001:db8::2]:3128/"), ["3128"]),
    ],
)
def test_the_agent_calls_names_and_the_server_or_its_proxy(
    helm: Helm, tmp_path: Path, values: Values, ports: list[str]
) -> None:
    objects = helm.template("silo-agent", values)
    policy = of_kind(objects, "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    names, out = policy["egress"]
    assert names["to"] == [{"namespaceSelector": {}}, *({"ipBlock": {"cidr": each}} for each in PRIVATE_NETWORKS)]
    assert [(port["protocol"], port["port"]) for port in names["ports"]] == [
        (protocol, port) for port in DNS_PORTS for protocol in ("UDP", "TCP")
    ]
    assert [str(port["port"]) for port in out["ports"]] == ports
    assert "to" not in out
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == [8080]
    labels = of_kind(objects, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert config(objects, tmp_path).proxy == values.get("proxy")


def test_the_way_out_can_be_narrowed(helm: Helm) -> None:
    values = silo(networkPolicy={"egressCidrs": ["192.0.2.7/32"], "dnsCidrs": ["8.8.8.8/32"]})
    names, out = of_kind(helm.template("silo-agent", values), "NetworkPolicy")["spec"]["egress"]
    assert out["to"] == [{"ipBlock": {"cidr": "192.0.2.7/32"}}]
    assert names["to"] == [{"namespaceSelector": {}}, {"ipBlock": {"cidr": "8.8.8.8/32"}}]
    none = helm.template("silo-agent", silo(networkPolicy={"enabled": False}))
    assert not [each for each in none if each["kind"] == "NetworkPolicy"]


@pytest.mark.parametrize(
    ("persistence", "claim", "storage_class", "retained"),
    [
        ({}, f"{NAME}-state", None, True),
        ({"storageClass": "fast", "retain": False}, f"{NAME}-state", "fast", False),
        ({"storageClass": "-"}, f"{NAME}-state", "", True),
        ({"existingClaim": "mine"}, "mine", None, None),
    ],
)
def test_the_state_is_on_a_volume(
    helm: Helm, persistence: Values, claim: str, storage_class: str | None, retained: bool | None
) -> None:
    objects = helm.template("silo-agent", silo(persistence=persistence))
    assert mounts(objects)["/var/lib/anchorage"][0]["persistentVolumeClaim"] == {"claimName": claim}
    claims = [each for each in objects if each["kind"] == "PersistentVolumeClaim"]
    if retained is None:
        assert not claims
        return
    assert claims[0]["spec"].get("storageClassName") == storage_class
    assert ("annotations" in claims[0]["metadata"]) == retained


def test_image_pull_secrets_and_account(helm: Helm) -> None:
    values = silo(
        images={"agent": "r/agent@sha256:ab", "pullPolicy": "Never", "pullSecrets": ["a"]},
        serviceAccount={"create": False, "name": "own"},
    )
    objects = helm.template("silo-agent", values)
    agent = container(objects, "StatefulSet")
    assert (agent["image"], agent["imagePullPolicy"]) == ("r/agent@sha256:ab", "Never")
    spec = of_kind(objects, "StatefulSet")["spec"]["template"]["spec"]
    assert (spec["imagePullSecrets"], spec["serviceAccountName"]) == ([{"name": "a"}], "own")
    assert not [each for each in objects if each["kind"] == "ServiceAccount"]


def test_the_image_comes_from_the_registry_of_the_other_charts_images(helm: Helm) -> None:
    for images, name in (
        ({}, "localhost/anchorage-agent:0.1.0"),
        ({"registry": "r.example.org:5000/fl/", "tag": "2"}, "r.example.org:5000/fl/anchorage-agent:2"),
    ):
        assert container(helm.template("silo-agent", silo(images=images)), "StatefulSet")["image"] == name


def test_new_values_restart_the_agent(helm: Helm) -> None:
    def annotation(values: Values) -> str:
        template = of_kind(helm.template("silo-agent", values), "StatefulSet")["spec"]["template"]
        return str(template["metadata"]["annotations"]["anchorage.dev/config-hash"])

    assert annotation(SITE) == annotation(SITE)
    assert annotation(SITE) != annotation(invited(token="another"))
    assert annotation(SITE) != annotation(silo(policy={"maximumRounds": 1}))


def test_monitoring_is_behind_switches(helm: Helm) -> None:
    on = {"enabled": True, "labels": {"release": "prometheus"}}
    objects = helm.template("silo-agent", silo(metrics={"serviceMonitor": on, "prometheusRule": on}))
    monitor, service = of_kind(objects, "ServiceMonitor"), of_kind(objects, "Service")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"] == [{"port": "metrics", "interval": "30s"}]
    (group,) = of_kind(objects, "PrometheusRule")["spec"]["groups"]
    assert all(alert["for"] for alert in group["rules"])
