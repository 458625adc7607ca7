"""Upgrades of the chart's MLflow: one that ran without a log-in goes on without, and a Secret is made once."""

from typing import Any

from cluster_namespace import Namespace

MLFLOW, LOGIN = "anchorage-mlflow", "anchorage-mlflow-login"


def upgraded(namespace: Namespace, *values: str) -> dict[str, Any]:
    """Install or upgrade the chart and return MLflow's StatefulSet."""
    namespace.install_chart("--set", ",".join(("mlflow.enabled=true", *values)))
    return namespace.must_get("statefulset", MLFLOW)


def asks(mlflow: dict[str, Any]) -> bool:
    """Return whether an MLflow asks for a log-in."""
    return "--app-name=basic-auth" in mlflow["spec"]["template"]["spec"]["containers"][0]["args"]


def test_an_upgrade_changes_neither_whether_there_is_a_log_in_nor_the_passwords(namespace: Namespace) -> None:
    assert not asks(upgraded(namespace, "mlflow.auth.mode=Off"))
    assert not asks(upgraded(namespace)), "servers that are not upgraded yet could not log in"
    assert namespace.get("secret", LOGIN) is None
    assert asks(upgraded(namespace, "mlflow.auth.mode=On"))
    made = namespace.must_get("secret", LOGIN)
    assert asks(upgraded(namespace)), "it stays on"
    assert namespace.must_get("secret", LOGIN)["data"] == made["data"]
    namespace.kubectl(
        "patch", "secret", LOGIN, "--type=json", '--patch=[{"op": "remove", "path": "/data/session-key"}]'
    )
    upgraded(namespace)
    stored_object = namespace.must_get("secret", LOGIN)["data"]
    assert set(stored_object) == set(made["data"])
    assert {key for key in stored_object if stored_object[key] != made["data"][key]} == {"session-key"}, (
        "what is missing is made"
    )
