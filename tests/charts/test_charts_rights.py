"""Rights that depend on names: of federations, of namespaces by their labels, and of the Lease that replicas share."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_charts import Helm, Values, of_kind

from anchorage_operator.names import authority_name, enrolment_name, server_tls_name
from anchorage_operator.settings import AuthorityIssuer, read_settings

OPERATOR = "rel-anchorage-operator"
SELF = f"{OPERATOR}-self"


def settings(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rendered settings."""
    return dict(yaml.safe_load(of_kind(objects, "ConfigMap")["data"]["operator.yaml"]))


def secret_rights(objects: list[dict[str, Any]], kind: str = "Role") -> list[dict[str, Any]]:
    """Return the operator's rules about Secrets."""
    (rules,) = (
        each["rules"] for each in objects if each["kind"] == kind and each["metadata"]["name"].endswith("-operator")
    )
    return [rule for rule in rules if "secrets" in rule["resources"]]


@pytest.mark.parametrize(("scope", "kind"), [("Namespace", "Role"), ("Cluster", "ClusterRole")])
def test_where_federations_are_named_the_operator_has_their_secrets_alone(helm: Helm, scope: str, kind: str) -> None:
    named = {"derm": ["hospital-a", "hospital-b"], "nevi": ["hospital-a"], "empty": []}
    values = {"rbac": {"scope": scope, "federations": named}}
    keys, invitations, made = secret_rights(helm.template("anchorage", values), kind)
    assert keys["verbs"] == ["get", "patch"]
    assert set(keys["resourceNames"]) == {
        name for federation in named for name in (authority_name(federation), server_tls_name(federation))
    }
    assert invitations["verbs"] == ["get", "patch", "delete"]
    assert invitations["resourceNames"] == [enrolment_name("hospital-a"), enrolment_name("hospital-b")]
    assert made == {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}


def test_a_federation_without_silos_names_no_invitation(helm: Helm) -> None:
    """A rule with an empty list of names would be one for every name."""
    rules = secret_rights(helm.template("anchorage", {"rbac": {"federations": {"derm": []}}}))
    assert [rule.get("resourceNames") for rule in rules] == [["derm-authority", "derm-server-tls"], None]
    assert rules[-1]["verbs"] == ["create"]


LABELLED: Values = {"watch": {"labels": {"anchorage.example.org/watch": "yes"}}}


def test_labels_of_namespaces_ask_for_the_right_to_list_them(helm: Helm) -> None:
    assert not [e for e in helm.template("anchorage", {}) if "namespaces" in str(e.get("rules"))]
    objects = helm.template("anchorage", LABELLED)
    read = settings(objects)
    assert (read["watch"], read["watchLabels"]) == ([], LABELLED["watch"]["labels"])
    listing = of_kind(objects, "ClusterRole", f"ns-{OPERATOR}-namespaces")
    assert listing["rules"] == [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"]}]
    assert of_kind(objects, "ClusterRoleBinding")["roleRef"]["name"] == listing["metadata"]["name"]
    offered = of_kind(objects, "ClusterRole", f"ns-{OPERATOR}")
    assert offered["rules"] == of_kind(helm.template("anchorage", {}), "Role", OPERATOR)["rules"]
    assert {e["metadata"]["name"] for e in objects if e["kind"] == "Role"} == {SELF}
    assert f"--clusterrole={offered['metadata']['name']}" in helm.notes("anchorage", LABELLED)


def test_labels_of_namespaces_go_with_named_ones_and_with_rights_everywhere(helm: Helm) -> None:
    both = helm.template("anchorage", {"watch": {**LABELLED["watch"], "namespaces": ["a"]}})
    assert settings(both)["watch"] == ["a"]
    assert of_kind(both, "Role", OPERATOR)["metadata"]["namespace"] == "a"
    monitored = {"rbac": {"scope": "Cluster"}, "metrics": {"serviceMonitor": {"enabled": True}}, **LABELLED}
    everywhere = helm.template("anchorage", monitored)
    bound = {e["roleRef"]["name"] for e in everywhere if e["kind"] == "ClusterRoleBinding"}
    assert bound == {f"ns-{OPERATOR}", f"ns-{OPERATOR}-namespaces"}
    assert settings(everywhere)["watchLabels"]
    servers = of_kind(everywhere, "ServiceMonitor", "rel-anchorage-servers")
    assert servers["spec"]["namespaceSelector"] == {"any": True}


def test_replicas_share_a_lease_and_keep_apart(helm: Helm) -> None:
    one = helm.template("anchorage", {})
    assert of_kind(one, "Deployment")["spec"]["replicas"] == 1
    assert "topologySpreadConstraints" not in of_kind(one, "Deployment")["spec"]["template"]["spec"]
    two = of_kind(helm.template("anchorage", {"operator": {"replicas": 2}}), "Deployment")["spec"]
    assert two["replicas"] == 2
    assert two["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    (spread,) = two["template"]["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"] == two["selector"]
    (lease,) = (rule["resourceNames"] for rule in of_kind(one, "Role", SELF)["rules"] if "resourceNames" in rule)
    assert [settings(one)["lease"]] == lease


def test_an_issuer_is_asked_where_one_is_named(helm: Helm, tmp_path: Path) -> None:
    """The right to ask comes with it: a request of cert-manager, never its Secrets."""
    assert "cert-manager" not in str(helm.template("anchorage", {}))
    objects = helm.template("anchorage", {"authority": {"issuerRef": {"name": "platform", "kind": "ClusterIssuer"}}})
    (tmp_path / "operator.yaml").write_text(of_kind(objects, "ConfigMap")["data"]["operator.yaml"])
    issuer = read_settings(tmp_path / "operator.yaml").authority_issuer
    assert issuer == AuthorityIssuer(name="platform", kind="ClusterIssuer", group="cert-manager.io")
    rules = [rule for rule in of_kind(objects, "Role", OPERATOR)["rules"] if "cert-manager.io" in rule["apiGroups"]]
    assert rules == [
        {"apiGroups": ["cert-manager.io"], "resources": ["certificaterequests"], "verbs": ["get", "create"]}
    ]
