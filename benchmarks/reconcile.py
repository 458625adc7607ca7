"""Cost of the operator with many federations: ``KUBECONFIG=FILE make bench-reconcile ARGS="--json FILE"``.

Against a real API server (Kubernetes 1.34 or later, an empty namespace is created and removed): applies the CRDs, creates federations with
their silos, starts the operator as its own process with a service account and without the libraries that its image lacks, and waits until
every federation has its server's StatefulSet with its pod and a status. The pods ask for a node that does not exist, so that only the
operator is measured. Then nothing changes for a few resyncs: resident memory, processor time per full resync (every federation reconciled
once, every kind listed once), and the writes that the API server counted; Events, which other components post too, are counted at the
operator.

With ``--running ADDRESS`` every federation's server runs: its pod's status says so, with this address of this machine, where all of them are
played. They are asked every few seconds over mutual TLS, have their silos connected, and commit a round a minute, which is written.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from base64 import b64decode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from running_servers import RunningServers, running

from anchorage.transport.kube.access import read_kubeconfig

ROOT = Path(__file__).parents[1]
NAMESPACE = "anchorage-bench"
PORT = 18099
RESYNC_SECONDS = 30
PATIENCE_SECONDS = 1800.0
"""After which what is waited for is taken never to come; a busy machine takes long."""
TARGETS = {"residentMegabytes": 120.0, "secondsPerResync": 1.0, "writes": 0}
LOOKS = r"reconcile_total\{.*\}"
SENT = r'api_requests_total\{method="(?:POST|PUT|PATCH|DELETE)".*\}'
WRITES = ("APPLY", "POST", "PATCH", "DELETE", "PUT")
GROUPS = {"statefulsets": "/apis/apps/v1", "pods": "/api/v1", "secrets": "/api/v1", "serviceaccounts": "/api/v1"}
RIGHTS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
AS_IN_ITS_IMAGE = """
import sys
from functools import partial
from pathlib import Path

sys.modules["kubernetes"] = None  # the image is without it
from anchorage_operator import main

main.read_service_account = partial(main.read_service_account, Path(sys.argv.pop()))
sys.exit(main.main())
"""
ENVIRONMENT = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
"""As in images/operator/Dockerfile."""
ROUNDS = 15
OURS = (
    "federations",
    "silos",
    "statefulsets",
    "services",
    "configmaps",
    "serviceaccounts",
    "networkpolicies",
    "poddisruptionbudgets",
    "secrets",
)


class Cluster:
    """The API server that KUBECONFIG names."""

    def __init__(self) -> None:
        self._access = read_kubeconfig(os.environ["KUBECONFIG"])
        self._pool = self._access.pool(1)
        address = urlsplit(self._access.server)
        self.host, self.port = str(address.hostname), str(address.port or 443)
        self.authority = Path(self._access.configuration.ssl_ca_cert).read_bytes()

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None, content_type: str = "") -> bytes:
        """Send a request; raise RuntimeError where it is refused."""
        headers = {"Accept": "application/json"} | ({"Content-Type": content_type} if content_type else {})
        if token := self._access.authorization():
            headers["Authorization"] = token
        content = None if body is None else json.dumps(body)
        response = self._pool.request(method, self._access.server + path, headers=headers, body=content)
        data: bytes = response.data
        if response.status >= 400:
            raise RuntimeError(f"{method} {path}: {response.status} {data[:500]!r}")
        return data

    def apply(self, path: str, body: Mapping[str, object]) -> None:
        """Apply an object server-side."""
        self.ask("PATCH", f"{path}?fieldManager=bench&force=true", body, "application/apply-patch+yaml")

    def writes(self) -> float:
        """Return how many writes of the operator's kinds the API server has answered since it started.

        Writes to subresources are counted for federations and silos only: controllers and kubelets write those of the other kinds.
        """
        total = 0.0
        for line in self.ask("GET", "/metrics").decode().splitlines():
            if not line.startswith("apiserver_request_total{"):
                continue
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            ours = labels["resource"] in OURS and labels["verb"] in WRITES
            if ours and (not labels["subresource"] or labels["resource"] in ("federations", "silos")):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def read(self, kind: str) -> list[dict[str, object]]:
        """Return the objects of a kind in the benchmark's namespace."""
        items: list[dict[str, object]] = json.loads(self.ask("GET", _path(kind)))["items"]
        return items


