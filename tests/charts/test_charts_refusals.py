"""Nonsense is refused by the schema, before anything is rendered, and the answer names the value."""

from typing import Any

import pytest
from helm_charts import AUTHORITY, DATA, ENROLMENT, SITE, Helm


def silo(**changes: Any) -> dict[str, Any]:
    return {**SITE, **changes}


def invited(**changes: Any) -> dict[str, Any]:
    return silo(enrolment={**ENROLMENT, **changes})


ANCHORAGE: list[tuple[dict[str, Any], str]] = [
    ({"replicas": 2}, "replicas"),
    ({"operator": {"replicas": 0}}, "/operator/replicas"),
    ({"crds": {"enabled": "true"}}, "/crds/enabled"),
    ({"images": {"pullPolicy": "always"}}, "/images/pullPolicy"),
    ({"images": {"operator": "image with spaces"}}, "/images/operator"),
    ({"images": {"registry": ""}}, "/images/registry"),
    ({"images": {"tag": "a:b"}}, "/images/tag"),
    ({"images": {"pullSecrets": ["Upper"]}}, "/images/pullSecrets/0"),
    ({"rbac": {"scope": "Everywhere"}}, "/rbac/scope"),
    ({"rbac": {"scope": "Cluster"}, "watch": {"namespaces": ["a"]}}, "/watch"),
    ({"rbac": {"federations": {"Derm": []}}}, "/rbac/federations"),
    ({"rbac": {"federations": {"derm": ["*"]}}}, "/rbac/federations/derm/0"),
    ({"watch": {"namespaces": "a"}}, "/watch/namespaces"),
    ({"watch": {"labels": {"team": "a b"}}}, "/watch/labels/team"),
    ({"watch": {"namespaces": ["*"]}}, "/watch/namespaces/0"),
    ({"operator": {"resyncSeconds": 0}}, "/operator/resyncSeconds"),
    ({"operator": {"pollSeconds": "5s"}}, "/operator/pollSeconds"),
    ({"operator": {"resources": {"limits": {"memory": "1 GB"}}}}, "/operator/resources/limits/memory"),
    ({"operator": {"resources": {"limit": {}}}}, "limit"),
    ({"operator": {"extraVolumes": [{"name": "h", "hostPath": {"path": "/"}}]}}, "/operator/extraVolumes/0"),
    ({"operator": {"extraVolumes": [{"name": "nothing"}]}}, "/operator/extraVolumes/0"),
    ({"operator": {"extraVolumeMounts": [{"name": "v", "mountPath": "relative"}]}}, "mountPath"),
    ({"operator": {"tolerations": [{"key": "a", "operator": "Like"}]}}, "/operator/tolerations/0/operator"),
    ({"operator": {"affinity": {"podAffinty": {}}}}, "podAffinty"),
    ({"operator": {"env": [{"name": "1BAD"}]}}, "/operator/env/0/name"),
    ({"operator": {"nodeSelector": {"a": 1}}}, "/operator/nodeSelector/a"),
    ({"operator": {"podLabels": {"bad key": "v"}}}, "/operator/podLabels"),
    ({"defaults": {"server": {"resources": {}}}}, "resources"),
    ({"defaults": {"agent": {"volumes": [{"claimName": "venv"}]}}}, "mountPath"),
    ({"defaults": {"trackingUri": "http://user:password@host"}}, "/defaults/trackingUri"),
    ({"networkPolicy": {"apiServerPorts": []}}, "/networkPolicy/apiServerPorts"),
    ({"networkPolicy": {"apiServerCidrs": ["10.0.0.1"]}}, "/networkPolicy/apiServerCidrs/0"),
    ({"networkPolicy": {"mlflowFrom": [{}]}}, "/networkPolicy/mlflowFrom/0"),
    ({"metrics": {"serviceMonitor": {"intervalSeconds": "30s"}}}, "/metrics/serviceMonitor/intervalSeconds"),
    ({"mlflow": {"service": {"type": "ExternalName"}}}, "/mlflow/service/type"),
    ({"mlflow": {"service": {"port": 70000}}}, "/mlflow/service/port"),
    ({"mlflow": {"persistence": {"size": "lots"}}}, "/mlflow/persistence/size"),
    ({"mlflow": {"allowedHosts": ["a b"]}}, "/mlflow/allowedHosts/0"),
    ({"mlflow": {"workers": 4}}, "workers"),
]

