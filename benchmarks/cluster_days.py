"""What ordinary days of a cluster cost: a drain, a new version, and a device that goes from one federation to the next.

Starts a new cluster as the cluster tests do (root, Go: see tests/cluster/prepare.sh). It has one node, on which what is evicted comes back;
Kueue is the tests' double, which asks every half second which pods to admit. When rounds were committed is in the servers' own records.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "cluster"))

from cluster_documents import STUDY, federation, managed_silo, two_silos
from cluster_namespace import Namespace
from first_round import site
from kube import missing
from test_cluster_losses import evict
from test_cluster_queue import DEVICE, Kueue
from test_cluster_upgrade import is_newer, newer

ENDLESS = 100_000
"""Rounds of a federation that is deleted before."""
EPOCHS = 40
"""A round of several seconds, so that an eviction meets one that is open."""
STUDIES = ("first", "second", "third")
TARGETS = {"NextCommit": 120.0, "secondStart": 15.0}


def commits(namespace: Namespace, study: str) -> list[float]:
    """Return when each round was committed, the first model included, by the server's records; none while the server is away."""
    command = ("python3", "-m", "anchorage_server.read", "--state", "/var/lib/anchorage", "rounds")
    output = namespace.kubectl("exec", f"{study}-server-0", "--", *command, check=False)
    return [float(record["time"]) for record in json.loads(output)] if output.startswith("[") else []


def next_commit(namespace: Namespace, study: str, since: float) -> float:
    """Wait for the first round that was committed after a moment; return the seconds between."""

    def probe() -> float | None:
        return next((at for at in commits(namespace, study) if at > since), None)

    return namespace.eventually(f"a round of {study}", probe) - since


def drain(namespace: Namespace) -> dict[str, float]:
    """Evict an agent, then the server, from an open round; rounds need both silos."""
    namespace.apply(federation(ENDLESS, epochs=EPOCHS, min_silos=2), *two_silos())
    namespace.wait_for_round(STUDY, 2)
    figures = {}
    for part, pod in (("agent", "silo-b-silo-0"), ("server", f"{STUDY}-server-0")):
        namespace.wait_for_round(STUDY, namespace.round_of(STUDY) + 1)
        uid, begun = namespace.must_get("pod", pod)["metadata"]["uid"], time.time()
        evict(namespace, pod)
        namespace.eventually("the pod is gone", lambda pod=pod, uid=uid: _uid(namespace, pod) != uid)
        gone = time.time()
        figures |= {
            f"{part}Gone": gone - begun,
            f"{part}NextCommit": gone - begun + next_commit(namespace, STUDY, gone),
        }
    namespace.kubectl("delete", "federation", STUDY)
    return figures


def _uid(namespace: Namespace, pod: str) -> str:
    current = namespace.get("pod", pod)
    return "" if current is None else str(current["metadata"]["uid"])


def upgrade(namespace: Namespace) -> dict[str, float]:
    """Upgrade the chart while federations train: another operator, which replaces every server's pod in turn."""
    for name in STUDIES:
        study, silo = federation(ENDLESS, epochs=2, min_silos=1), managed_silo(f"{name}-silo", 0)
        namespace.apply(*_named(name, study, silo))
    for name in STUDIES:
        namespace.wait_for_round(name, 1)
    begun = time.time()
    namespace.install_chart(values=newer(namespace))
    figures = {"operatorReplaced": time.time() - begun}
    namespace.eventually("all are new", lambda: all(is_newer(namespace.pod(f"{name}-server-0")) for name in STUDIES))
    replaced_at = time.time()
    figures["allServersReplaced"] = replaced_at - begun
    figures["allTrainAgain"] = replaced_at - begun + max(next_commit(namespace, name, replaced_at) for name in STUDIES)
    pauses = [_longest_pause(commits(namespace, name), begun) for name in STUDIES]
    figures["longestBetweenCommits"] = max(pauses)
    namespace.kubectl("delete", "federation", *STUDIES)
    return figures


def _longest_pause(times: Sequence[float], since: float) -> float:
    return max(later - earlier for earlier, later in pairwise(times) if later > since)


def _named(name: str, study: dict[str, Any], silo: dict[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    study["metadata"]["name"] = silo["spec"]["federation"] = name
    return study, silo


def hand_over(namespace: Namespace) -> dict[str, float]:
    """Queue two federations for one device; measure from the end of the first's agent to the start of the second's, and its first round."""
    queue, names = Kueue(namespace, quota=1), ("early", "late")
    namespace.site.kubectl.apply(*queue.objects())
    try:
        return _in_turn(namespace, queue, names)
    finally:
        for each in queue.objects():
            namespace.kubectl("delete", each["kind"], each["metadata"]["name"], "--wait=false")


def _in_turn(namespace: Namespace, queue: Kueue, names: tuple[str, str]) -> dict[str, float]:
    agents = {name: f"{name}-silo-silo-0" for name in names}

    def admitted(done: object) -> bool:
        queue.admit()
        return bool(done)

    for name in names:
        study, silo = federation(4, min_silos=1, queueName="gpus"), managed_silo(f"{name}-silo", 0, **DEVICE)
        namespace.apply(*_named(name, study, silo))
        namespace.eventually(f"the agent of {name}", lambda name=name: admitted(namespace.pod(agents[name])))
    early, late = names
    namespace.eventually("the first trains", lambda: admitted(namespace.round_of(early) >= 1))
    assert namespace.round_of(late) == 0
    namespace.eventually("the first agent is gone", lambda: admitted(_uid(namespace, agents[early]) == ""))
    gone = time.time()
    namespace.eventually("the second runs", lambda: admitted(namespace.is_ready(namespace.pod(agents[late]))))
    figures = {"secondStart": time.time() - gone}
    figures["secondFirstRound"] = next_commit(namespace, late, gone)
    return figures


def main() -> None:
    """Print the figures, in seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", help="one that `python -m kube up` started, with the images; default: a new one")
    parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    if lacks := missing():
        raise SystemExit(f"this machine lacks {'; '.join(lacks)}")
    figures: dict[str, float] = {}
    with site(arguments.cluster) as place:
        for day in (drain, upgrade, hand_over):
            with Namespace.made(place, "days") as namespace:
                namespace.install_chart()
                durations = day(namespace)
            for name, seconds in durations.items():
                target = next((f"   target {most:g}" for part, most in TARGETS.items() if part in name), "")
                print(f"{name:22} {seconds:7.1f}{target}", flush=True)
            figures |= durations
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