def _path(kind: str) -> str:
    prefix = GROUPS.get(kind, "/apis/anchorage.dev/v1alpha1")
    return f"{prefix}/namespaces/{NAMESPACE}/{kind}"


def documents(federations: int, silos: int, managed: int) -> Iterable[tuple[str, dict[str, object]]]:
    """Yield path and body of every federation and silo; the first `managed` silos of each run in the cluster."""
    data = {"format": "Digits", "use": "Part", "testPercent": 20, "anchors": 80}
    for n in range(federations):
        name = f"bench-{n:03d}"
        spec = {
            "rounds": ROUNDS,
            "task": {"classification": {"classes": list("0123456789")}},
            "model": {"network": "SmallCnn", "imageSize": 8, "channels": 1, "augmentation": "Digits"},
            "method": {"name": "FedAnchor"},
            "protocol": {"mode": "Synchronous", "minSilos": silos, "roundDeadlineSeconds": 300},
            "anchorData": {"format": "Digits", "use": "Anchors", "testPercent": 20, "anchors": 80},
            "evaluation": {"validation": {"format": "Digits", "use": "Test", "testPercent": 20, "anchors": 80}},
        }
        yield _path("federations") + f"/{name}", _document("Federation", name, spec)
        for k in range(silos):
            part = {"recipe": "PerClient", "parts": silos, "part": k, "alpha": "0.5"}
            where = {"managed": {"data": {**data, "partition": part}}} if k < managed else {}
            silo = f"{name}-{k}"
            body = _document("Silo", silo, {"federation": name, "labels": "None", **where})
            yield _path("silos") + f"/{silo}", body


