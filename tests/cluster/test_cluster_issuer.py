"""Authorities that cert-manager certifies; cert-manager is a double that knows one kind of object and signs when the test says so."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from cert_manager import ROOT, Issuer
from cluster_documents import STUDY, federation, managed_silo
from cluster_namespace import Namespace
from kube.commands import CommandFailed

from anchorage.transport.pki import certificate_of

REQUESTS = "certificaterequests.cert-manager.io"
ISSUED = "authority.issuerRef.name=platform,authority.issuerRef.kind=ClusterIssuer,operator.resyncSeconds=2"


def definition() -> dict[str, Any]:
    """Return cert-manager's definition of its requests, without most of its words."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": free, "status": free}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "CertificateRequest", "plural": "certificaterequests", "singular": "certificaterequest"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": REQUESTS},
        "spec": {
            "group": "cert-manager.io",
            "scope": "Namespaced",
            "names": {**names, "listKind": "CertificateRequestList"},
            "versions": [{**version, "subresources": {"status": {}}}],
        },
    }


@pytest.fixture
def without_cert_manager(namespace: Namespace) -> Iterator[Namespace]:
    """Give a namespace of a cluster that has no cert-manager; what the test installs of it is taken away."""
    if namespace.get("customresourcedefinition", REQUESTS) is not None:
        pytest.skip("this cluster has a cert-manager of its own, whose requests the tests leave alone")
    yield namespace
    namespace.kubectl("delete", "customresourcedefinition", REQUESTS, "--ignore-not-found")


def test_a_federation_trains_under_the_platform_s_authority(without_cert_manager: Namespace) -> None:
    namespace = without_cert_manager
    namespace.install_chart("--set", ISSUED)
    namespace.apply(federation(2, min_silos=1), managed_silo("silo-a", 0))
    namespace.wait_for_condition("federation", STUDY, "Ready", "False", "AuthorityNotIssued")
    message = namespace.condition("federation", STUDY, "CertificatesValid")["message"]
    assert "install cert-manager" in message

    namespace.site.kubectl.apply(definition())
    asked = namespace.eventually("the issuer is asked", lambda: request_of(namespace))
    namespace.wait_for_condition("federation", STUDY, "Ready", "False", "Pending")
    assert namespace.get("statefulset", f"{STUDY}-server") is None
    status = json.dumps({"status": Issuer().answer(asked)})
    namespace.kubectl(
        "patch", REQUESTS, f"{STUDY}-authority", "--subresource=status", "--type=merge", "--patch", status
    )

    namespace.wait_for_condition("federation", STUDY, "Succeeded")
    public = namespace.must_get("configmap", f"{STUDY}-authority")["data"]["ca.pem"]
    assert certificate_of(public.encode(), "ca.pem").issuer == ROOT


def request_of(namespace: Namespace) -> dict[str, Any] | None:
    """Return the request, None as well while the definition is being taken up."""
    try:
        return namespace.get(REQUESTS, f"{STUDY}-authority")
    except CommandFailed as failed:
        if "the server doesn't have a resource type" not in str(failed):
            raise
        return None
