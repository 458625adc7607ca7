"""Faults of a federation over two clusters, at moments and of lengths that a seed chooses."""

import os
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass

from cluster_documents import STUDY
from cluster_hospital import TwoSites
from cluster_namespace import Namespace
from kube import Cluster

SERVER_POD = f"{STUDY}-server-0"
AGENT_POD = "silo-a-silo-0"


def _delete(namespace: Namespace, pod: str) -> AbstractContextManager[None]:
    namespace.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")
    return nullcontext()


def _evict(namespace: Namespace, pod: str) -> AbstractContextManager[None]:
    namespace.evict(pod)
    return nullcontext()


def _kill(cluster: Cluster, word: str) -> AbstractContextManager[None]:
    cluster.kill(word)
    return nullcontext()


def _restart(cluster: Cluster, component: str) -> AbstractContextManager[None]:
    cluster.restart(component)
    return nullcontext()


def _damage_checkpoint(sites: TwoSites) -> AbstractContextManager[None]:
    """Kill the server and flip a bit of its newest checkpoint before it is there again."""
    state = sites.here.server_state(STUDY)
    sites.coordinator.kill("anchorage_server")
    with max(state.glob("checkpoints/round-*")).open("r+b") as file:
        middle = file.seek(0, os.SEEK_END) // 2
        file.seek(middle)
        (byte,) = file.read(1)
        file.seek(middle)
        file.write(bytes([byte ^ 1]))
    return nullcontext()


def _tear_journal(sites: TwoSites) -> AbstractContextManager[None]:
    """Kill the server and cut its journal in the middle of the last line."""
    journal = sites.here.server_state(STUDY) / "journal.jsonl"
    sites.coordinator.kill("anchorage_server")
    content = journal.read_bytes()
    os.truncate(journal, len(content) - len(content.splitlines()[-1]) // 2)
    return nullcontext()


def _operator(namespace: Namespace) -> str:
    return min(namespace.names("pods", "app.kubernetes.io/name=anchorage-operator"))


KINDS: dict[str, Callable[[TwoSites], AbstractContextManager[None]]] = {
    "kill-server": lambda sites: _kill(sites.coordinator, "anchorage_server"),
    "kill-agent": lambda sites: _kill(sites.coordinator, "anchorage_silo"),
    "kill-hospital": lambda sites: _kill(sites.hospital, "anchorage_silo"),
    "kill-trainer": lambda sites: _kill(sites.coordinator, "anchorage_silo.trainer"),
    "kill-hospital-trainer": lambda sites: _kill(sites.hospital, "anchorage_silo.trainer"),
    "kill-operator": lambda sites: _kill(sites.coordinator, "anchorage_operator"),
    "delete-server-pod": lambda sites: _delete(sites.here, SERVER_POD),
    "delete-agent-pod": lambda sites: _delete(sites.here, AGENT_POD),
    "delete-hospital-pod": lambda sites: _delete(sites.there, sites.agent),
    "delete-operator-pod": lambda sites: _delete(sites.here, _operator(sites.here)),
    "evict-server": lambda sites: _evict(sites.here, SERVER_POD),
    "evict-agent": lambda sites: _evict(sites.here, AGENT_POD),
    "pause-server": lambda sites: sites.coordinator.silent("anchorage_server"),
    "pause-agent": lambda sites: sites.coordinator.silent("anchorage_silo"),
    "pause-hospital-trainer": lambda sites: sites.hospital.silent("anchorage_silo.trainer"),
    "pause-api-server": lambda sites: sites.coordinator.silent("kube-apiserver"),
    "pause-hospital-api-server": lambda sites: sites.hospital.silent("kube-apiserver"),
    "restart-api-server": lambda sites: _restart(sites.coordinator, "kube-apiserver"),
    "restart-kubelet": lambda sites: _restart(sites.coordinator, "kubelet"),
    "pause-name-server": lambda sites: sites.coordinator.silent("coredns"),
    "damage-checkpoint": _damage_checkpoint,
    "tear-journal": _tear_journal,
    "cut-cable": TwoSites.cut,
    "slow-cable": TwoSites.slow,
}
"""What is done, and undone again where it lasts."""
LASTING = ("pause", "cut", "slow")
"""How the names of those begin that last."""
LONGEST_SECONDS = 12.0
"""How long a fault lasts at most, where it lasts."""


@dataclass(frozen=True)
class Fault:
    """One fault."""

    kind: str
    """One of `KINDS`."""
    delay: float
    """Seconds from when the federation was at work again."""
    seconds: float
    """How long it lasts, where it lasts."""

    def inject(self, sites: TwoSites) -> None:
        """Do it, at its moment and for its time; where its process is not there (a trainer that is starting), as soon as it is."""
        time.sleep(self.delay)
        with ExitStack() as undo:
            sites.here.eventually(f"something to {self.kind}", lambda: self._done(sites, undo))
            if self.kind.startswith(LASTING):
                time.sleep(self.seconds)

    def _done(self, sites: TwoSites, undo: ExitStack) -> bool:
        try:
            undo.enter_context(KINDS[self.kind](sites))
        except ProcessLookupError:
            return False
        return True


def plan(count: int, seed: int) -> list[Fault]:
    """Return so many faults: every kind comes before one comes again."""
    rng = random.Random(seed)
    kinds: list[str] = []
    while len(kinds) < count:
        kinds += rng.sample(list(KINDS), len(KINDS))
    return [Fault(kind, rng.uniform(0, 2), rng.uniform(1, LONGEST_SECONDS)) for kind in kinds[:count]]
