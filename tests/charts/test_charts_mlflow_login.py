"""The log-in to the chart's MLflow, as it is rendered."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from helm_charts import Helm, Values, container, of_kind

from anchorage_operator.names import tracking_login_name
from anchorage_operator.settings import OperatorSettings, TrackingLogin, read_settings

NAME = "rel-anchorage-mlflow"
LOGIN = f"{NAME}-login"
URI = f"http://{NAME}.ns.svc.cluster.local:5000"
KEYS = {"admin-password", "federations-key", "session-key"}
ON: Values = {"mlflow": {"enabled": True}}


def with_auth(**auth: str) -> Values:
    return {"mlflow": {"enabled": True, "auth": auth}}


def settings(objects: list[dict[str, Any]], tmp_path: Path) -> OperatorSettings:
    """Read the rendered settings as the operator does."""
    file = tmp_path / "operator.yaml"
    file.write_text(of_kind(objects, "ConfigMap", "rel-anchorage-operator")["data"]["operator.yaml"], encoding="utf-8")
    return read_settings(file)


def mounted(objects: list[dict[str, Any]], kind: str, secret: str) -> set[str]:
    """Return the keys of a Secret that a pod's one container has as files."""
    volumes = of_kind(objects, kind)["spec"]["template"]["spec"]["volumes"]
    (volume,) = (each for each in volumes if each.get("secret", {}).get("secretName") == secret)
    (mount,) = (each for each in container(objects, kind)["volumeMounts"] if each["name"] == volume["name"])
    assert (mount["mountPath"], mount["readOnly"]) == ("/etc/mlflow-login", True)
    return {item["key"] for item in volume["secret"]["items"]}


@pytest.mark.parametrize("values", [ON, with_auth(mode="On")])
def test_a_new_mlflow_asks_for_a_log_in(helm: Helm, tmp_path: Path, values: Values) -> None:
    objects = helm.template("anchorage", values)
    assert "--app-name=basic-auth" in container(objects, "StatefulSet")["args"]
    login = settings(objects, tmp_path).tracking_login
    assert login == TrackingLogin(uri=URI, key=Path("/etc/mlflow-login/federations-key"))
    assert of_kind(objects, "StatefulSet")["metadata"]["annotations"] == {"anchorage.dev/log-in": "yes"}
    assert "default_permission = NO_PERMISSIONS\n" in of_kind(objects, "ConfigMap", NAME)["data"]["auth.ini"]


def test_the_secret_is_random_kept_and_nowhere_else(helm: Helm) -> None:
    objects = helm.template("anchorage", ON)
    secret = of_kind(objects, "Secret", LOGIN)
    login = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
    assert set(login) == KEYS
    assert all(len(value) == 40 for value in login.values()) and len(set(login.values())) == 3
    assert secret["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    second_login = of_kind(helm.template("anchorage", ON), "Secret", LOGIN)["data"]
    assert not set(second_login.values()) & set(secret["data"].values())
    others = json.dumps([each for each in objects if each is not secret])
    for value in (*login.values(), *secret["data"].values()):
        assert value not in others


def test_every_pod_has_what_it_needs_of_the_secret_alone(helm: Helm) -> None:
    objects = helm.template("anchorage", ON)
    assert mounted(objects, "Deployment", LOGIN) == {"federations-key"}, "the operator is no administrator of MLflow"
    assert mounted(objects, "StatefulSet", LOGIN) == {"admin-password", "federations-key"}
    assert LOGIN not in str(container(objects, "Deployment")["env"])


def test_a_secret_of_the_platform_takes_the_place_of_the_chart_s(helm: Helm) -> None:
    objects = helm.template("anchorage", with_auth(existingSecret="own"))
    assert not [each for each in objects if each["kind"] == "Secret"]
    assert LOGIN not in json.dumps(objects)
    assert mounted(objects, "Deployment", "own") == {"federations-key"}
    assert mounted(objects, "StatefulSet", "own") == {"admin-password", "federations-key"}
    assert "get secret own " in helm.notes("anchorage", with_auth(existingSecret="own"))


@pytest.mark.parametrize("values", [with_auth(mode="Off"), {"mlflow": {"auth": {"mode": "On"}}}])
def test_without_a_log_in_nothing_of_it_is_there(helm: Helm, tmp_path: Path, values: Values) -> None:
    objects = helm.template("anchorage", values)
    assert settings(objects, tmp_path).tracking_login is None
    assert not [each for each in objects if each["kind"] == "Secret"]
    text = json.dumps([each for each in objects if each["kind"] != "CustomResourceDefinition"])
    for word in ("basic-auth", LOGIN, "mlflow-login", "anchorage.dev/log-in"):
        assert word not in text


def test_the_log_in_is_of_the_chart_s_mlflow_where_servers_send_elsewhere(helm: Helm, tmp_path: Path) -> None:
    read = settings(helm.template("anchorage", {**ON, "defaults": {"trackingUri": "http://other:5000"}}), tmp_path)
    assert (read.tracking_uri, read.tracking_login and read.tracking_login.uri) == ("http://other:5000", URI)


@pytest.mark.parametrize(("values", "there"), [(ON, True), (with_auth(mode="Off"), False)])
def test_where_federations_are_named_the_operator_may_write_their_log_ins(
    helm: Helm, values: Values, there: bool
) -> None:
    objects = helm.template("anchorage", {**values, "rbac": {"federations": {"derm": []}}})
    rules = of_kind(objects, "Role", "rel-anchorage-operator")["rules"]
    named = [name for rule in rules if "secrets" in rule["resources"] for name in rule.get("resourceNames", ())]
    assert (tracking_login_name("derm") in named) is there


def test_the_notes_show_how_to_log_in(helm: Helm) -> None:
    message = helm.notes("anchorage", ON)
    assert f"-n ns get secret {LOGIN} -o 'go-template={{{{index .data \"admin-password\" | base64decode}}}}'" in message
    assert 'log in as "admin"' in message
    off = helm.notes("anchorage", with_auth(mode="Off"))
    assert "asks for no log-in" in off and LOGIN not in off


@pytest.mark.parametrize("auth", [{"mode": "Yes"}, {"existingSecret": "Not A Name"}, {"password": "x"}])
def test_a_mistake_is_refused(helm: Helm, auth: dict[str, str]) -> None:
    assert not helm.try_template("anchorage", with_auth(**auth)).ok
