"""Pods that go while a round is open: training goes on, and every committed round counts once."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_documents import STUDY, federation, two_silos
from cluster_namespace import READY_SECONDS, Namespace

ROUNDS = 200  # nobody waits for the last one
EPOCHS = 40
ROUNDS_IN_SILENCE = 3


def training(namespace: Namespace, rounds: int = ROUNDS) -> None:
    """Start the study, and wait until one round is committed and the next one is open."""
    namespace.apply(federation(rounds, epochs=EPOCHS), *two_silos())
    namespace.wait_for_round(STUDY, 1)
    namespace.eventually("a round is open", lambda: _step(namespace) == "train" or None)


def _step(namespace: Namespace) -> str:
    return str(namespace.must_get("federation", STUDY).get("status", {}).get("step", "")).lower()


def replaced(namespace: Namespace, pod: str, remove: Callable[[], object]) -> None:
    """Remove a pod, and wait until another one of its name is ready."""
    before = namespace.must_get("pod", pod)["metadata"]["uid"]
    remove()

    def is_new_and_ready() -> bool:
        now = namespace.pod(pod)
        return now is not None and now["metadata"]["uid"] != before and namespace.is_ready(now)

    namespace.eventually(f"another {pod} is ready", is_new_and_ready)


def committed_rounds(namespace: Namespace, study: str = STUDY) -> list[int]:
    """Return the rounds in a server's journal, in its order."""
    command = ("python3", "-m", "anchorage_server.read", "--state", "/var/lib/anchorage", "rounds")
    records = json.loads(namespace.kubectl("exec", f"{study}-server-0", "--", *command))
    return [int(record["round"]) for record in records]


def each_round_counted_once(namespace: Namespace) -> None:
    """Assert that the journal has every round, from the first model (0) on, once and in order."""
    rounds = committed_rounds(namespace)
    assert rounds == list(range(len(rounds)))


def test_server_and_agents_come_back(started: Namespace) -> None:
    training(started)
    server, agent = f"{STUDY}-server-0", "silo-a-silo-0"

    at = started.round_of(STUDY)
    replaced(started, server, lambda: started.kubectl("delete", "pod", server, "--grace-period=0", "--force"))
    started.wait_for_round(STUDY, at + 1)

    at = started.round_of(STUDY)
    replaced(started, agent, lambda: started.kubectl("delete", "pod", agent, "--grace-period=0", "--force"))
    started.wait_for_round(STUDY, at + 1)

    for drained in ("silo-b-silo-0", server):
        at = started.round_of(STUDY)
        replaced(started, drained, lambda pod=drained: started.evict(pod))
        started.wait_for_round(STUDY, at + 1)
    each_round_counted_once(started)


def test_the_server_dies_in_the_middle_of_a_commit(started: Namespace) -> None:
    cluster = started.site.cluster
    if cluster is None:
        pytest.skip("the nodes of a given cluster are not here")
    model = {"network": "ResNet18", "imageSize": 8, "channels": 1, "augmentation": "Digits"}
    started.apply(federation(ROUNDS, model=model), *two_silos())
    started.wait_for_round(STUDY, 1)
    checkpoints = started.server_state(STUDY) / "checkpoints"
    for times in (1, 2):
        _wait_for_half_a_checkpoint(checkpoints)
        cluster.kill("anchorage_server")

        def is_back(restarts: int = times) -> bool:
            pod = started.must_get("pod", f"{STUDY}-server-0")
            return started.is_ready(pod) and pod["status"]["containerStatuses"][0]["restartCount"] >= restarts

        started.eventually("the server is back", is_back)
        started.wait_for_round(STUDY, started.round_of(STUDY) + 1)
    each_round_counted_once(started)


def _wait_for_half_a_checkpoint(folder: Path) -> None:
    """Wait until a checkpoint is being written: tens of milliseconds for this model."""
    deadline = time.monotonic() + READY_SECONDS
    while not any(path.name.endswith(".partial") for path in folder.iterdir()):
        assert time.monotonic() < deadline, f"no round was committed; there are {sorted(folder.iterdir())}"
        time.sleep(0.001)


def test_training_goes_on_without_the_operator(started: Namespace) -> None:
    training(started)
    (operator,) = started.names("deployments")
    started.kubectl("scale", "deployment", operator, "--replicas=0")
    started.eventually("the operator is gone", lambda: not operators(started))
    before = committed_rounds(started)
    started.eventually("rounds without the operator", lambda: len(committed_rounds(started)) >= len(before) + 2)
    behind = started.round_of(STUDY)
    assert behind < committed_rounds(started)[-1], "nobody writes the status now"
    started.kubectl("scale", "deployment", operator, "--replicas=1")
    started.wait_for_round(STUDY, behind + 2)
    each_round_counted_once(started)


def test_training_goes_on_while_the_api_server_is_silent(started: Namespace) -> None:
    cluster = started.site.cluster
    if cluster is None:
        pytest.skip("the API server of a given cluster is not the tests' to stop")
    training(started)
    operator, journal = operators(started), started.server_state(STUDY) / "journal.jsonl"
    with cluster.silent("kube-apiserver"):
        at = len(journal.read_bytes().splitlines())
        started.eventually(
            "rounds while it is silent", lambda: len(journal.read_bytes().splitlines()) >= at + ROUNDS_IN_SILENCE
        )
    started.wait_for_round(STUDY, at + ROUNDS_IN_SILENCE)
    each_round_counted_once(started)
    assert operators(started) == operator, "the operator lives on"


def operators(namespace: Namespace) -> dict[str, int]:
    """Return the operator's pods, and how often each was started again."""
    pods = namespace.objects("pods", "app.kubernetes.io/name=anchorage-operator")
    return {each["metadata"]["name"]: each["status"]["containerStatuses"][0]["restartCount"] for each in pods}