def _document(kind: str, name: str, spec: Mapping[str, object]) -> dict[str, object]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "anchorage.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def service_account(cluster: Cluster, folder: Path) -> dict[str, str]:
    """Write a service account's files that may do everything; return the variables with which a pod finds the API server."""
    meta = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": NAMESPACE}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    who = {"kind": "ServiceAccount", "name": "default", "namespace": NAMESPACE}
    cluster.apply(f"{RIGHTS}/{NAMESPACE}", meta | {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": [who]})
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
    answer = cluster.ask("POST", f"{_path('serviceaccounts')}/default/token", asked, "application/json")
    (folder / "token").write_text(json.loads(answer)["status"]["token"])
    (folder / "ca.crt").write_bytes(cluster.authority)
    return {"KUBERNETES_SERVICE_HOST": cluster.host, "KUBERNETES_SERVICE_PORT": cluster.port}


def start(cluster: Cluster, folder: Path) -> psutil.Popen:
    """Start the operator as a process of its own."""
    nowhere = {"nodeSelector": {"anchorage.dev/bench": "nowhere"}}
    settings = {
        "images": {"server": "localhost/none:1", "agent": "localhost/none:1"},
        "server": nowhere,
        "agent": nowhere,
        "watch": [NAMESPACE],
        "listen": f"127.0.0.1:{PORT}",
        "resyncSeconds": RESYNC_SECONDS,
    }
    (folder / "operator.yaml").write_text(json.dumps(settings))  # JSON is YAML
    command = [sys.executable, "-c", AS_IN_ITS_IMAGE, "--config", str(folder / "operator.yaml"), str(folder)]
    environment = os.environ | ENVIRONMENT | service_account(cluster, folder)
    return psutil.Popen(command, stderr=(folder / "log").open("w"), env=environment)


def wait_until_all_are_there(cluster: Cluster, federations: int, managed: int) -> None:
    """Wait until every federation has its StatefulSets with their pods, and a status of its present generation."""
    deadline, parts = time.monotonic() + PATIENCE_SECONDS, federations * (1 + managed)
    while time.monotonic() < deadline:
        known = sum("observedGeneration" in item.get("status", {}) for item in cluster.read("federations"))
        if known == federations and all(len(cluster.read(kind)) == parts for kind in ("statefulsets", "pods")):
            return
        time.sleep(1.0)
    raise TimeoutError("not every federation was reconciled within half an hour")


def run_servers(cluster: Cluster, address: str, federations: int, silos: int) -> None:
    """Play the servers of all federations at an address, say that their pods run, and wait until the operator has heard of all."""
    names = [f"bench-{n:03d}" for n in range(federations)]
    certificates = {name: _certificate(cluster, name) for name in names}
    RunningServers(address, NAMESPACE, certificates, silos, ROUNDS)
    for name in names:
        status = {"status": running(address)}
        path = f"{_path('pods')}/{name}-server-0/status"
        cluster.ask("PATCH", path, status, "application/merge-patch+json")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sum(_trains(item) for item in cluster.read("federations")) < federations:
        if time.monotonic() > deadline:
            raise TimeoutError("not every server was heard within half an hour")
        time.sleep(1.0)


def _certificate(cluster: Cluster, federation: str) -> bytes:
    data = json.loads(cluster.ask("GET", f"{_path('secrets')}/{federation}-server-tls"))["data"]
    return b64decode(data["tls.key"]) + b64decode(data["tls.crt"])


def _trains(federation: Mapping[str, Any]) -> bool:
    conditions = federation.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["reason"] == "Training" for each in conditions)


def counted(metric: str) -> float:
    """Return the sum of one of the operator's counters, of the series that the pattern after its name fits."""
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return sum(map(float, re.findall(rf"^anchorage_operator_{metric} (.*)$", text, re.MULTILINE)))


def measure(cluster: Cluster, operator: psutil.Popen, federations: int, resyncs: int) -> dict[str, float]:
    """Let nothing happen for a few resyncs and return what it cost."""
    before, spent, looked = cluster.writes(), sum(operator.cpu_times()[:2]), counted(LOOKS)
    sent = counted(SENT)
    largest, begun = 0.0, time.monotonic()
    while time.monotonic() - begun < resyncs * RESYNC_SECONDS:
        largest = max(largest, operator.memory_info().rss / 1e6)
        time.sleep(0.5)
    spent, looked = sum(operator.cpu_times()[:2]) - spent, counted(LOOKS) - looked
    return {
        "residentMegabytes": round(largest, 1),
        "secondsPerResync": round(spent / max(looked / federations, 1e-9), 3),
        "secondsPerInterval": round(spent / resyncs, 3),
        "looksPerFederation": round(looked / federations, 2),
        "writes": cluster.writes() - before,
        "writesSentByTheOperator": counted(SENT) - sent,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--federations", type=int, default=200)
    parser.add_argument("--silos", type=int, default=3, help="per federation")
    parser.add_argument("--managed", type=int, default=0, help="of them run in the cluster")
    parser.add_argument("--running", metavar="ADDRESS", default="", help="play running servers at this address")
    parser.add_argument("--resyncs", type=int, default=4)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    cluster = Cluster()
    for command in (["apply", "--server-side"], ["wait", "--for=condition=Established"]):
        subprocess.run(["kubectl", *command, "-f", str(ROOT / "crds")], check=True, capture_output=True)
    removal = ["kubectl", "delete", "namespace", NAMESPACE, "--ignore-not-found", f"--timeout={PATIENCE_SECONDS:.0f}s"]
    subprocess.run(removal, check=True, capture_output=True)  # an earlier run's may still be on its way out
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    cluster.apply(f"/api/v1/namespaces/{NAMESPACE}", namespace)
    for path, body in documents(options.federations, options.silos, options.managed):
        cluster.apply(path, body)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        operator = start(cluster, Path(folder))
        try:
            wait_until_all_are_there(cluster, options.federations, options.managed)
            figures = {"allThereSeconds": round(time.monotonic() - begun, 1)}
            figures["secondsUntilThen"] = round(sum(operator.cpu_times()[:2]), 2)
            if options.running:
                run_servers(cluster, options.running, options.federations, options.silos)
            time.sleep(2 * RESYNC_SECONDS)
            figures |= measure(cluster, operator, options.federations, options.resyncs)
        finally:
            operator.terminate()
            operator.wait(60)
            for path in (f"{RIGHTS}/{NAMESPACE}", f"/api/v1/namespaces/{NAMESPACE}"):
                cluster.ask("DELETE", path)
    for name, value in figures.items():
        aims = {"residentMegabytes"} if options.running else TARGETS.keys()
        target = f"   target {TARGETS[name]:g}" if name in aims else ""
        print(f"{name:22} {value:10g}{target}")
    if options.json:
        options.json.write_text(json.dumps({"arguments": vars(options) | {"json": None}, "figures": figures}, indent=2))


if __name__ == "__main__":
    main()
