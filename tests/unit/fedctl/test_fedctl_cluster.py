"""Commands on a federation in a cluster: which one is meant, what is printed, what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_api.server import FakeApi
from fake_api.store import Refused
from typer.testing import CliRunner, Result

from anchorage.api.errors import AnchorageError, cluster, commands
from fedctl.choice import Place, choose
from fedctl.cluster_source import PATIENCE_SECONDS
from fedctl.main import app

CONDITION = {"reason": "Training", "message": "", "lastTransitionTime": "2026-11-21T14:00:00Z", "observedGeneration": 1}
STATUS = {
    "conditions": [
        {"type": "Accepted", "status": "True", **CONDITION},
        {"type": "ServerAvailable", "status": "True", **CONDITION},
        {"type": "Ready", "status": "True", **CONDITION},
    ],
    "round": 3,
    "rounds": 15,
    "silosSummary": "2/3",
    "metrics": [{"name": "accuracy", "value": "0.969"}],
    "aFieldOfALaterVersion": {"x": 1},
}


def federation(name: str = "derm", **status: Any) -> dict[str, Any]:
    spec = {"rounds": 15, "method": {"name": "FedAnchor"}}
    return {
        "kind": "Federation",
        "metadata": {"name": name, "managedFields": []},
        "spec": spec,
        "status": {**STATUS, **status},
    }


@pytest.fixture
def fake(cluster_api: FakeApi) -> FakeApi:
    cluster_api.put("federations", federation())
    return cluster_api


def fedctl(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(result: Result) -> AnchorageError:
    assert isinstance(result.exception, AnchorageError), result.output
    return result.exception


def local_run(folder: Path, name: str) -> None:
    document = {
        "kind": "Federation",
        "metadata": {"name": name},
        "spec": {
            "rounds": 7,
            "task": {"classification": {"classes": list("0123456789")}},
            "model": {"network": "SmallCnn", "imageSize": 8},
            "method": {"name": "FedAvg"},
        },
    }
    (folder / ".anchorage" / name).mkdir(parents=True)
    data = {"format": "Digits", "use": "Part", "partition": {"recipe": "Iid", "parts": 1, "part": 0}}
    spec = {"federation": name, "labels": "All", "managed": {"data": data}}
    silo = {"kind": "Silo", "metadata": {"name": "a"}, "spec": spec}
    (folder / ".anchorage" / name / "federation.yaml").write_text(yaml.safe_dump_all([document, silo]))


def test_the_status_is_drawn_as_for_a_local_run(fake: FakeApi) -> None:
    head, row, *rest = fedctl("status").output.splitlines()
    assert head.split() == ["FEDERATION", "STATE", "REASON", "ROUND", "SILOS", "METHOD"]
    assert row.split() == ["derm", "Ready=True", "Training", "3/15", "2/3", "FedAnchor"]
    assert "accuracy 0.969" in "".join(rest)
    document = json.loads(fedctl("status", "derm", "-o", "json").output)
    assert document["status"]["aFieldOfALaterVersion"] == {"x": 1} and "managedFields" not in document["metadata"]


def test_a_spec_that_is_not_accepted_is_said_first(fake: FakeApi) -> None:
    no = {"type": "Accepted", "status": "False", **CONDITION, "reason": "InvalidSpec", "message": "spec.rounds: …"}
    fake.put("federations", federation(conditions=[no, *STATUS["conditions"][1:]]))
    output = fedctl("status").output
    assert "Accepted=False" in output and "InvalidSpec" in output and "spec.rounds: …" in output


OPERATOR = "kubectl get deployments -A -l app.kubernetes.io/name=anchorage-operator"


@pytest.mark.parametrize(
    ("generation", "status", "expected"),
    [
        (2, {"observedGeneration": 1, "lastUpdatedTime": "2026-11-21T14:00:00Z"}, "since 2026-11-21T14:00:00Z (generation 2, seen 1)"),
        (1, {"observedGeneration": 1, "lastUpdatedTime": "2026-11-21T14:00:00Z"}, "since 2026-11-21T14:00:00Z (generation 1, seen 1)"),
        (1, {"conditions": []}, "no operator has looked at this yet"),
        (1, {"observedGeneration": 1, "lastUpdatedTime": "2999-11-21T14:00:00Z"}, ""),
    ],
)  # fmt: skip
def test_an_operator_that_is_away_is_told(
    fake: FakeApi, generation: int, status: dict[str, Any], expected: str
) -> None:
    away = federation(**status)
    away["metadata"]["generation"] = generation
    fake.put("federations", away)
    output = " ".join(fedctl("status").output.split())
    assert expected in output
    assert (OPERATOR in output) is bool(expected)


def test_a_folder_wins_over_the_cluster_unless_the_cluster_is_named(fake: FakeApi, tmp_path: Path) -> None:
    assert "3/15" in fedctl("status").output  # nothing is here
    local_run(tmp_path, "derm")
    assert "0/7" in fedctl("status").output and "0/7" in fedctl("status", "derm").output
    assert "0/7" in fedctl("status", "--workdir", tmp_path / ".anchorage" / "derm").output
    assert "3/15" in fedctl("status", "derm", "-n", "anchorage").output
    assert "3/15" in fedctl("status", "--context", "fake").output
    fake.put("federations", federation("other", round=9))
    assert "9/15" in fedctl("status", "other").output  # no run of that name is here
    local_run(tmp_path, "third")
    assert refused(fedctl("status")).failure is commands.NO_RUN_HERE
    assert fedctl("status", "--workdir", tmp_path, "-n", "x").exit_code == 2


def test_one_federation_of_the_namespace_is_meant(fake: FakeApi) -> None:
    fake.put("federations", federation("other"))
    error = refused(fedctl("status"))
    assert error.failure is cluster.SEVERAL_FEDERATIONS and "derm, other" in error.message
    assert refused(fedctl("status", "-n", "empty")).failure is cluster.NO_SUCH_FEDERATION
    error = refused(fedctl("rounds", "nobody"))
    assert error.failure is cluster.NO_SUCH_FEDERATION and "namespace 'anchorage' of context 'fake'" in error.message


def test_the_namespace_is_the_contexts_or_default(fake: FakeApi, tmp_path: Path) -> None:
    fake.kubeconfig(tmp_path / "kubeconfig", namespace=None)
    assert "'default'" in refused(fedctl("status", "derm")).message


def test_silos_tell_what_they_wait_for(fake: FakeApi) -> None:
    pending = {"type": "Approved", "status": "Unknown", **CONDITION, "reason": "PendingApproval", "message": "nobody"}
    fake.put("silos", {"metadata": {"name": "b"}, "spec": {"federation": "derm"}, "status": {"conditions": [pending]}})
    approved = [{"type": kind, "status": "True", **CONDITION} for kind in ("Approved", "Connected")]
    status = {"conditions": approved, "state": "Training", "task": "Train", "progress": 40, "weight": "0.25"}
    status["certificate"] = {"key": "ab" * 32, "notAfter": "2027-11-21T00:00:00Z"}
    status["packages"] = ["acme 0.1.0", "beta 2"]
    fake.put("silos", {"metadata": {"name": "a"}, "spec": {"federation": "derm", "managed": {}}, "status": status})
    fake.put("silos", {"metadata": {"name": "c"}, "spec": {"federation": "another"}})
    _, first, second = fedctl("silos").output.splitlines()
    assert first.split() == ["a", "yes", "Training", "40", "%", "0", "0.250"]
    assert second.split() == ["b", "no", "PendingApproval", "0", "0.000", "nobody"]
    wide = fedctl("silos", "-o", "wide").output.splitlines()
    assert "acme 0.1.0, beta 2" in wide[1] and "acme" not in wide[2]
    assert "Managed" in wide[1] and "2027-11-21" in wide[1] and "Remote" in wide[2] and "Unknown" in wide[2]


def test_a_silo_whose_pod_does_not_start_says_why(fake: FakeApi) -> None:
    refused = {**CONDITION, "reason": "PodRefused", "message": "exceeded quota: gpu"}
    over = {**CONDITION, "reason": "Succeeded", "message": "training has finished"}
    for name, state, ready in (("new", "", refused), ("known", "Waiting", refused), ("over", "Counted", over)):
        status = {"conditions": [{"type": "Ready", "status": "False", **ready}], "state": state}
        fake.put("silos", {"metadata": {"name": name}, "spec": {"federation": "derm", "managed": {}}, "status": status})
    _, known, new, ended = (" ".join(line.split()) for line in fedctl("silos").output.splitlines())
    assert new == "new no PodRefused 0 0.000 exceeded quota: gpu"
    assert known == "known no PodRefused 0 0.000 exceeded quota: gpu"
    assert ended == "over no Counted 0 0.000"


def test_events_are_those_of_the_federation_and_what_was_made_for_it(fake: FakeApi) -> None:
    fake.put("silos", {"metadata": {"name": "a"}, "spec": {"federation": "derm", "managed": {}}})
    for number, (kind, name, time) in enumerate(
        [
            ("Pod", "a-silo-0", "2026-11-21T14:00:03Z"),
            ("Federation", "derm", "2026-11-21T14:00:01Z"),
            ("StatefulSet", "derm-server", "2026-11-21T14:00:02Z"),
            ("Pod", "somebody-else-0", "2026-11-21T14:00:04Z"),
        ]
    ):
        about = {"kind": kind, "name": name}
        event_object = {"type": "Warning", "reason": "R", "message": f"m{number}", "count": 3 if number == 1 else 1}
        fake.put(
            "events",
            {"metadata": {"name": f"e{number}"}, "involvedObject": about, "lastTimestamp": time, **event_object},
        )
    events = json.loads(fedctl("events", "-o", "json").output)
    assert [(event["about"], event["message"]) for event in events] == [
        ("Federation/derm", "m1"),
        ("StatefulSet/derm-server", "m2"),
        ("Pod/a-silo-0", "m0"),
    ]
    assert "m1 (3 times)" in fedctl("events").output


def test_logs_that_cannot_be_read_keep_nobody_from_the_others(fake: FakeApi) -> None:
    fake.put("silos", {"metadata": {"name": "a"}, "spec": {"federation": "derm", "managed": {}}})
    fake.put("silos", {"metadata": {"name": "far"}, "spec": {"federation": "derm"}})
    fake.logs = {"derm-server-0": json.dumps({"time": "12:00", "level": "INFO", "message": "hello", "round": 1})}
    result = fedctl("logs")
    assert result.stdout == "server: 12:00 INFO hello round=1\n" and "a: ANC-5110 PodUnreachable" in result.stderr
    assert fedctl("logs", "--process", "server").stdout == "12:00 INFO hello round=1\n"
    assert refused(fedctl("logs", "--process", "a")).failure is cluster.POD_UNREACHABLE
    assert "hospital" in refused(fedctl("logs", "--process", "far")).message
    assert refused(fedctl("logs", "--process", "nobody")).failure is cluster.NO_SUCH_SILO


def running(since: str) -> dict[str, Any]:
    state = {"running": {"startedAt": since}} if since else {"waiting": {}}
    sidecar = {"name": "istio-proxy", "state": {"running": {"startedAt": "2019-01-01T00:00:00Z"}}}
    containers = [sidecar, {"name": "server", "state": state}]
    return {"metadata": {"name": "derm-server-0"}, "status": {"containerStatuses": containers}}


def test_a_followed_log_goes_on_with_the_container_that_comes_next(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = iter(["", "2020-01-01T14:05:00Z", "2020-01-01T14:05:00Z"])

    def time_passes(seconds: float) -> None:
        fake.put("pods", running(next(starts)))

    monkeypatch.setattr("fedctl.cluster_source.sleep", time_passes)
    fake.put("pods", running("2020-01-01T14:00:00Z"))
    fake.logs = {"derm-server-0": "one\n"}
    lines = choose("derm", Place()).log("server", 5, follow=True)
    assert [next(lines) for _ in range(3)] == ["one"] * 3
    assert fake.log_queries[0] == {"container": "server", "follow": "true", "tailLines": "5"}
    assert fake.log_queries[1] == {
        "container": "server",
        "follow": "true",
        "sinceTime": "2020-01-01T14:05:00Z",
    }  # the next container, whole
    assert fake.log_queries[2]["sinceTime"] > "2020-01-01T14:05:00Z"  # the same one, from when the stream broke


def available(reason: str, message: str = "") -> dict[str, Any]:
    return {"type": "ServerAvailable", "status": "False", **CONDITION, "reason": reason, "message": message}


@pytest.mark.parametrize(
    "command",
    [
        ("rounds",),
        ("logs", "--process", "server"),
        ("logs", "--process", "server", "--follow"),
        ("model", "pull", "derm", "--out", "m"),
    ],
)
def test_a_server_that_does_not_run_is_told_with_its_reason(fake: FakeApi, command: tuple[str, ...]) -> None:
    fake.put("federations", federation(conditions=[available("ImagePullFailed", "no such tag: x/y:9")]))
    error = refused(fedctl(*command))
    assert error.failure is cluster.POD_UNREACHABLE and 'pods "derm-server-0" not found' in error.message
    assert error.message.endswith(
        "ServerAvailable: ImagePullFailed: no such tag: x/y:9; docs/conditions.md says what to do"
    )


@pytest.mark.parametrize("reason", ["Available", "Terminating", "PodMissing", "Starting"])
def test_a_pod_that_is_being_replaced_is_waited_for(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    fake.put("federations", federation(conditions=[available(reason)]))
    fake.run = lambda pod, command: subprocess.CompletedProcess(command, 0, b"[]", b"")
    waits: list[float] = []

    def time_passes(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            fake.put("pods", running("2020-01-01T14:05:00Z"))

    monkeypatch.setattr("fedctl.cluster_source.sleep", time_passes)
    result = fedctl("rounds", "-o", "json")
    assert (result.exit_code, json.loads(result.stdout), len(waits)) == (0, [], 3)
    assert result.stderr.count("derm-server-0 is being started or replaced") == 1


@pytest.mark.parametrize("status", [137, 143])
def test_a_command_that_ended_with_its_pod_is_run_again(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    ends = iter([status, status, 0])
    fake.put("federations", federation(conditions=[available("Available")]))
    fake.put("pods", running("2020-01-01T14:05:00Z"))
    fake.run = lambda pod, command: subprocess.CompletedProcess(command, next(ends), b"[]", b"")
    monkeypatch.setattr("fedctl.cluster_source.sleep", lambda seconds: None)
    assert fedctl("rounds", "-o", "json").exit_code == 0 and len(fake.commands) == 3


def test_who_may_not_run_commands_in_pods_does_not_wait(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.put("federations", federation(conditions=[available("Available")]))
    fake.put("pods", running("2020-01-01T14:05:00Z"))
    fake.refuse = lambda asked: Refused(403, "Forbidden", "no pods/exec") if asked.path.endswith("/exec") else None
    waits: list[float] = []
    monkeypatch.setattr("fedctl.cluster_source.sleep", waits.append)
    error = refused(fedctl("rounds"))
    assert error.failure is cluster.CLUSTER_FORBIDDEN and "no pods/exec" in error.message and not waits


def test_the_wait_for_a_pod_ends(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.put("federations", federation(conditions=[available("Starting", "the pod is pulling its image")]))
    waits: list[float] = []
    monkeypatch.setattr("fedctl.cluster_source.sleep", waits.append)
    assert "Starting: the pod is pulling its image" in refused(fedctl("rounds")).message
    assert sum(waits) == PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("code", "stderr", "failure", "part"),
    [
        (6, "noise\nANC-3105 JournalDamaged: line 3 is torn\n", "JournalDamaged", "line 3 is torn"),
        (1, "Traceback\nKeyError: 'x'\n", "ClusterRefused", "exit status 1 and said: KeyError: 'x'"),
        (0, "", "ClusterRefused", "wrote no JSON"),
    ],
)
def test_what_the_server_says_when_it_cannot_read(
    fake: FakeApi, code: int, stderr: str, failure: str, part: str
) -> None:
    fake.put("pods", {"metadata": {"name": "derm-server-0"}})
    fake.run = lambda pod, command: subprocess.CompletedProcess(command, code, b"not json", stderr.encode())
    error = refused(fedctl("rounds"))
    assert error.failure.reason == failure and part in error.message


def test_rounds_are_read_again_only_when_they_moved(fake: FakeApi) -> None:
    fake.put("pods", {"metadata": {"name": "derm-server-0"}})
    fake.run = lambda pod, command: subprocess.CompletedProcess(command, 0, b"[]", b"")
    source = choose("derm", Place())
    for number in (3, 3, 4):
        fake.put("federations", federation(round=number))
        source.rounds()
    assert len(fake.commands) == 2


def test_a_cluster_without_our_resources(fake: FakeApi) -> None:
    fake.unknown = {"federations", "silos"}
    for command in (["status"], ["status", "derm"], ["silo", "invite", "derm", "a"]):
        error = refused(fedctl(*command))
        assert error.failure is cluster.RESOURCES_NOT_INSTALLED and "federations.anchorage.dev" in error.message


def test_a_right_that_is_missing_is_named(fake: FakeApi) -> None:
    fake.denied = {("list", "federations")}
    error = refused(fedctl("status"))
    assert error.failure is cluster.CLUSTER_FORBIDDEN
    assert "may not list federations.anchorage.dev in namespace 'anchorage'" in error.message
    fake.denied = {("list", "silos")}
    assert "list silos.anchorage.dev" in refused(fedctl("silos", "derm")).message


def test_credentials_that_are_not_accepted(fake: FakeApi, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(path.read_text().replace("secret-token", "old-token"))
    assert refused(fedctl("status")).failure is cluster.CLUSTER_UNAUTHENTICATED


def test_an_unknown_context_lists_the_known_ones(fake: FakeApi) -> None:
    error = refused(fedctl("status", "--context", "nowhere"))
    assert error.failure is cluster.CONTEXT_UNKNOWN and "there are: fake" in error.message


@pytest.mark.parametrize("content", [None, "", "[", "clusters: 3", "kind: Config\ncontexts: []\n"])
def test_a_kubeconfig_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(path))
    error = refused(fedctl("status", "-n", "x"))
    assert error.failure is cluster.KUBECONFIG_UNUSABLE and str(path) in error.message and "\n" not in error.message
    error = refused(fedctl("status", "derm"))  # nobody spoke of a cluster
    assert error.failure is commands.NO_RUN_HERE and "no run of derm" in error.message


def test_an_api_server_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    gone = FakeApi().start()
    monkeypatch.setenv("KUBECONFIG", str(gone.kubeconfig(tmp_path / "kubeconfig")))
    gone.stop()
    error = refused(fedctl("status", "derm"))
    assert error.failure is cluster.CLUSTER_UNREACHABLE and "refused" in error.message and "127.0.0.1" in error.message


def test_without_the_kubernetes_client_only_clusters_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.setenv("KUBECONFIG", os.devnull)
    assert refused(fedctl("status", "derm")).failure is cluster.KUBERNETES_CLIENT_MISSING
    local_run(tmp_path, "derm")
    assert "0/7" in fedctl("status", "derm").output
