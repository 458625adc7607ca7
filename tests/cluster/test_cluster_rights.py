"""What the operator may do by the chart's roles, as a real API server judges it."""

from collections.abc import Iterator

import pytest
import yaml
from cluster_documents import STUDY
from cluster_namespace import Namespace
from cluster_site import CHECKOUT, Site

SECRETS = (f"{STUDY}-authority", f"{STUDY}-server-tls", "silo-a-enrolment")


@pytest.fixture(scope="module")
def ruled(site: Site) -> Iterator[Namespace]:
    """Give a namespace with the chart's roles for one named federation, and no operator: only the API server judges here."""
    with Namespace.made(site) as made:
        chosen = ("--set", f"rbac.federations.{STUDY}={{silo-a}}", "--show-only", "templates/operator-rbac.yaml")
        chosen += ("--kube-version", "1.34.0")  # nothing asks the API server here
        roles = site.helm("template", "anchorage", CHECKOUT / "charts" / "anchorage", *chosen, namespace=made.name)
        made.apply(*(each for each in yaml.safe_load_all(roles) if each))
        yield made


def may(ruled: Namespace, verb: str, what: str) -> bool:
    """Ask whether the operator has a right in the namespace."""
    operator = f"--as=system:serviceaccount:{ruled.name}:anchorage-operator"
    return ruled.kubectl("auth", "can-i", verb, what, operator, check=False).splitlines()[-1] == "yes"


@pytest.mark.parametrize("secret", SECRETS)
def test_the_operator_has_its_own_secrets(ruled: Namespace, secret: str) -> None:
    assert may(ruled, "get", f"secret/{secret}") and may(ruled, "patch", f"secret/{secret}")


@pytest.mark.parametrize("verb", ["get", "list", "delete", "patch"])
def test_the_operator_has_nobody_else_s_secrets(ruled: Namespace, verb: str) -> None:
    assert may(ruled, "get", f"federation.anchorage.dev/{STUDY}"), "the roles are in force"
    assert not may(ruled, verb, "secret/registry-credentials" if verb != "list" else "secrets")
