"""Checks of ``fedctl doctor`` on a cluster."""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from hashlib import sha256
from importlib.resources import files
from typing import Any

from anchorage.transport.kube import resources
from anchorage.transport.kube.client import KubeClient
from fedctl.arguments import Site
from fedctl.checkup import Check, Level, guard

OLDEST_VERSION = (1, 29)
"""Rules in CRDs (CEL) are stable from here on."""

SELECTABLE_FIELDS_VERSION = (1, 31)

CLOCK_WARNS_SECONDS, CLOCK_FAILS_SECONDS = 30.0, 240.0
"""Certificates are valid from five minutes before they are made; a clock further behind than that refuses them."""

DEFINITIONS = "definitions.json"
"""Digests of the CRDs' schemas by their names, beside this module; made by `make generate`."""

GPU = "nvidia.com/gpu"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
ENFORCED = "pod-security.kubernetes.io/enforce"

_VERBS = ("get", "create", "patch", "delete")
_AGENT = ("StatefulSet", "ServiceAccount", "ConfigMap", "Service", "PersistentVolumeClaim", "Secret", "NetworkPolicy")
_OPERATOR = (*_AGENT, "Deployment", "Role", "RoleBinding")


def cluster_checks(api: KubeClient, site: Site) -> Iterator[Check]:
    """Check a cluster without changing anything.

    Parameters
    ----------
    api : KubeClient
        The cluster, and the namespace of the install.
    site : Site
        What the cluster is to become.
    """
    yield from guard("API server", lambda: server_checks(api))
    if site is Site.COORDINATOR:
        yield from guard("CRDs", lambda: [definitions_check(api)])
    yield from guard("nodes", lambda: nodes_checks(list(api.list("Node", None))))
    yield from guard("storage class", lambda: [storage_check(list(api.list("StorageClass", None)))])
    yield from guard("DNS", lambda: [dns_check(api)])
    yield from guard("namespace", lambda: [namespace_check(api)])
    yield from guard("rights", lambda: [rights_check(api, site)])


def server_checks(api: KubeClient) -> Iterator[Check]:
    """Check the API server's version and clock."""
    before = time.time()
    version, date = api.version()
    after = time.time()
    yield version_check(version)
    if date is not None:
        ahead = parsedate_to_datetime(date).timestamp() - (before + after) / 2
        yield clock_check(ahead, 1 + (after - before) / 2)