SILO_AGENT: list[tuple[dict[str, Any], str]] = [
    ({}, "'enrolment'"),
    ({"enrolment": ENROLMENT}, "'data'"),
    ({"data": DATA}, "'federation'"),
    (silo(replicas=2), "replicas"),
    (invited(federation="Derm"), "/enrolment/federation"),
    (invited(silo=""), "/enrolment/silo"),
    (invited(labels="Some"), "/enrolment/labels"),
    (invited(server="federation.example.org"), "/enrolment/server"),
    (invited(server="https://federation.example.org:8443"), "/enrolment/server"),
    (invited(enrolment=8444), "/enrolment/enrolment"),
    (invited(authority="not a certificate"), "/enrolment/authority"),
    (invited(authority=AUTHORITY.replace("CERTIFICATE", "PRIVATE KEY")), "/enrolment/authority"),
    (invited(token="two words"), "/enrolment/token"),
    (invited(existingSecret="own"), "/enrolment"),
    (invited(key="what is a key doing here"), "/enrolment"),
    (silo(data={"format": "ImageFolder"}), "claimName"),
    (silo(data={"format": "CsvManifest", "claimName": "images"}), "manifest"),
    (silo(data={**DATA, "format": "Tarball"}), "/data"),
    (silo(data={**DATA, "path": "/absolute"}), "/data"),
    (silo(data={**DATA, "path": "../elsewhere"}), "/data"),
    (silo(data={**DATA, "maxLabels": 3}), "maxLabels"),
    (silo(policy={"allowedMethods": "FedAnchor"}), "/policy/allowedMethods"),
    (silo(policy={"clipNorm": 1.5}), "/policy/clipNorm"),
    (silo(policy={"maxRounds": 3}), "maxRounds"),
    (silo(device="gpu"), "/device"),
    (silo(proxy="proxy.example.org:3128"), "/proxy"),
    (silo(proxy="https://proxy.example.org:3128"), "/proxy"),
    (silo(proxy="http://user:password@proxy.example.org:3128"), "/proxy"),
    (silo(extraVolumes=[{"name": "h", "hostPath": {"path": "/"}}]), "/extraVolumes/0"),
    (silo(extraVolumes=[{"name": "h", "nfs": {"server": "s", "path": "/"}}]), "/extraVolumes/0"),
    (silo(resources={"limits": {"nvidia.com/gpu": "one"}}), "/resources/limits"),
    (silo(persistence={"storageClass": "Fast"}), "/persistence/storageClass"),
    (silo(networkPolicy={"egressCidrs": ["everywhere"]}), "/networkPolicy/egressCidrs/0"),
    (silo(images={"operator": "registry/operator:1"}), "operator"),
]


@pytest.mark.parametrize(
    ("chart", "values", "named"),
    [("anchorage", *case) for case in ANCHORAGE] + [("silo-agent", *case) for case in SILO_AGENT],
)
def test_nonsense_is_refused_by_name(helm: Helm, chart: str, values: dict[str, Any], named: str) -> None:
    answer = helm.try_template(chart, values)
    assert not answer.ok
    assert "don't meet the specifications of the schema" in answer.error
    assert named in answer.error


def test_a_default_is_taken_away_with_null(helm: Helm) -> None:
    answer = helm.try_template("anchorage", {"operator": {"resources": {"limits": {"memory": None}}}})
    assert answer.ok, answer.error
    assert "512Mi" not in answer.out


def test_a_chart_may_be_part_of_another(helm: Helm) -> None:
    assert helm.try_template("anchorage", {"global": {"any": "thing"}}).ok
