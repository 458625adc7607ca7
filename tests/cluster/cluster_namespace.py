"""One test's namespace under the restricted Pod Security Standard: what is applied, awaited and, on failure, printed."""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml
from cluster_site import CHECKOUT, Site
from kube.commands import CommandFailed

T = TypeVar("T")
READY_SECONDS = 600.0
"""After which what a test waits for is taken never to come; a busy machine takes minutes for what else takes seconds."""
POLL_SECONDS = 0.5


class NotInTime(AssertionError):
    """What a test waited for did not come."""


class Namespace:
    """A namespace of a site."""

    def __init__(self, site: Site, name: str) -> None:
        self.site = site
        self.name = name

    @classmethod
    @contextmanager
    def made(cls, site: Site, prefix: str = "test") -> Iterator["Namespace"]:
        """Make a namespace, with volumes for its pods; delete it in the end."""
        name = f"{prefix}-{uuid.uuid4().hex[:6]}"
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": name, "labels": labels}
        site.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}, *site.code_volumes(name))
        if claims := site.code_claims(name):
            site.kubectl.apply(*claims, namespace=name)
        if site.cluster is not None:
            site.cluster.disks.replenish()
        try:
            yield cls(site, name)
        finally:
            site.kubectl("delete", "namespace", name, "--wait=false")
            for volume in site.code_volumes(name):
                site.kubectl("delete", "persistentvolume", volume["metadata"]["name"], "--wait=false")

    def kubectl(self, *arguments: str | Path, check: bool = True, text: str | None = None, seconds: float = 300) -> str:
        """Run kubectl in the namespace."""
        return self.site.kubectl("--namespace", self.name, *arguments, check=check, text=text, seconds=seconds)

    def fedctl(self, *arguments: str | Path, check: bool = True, seconds: float = 300) -> str:
        """Run fedctl in the namespace."""
        return self.site.fedctl(*arguments, namespace=self.name, check=check, seconds=seconds)

    def apply(self, *objects: Mapping[str, Any]) -> str:
        """Apply objects."""
        return self.site.kubectl.apply(*objects, namespace=self.name)

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> str:
        """Merge a change into an object, as `kubectl edit` would."""
        return self.kubectl("patch", kind, name, "--type=merge", "--patch", json.dumps(change))

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object, or None."""
        return self.site.kubectl.get(kind, name, self.name)

    def must_get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object that has to be there."""
        stored_object = self.get(kind, name)
        assert stored_object is not None, f"there is no {kind} {name} in {self.name}"
        return stored_object

    def objects(self, kinds: str, selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of these kinds."""
        return self.site.kubectl.objects(kinds, self.name, selector)

    def names(self, kinds: str, selector: str = "") -> set[str]:
        """Return the names of the objects of these kinds."""
        return {each["metadata"]["name"] for each in self.objects(kinds, selector)}

    def install_chart(
        self, *arguments: str, values: Mapping[str, Any] | None = None, release: str = "anchorage"
    ) -> str:
        """Install or upgrade charts/anchorage, with the CRDs left to the session, and wait for its pods."""
        merged = {**self.site.chart_values(), "crds": {"enabled": False}, **(values or {})}
        file = self.site.kubectl.kubeconfig.with_name(f"values-{self.name}.yaml")
        file.write_text(yaml.safe_dump(merged))
        chart = CHECKOUT / "charts" / "anchorage"
        command = (
            "upgrade",
            "--install",
            release,
            chart,
            "--values",
            file,
            "--wait",
            "--timeout",
            f"{READY_SECONDS:.0f}s",
        )
        return self.site.helm(*command, *arguments, namespace=self.name)

    def eventually(self, what: str, probe: Callable[[], T | None], seconds: float = READY_SECONDS) -> T:
        """
        Ask again until `probe` returns something true, and return it.

        Raises
        ------
        NotInTime
            It did not within `seconds`, or a failed kubectl was the last thing seen.
        """
        deadline = time.monotonic() + seconds
        last = ""
        while True:
            try:
                if actual := probe():
                    return actual
                last = f"the last answer was {actual!r}"
            except CommandFailed as failed:
                last = str(failed)
            if time.monotonic() > deadline:
                raise NotInTime(f"{what}: not within {seconds:.0f} s; {last}")
            time.sleep(POLL_SECONDS)

    def condition(self, kind: str, name: str, type_: str) -> dict[str, Any]:
        """Return a condition of an object; empty where there is none yet."""
        status = (self.get(kind, name) or {}).get("status", {})
        matching = [each for each in status.get("conditions", ()) if each["type"] == type_]
        return dict(matching[0]) if matching else {}

    def wait_for_condition(
        self,
        kind: str,
        name: str,
        type_: str,
        status: str = "True",
        reason: str | None = None,
        seconds: float = READY_SECONDS,
    ) -> dict[str, Any]:
        """Wait until a condition has this status (and reason), and return it."""
        last_status: dict[str, Any] = {}

        def probe() -> dict[str, Any] | None:
            last_status.clear()
            last_status.update(self.condition(kind, name, type_))
            good = last_status.get("status") == status and reason in (None, last_status.get("reason"))
            return dict(last_status) if good else None

        what = f"{kind}/{name} {type_}={status}{f' for {reason}' if reason else ''}"
        try:
            return self.eventually(what, probe, seconds)
        except NotInTime as late:
            raise NotInTime(f"{late}; the condition is {last_status or 'not there'}") from None

    def round_of(self, federation: str) -> int:
        """Return the last committed round in a federation's status; 0 before there is one."""
        status = (self.get("federation", federation) or {}).get("status", {})
        return int(status.get("round") or 0)

    def wait_for_round(self, federation: str, number: int, seconds: float = READY_SECONDS) -> int:
        """Wait until a federation's status has this round or a later one, and return it."""

        def probe() -> int | None:
            reached = self.round_of(federation)
            return reached if reached >= number else None

        return self.eventually(f"round {number} of {federation}", probe, seconds)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the Events about an object of this name."""
        events = self.kubectl("get", "events", "--output=json", f"--field-selector=involvedObject.name={name}")
        return list(json.loads(events)["items"])

    def pod(self, name: str) -> dict[str, Any] | None:
        """Return a pod that is not about to go, or None."""
        pod_object = self.get("pod", name)
        return None if pod_object is None or "deletionTimestamp" in pod_object["metadata"] else pod_object

    def is_ready(self, pod: Mapping[str, Any] | None) -> bool:
        """Tell whether a pod is there and ready."""
        conditions = (pod or {}).get("status", {}).get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def evict(self, pod: str) -> None:
        """Ask for a pod's eviction, as a drain of its node does."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": self.name}}
        path = f"/api/v1/namespaces/{self.name}/pods/{pod}/eviction"
        self.kubectl("create", "--raw", path, "--filename", "-", text=json.dumps(body))

    def server_state(self, federation: str) -> Path:
        """Return the folder of the machine that is a server's volume."""
        claim = self.must_get("persistentvolumeclaim", f"state-{federation}-server-0")
        return Path(self.must_get("persistentvolume", claim["spec"]["volumeName"])["spec"]["local"]["path"])

    def diagnosis(self) -> str:
        """Return what a person would look at first."""
        parts = ["federations,silos,pods,statefulsets,services,persistentvolumeclaims"]
        views = [("get", *parts, "--output=wide"), ("describe", "federations,silos"), ("describe", "pods")]
        views.append(("get", "events", "--sort-by=.lastTimestamp"))
        for pod in self.kubectl("get", "pods", "--output=name", check=False).split():
            views.append(("logs", pod, "--all-containers", "--tail=60", "--prefix"))
            views.append(("logs", pod, "--previous", "--tail=30"))
        return "\n".join(f"$ kubectl {' '.join(view)}\n{self._view(view)}" for view in views)

    def _view(self, view: tuple[str, ...]) -> str:
        try:
            return self.kubectl(*view)
        except CommandFailed as failed:
            return str(failed)