def version_check(version: str) -> Check:
    """Check a version such as ``v1.34.4``."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    number = (int(match[1]), int(match[2])) if match else (0, 0)
    if number < OLDEST_VERSION:
        return Check("version", Level.FAIL, f"Kubernetes {version}", "upgrade the cluster to 1.29 or later")
    if number < SELECTABLE_FIELDS_VERSION:
        remedy = "all but `kubectl get silos --field-selector` works; upgrade to 1.31 for that"
        return Check("version", Level.WARN, f"Kubernetes {version}", remedy)
    return Check("version", Level.OK, f"Kubernetes {version}")


def clock_check(ahead: float, uncertain: float) -> Check:
    """Check the API server's clock.

    Parameters
    ----------
    ahead : float
        Seconds by which it seems to be ahead of this machine's.
    uncertain : float
        Seconds by which that may be wrong: the header has whole seconds, and the answer took its time.
    """
    detail = f"the API server's clock differs from this machine's by {round(ahead)} s"
    sure = abs(ahead) - uncertain
    if sure < CLOCK_WARNS_SECONDS:
        return Check("clock", Level.OK, detail)
    level = Level.WARN if sure < CLOCK_FAILS_SECONDS else Level.FAIL
    return Check("clock", level, detail, "set both clocks by NTP: certificates are refused by a clock that is wrong")


def definitions_check(api: KubeClient) -> Check:
    """Compare the installed CRDs with those of this fedctl."""
    ours: dict[str, str] = json.loads(files("fedctl").joinpath(DEFINITIONS).read_text("utf-8"))
    present = {name: api.get("CustomResourceDefinition", "", name) for name in ours}
    if not any(present.values()):
        return Check("CRDs", Level.OK, "not installed yet; the chart brings them (crds.enabled)")
    different = [name for name, known in ours.items() if schemas_digest(present[name]) != known]
    if different:
        detail = f"{', '.join(different)} differ from this fedctl's"
        remedy = "upgrade the chart (crds.enabled=true), or use the fedctl of its version"
        return Check("CRDs", Level.WARN, detail, remedy)
    return Check("CRDs", Level.OK, f"{', '.join(ours)} as this fedctl knows them")


def schemas_digest(definition: Mapping[str, Any] | None) -> str:
    """Return SHA-256 over the schemas of a CustomResourceDefinition by version, hexadecimal; of None over no version."""
    versions = definition["spec"]["versions"] if definition else []
    schemas = {version["name"]: version["schema"] for version in versions}
    return sha256(json.dumps(schemas, sort_keys=True).encode()).hexdigest()


def nodes_checks(nodes: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    """Check for ready nodes and their GPUs."""
    ready = [node for node in nodes if _is_ready(node) and not node.get("spec", {}).get("unschedulable")]
    if not ready:
        detail = f"{len(nodes)} nodes, none ready for pods"
        yield Check("nodes", Level.FAIL, detail, "`kubectl describe nodes` says why; no pod can start")
    else:
        yield Check("nodes", Level.OK, f"{len(ready)} of {len(nodes)} ready for pods")
    gpus = sum(int(node.get("status", {}).get("allocatable", {}).get(GPU, 0)) for node in ready)
    if gpus:
        yield Check("GPU", Level.OK, f"{gpus} {GPU}")
    else:
        remedy = "training runs on processors; for GPUs install the NVIDIA device plugin, else set no GPU limits"
        yield Check("GPU", Level.WARN, f"no node offers {GPU}", remedy)


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def storage_check(classes: Sequence[Mapping[str, Any]]) -> Check:
    """Check for a default storage class."""
    defaults = [
        item["metadata"]["name"]
        for item in classes
        if item["metadata"].get("annotations", {}).get(DEFAULT_CLASS) == "true"
    ]
    if defaults:
        return Check("storage class", Level.OK, f"{', '.join(defaults)} is the default")
    names = ", ".join(item["metadata"]["name"] for item in classes) or "none"
    remedy = (
        "mark one as the default, or name one: spec.server.storage.className, persistence.storageClass of the charts"
    )
    return Check("storage class", Level.WARN, f"no default; there are: {names}", remedy)


def dns_check(api: KubeClient) -> Check:
    """Check that the cluster's DNS has a ready endpoint."""
    slices = list(api.list("EndpointSlice", "kube-system", "kubernetes.io/service-name=kube-dns"))
    endpoints = [endpoint for item in slices for endpoint in item.get("endpoints") or []]
    ready = sum(endpoint.get("conditions", {}).get("ready") is not False for endpoint in endpoints)
    if ready:
        return Check("DNS", Level.OK, f"{ready} endpoints of kube-system/kube-dns are ready")
    detail = "no ready endpoint of kube-system/kube-dns" if slices else "no Service kube-system/kube-dns"
    return Check("DNS", Level.WARN, detail, "see that the cluster resolves names: pods reach the server by its name")


def namespace_check(api: KubeClient) -> Check:
    """Check the namespace's Pod Security Standard."""
    namespace_object = api.get("Namespace", "", api.namespace)
    if namespace_object is None:
        remedy = f"helm install … -n {api.namespace} --create-namespace makes it"
        return Check("namespace", Level.WARN, f"{api.namespace} does not exist", remedy)
    if namespace_object.get("status", {}).get("phase") == "Terminating":
        return Check("namespace", Level.FAIL, f"{api.namespace} is being deleted", "wait, or use another one")
    enforced = namespace_object["metadata"].get("labels", {}).get(ENFORCED)
    if enforced == "restricted":
        return Check("namespace", Level.OK, f"{api.namespace} enforces the restricted Pod Security Standard")
    remedy = f"every pod meets the restricted standard: kubectl label namespace {api.namespace} {ENFORCED}=restricted"
    return Check("namespace", Level.WARN, f"{api.namespace} enforces {enforced or 'no Pod Security Standard'}", remedy)


def rights_check(api: KubeClient, site: Site) -> Check:
    """Ask the API server whether this user may install the chart."""
    kinds = _OPERATOR if site is Site.COORDINATOR else _AGENT
    wanted = [(verb, kind, api.namespace) for kind in kinds for verb in _VERBS]
    wanted.append(("list", "Secret", api.namespace))  # Helm keeps its releases in Secrets
    if site is Site.COORDINATOR:
        wanted += [(verb, "CustomResourceDefinition", "") for verb in ("create", "patch")]
    missing = [
        f"{verb} {resources.RESOURCES[kind].full_name}{'' if namespace else ' (cluster-wide)'}"
        for verb, kind, namespace in wanted
        if not api.may(verb, kind, namespace=namespace)
    ]
    if missing:
        remedy = "ask whoever runs the cluster for these rights, or to install the chart"
        return Check("rights", Level.FAIL, f"this user may not {', '.join(missing)}", remedy)
    extra = "" if api.may("patch", "Silo", namespace=api.namespace, subresource="status") else "; not to approve silos"
    return Check(
        "rights", Level.OK, f"to install in namespace {api.namespace}{extra if site is Site.COORDINATOR else ''}"
    )
