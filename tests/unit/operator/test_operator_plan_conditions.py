"""What conditions say, from what pods, the scheduler, the node and the server say."""

import json
from dataclasses import replace
from typing import Any

import pytest
from plan_world import (
    DAY,
    NOW,
    SETTINGS,
    YEAR,
    condition,
    conditions_of,
    crashed,
    federation,
    managed,
    message_of,
    pod,
    running,
    said,
    settled,
    silo,
    succeeded,
    unscheduled,
    waiting,
    world,
)

from anchorage.api.errors import CATALOGUE
from anchorage.api.federation import Federation, Silo
from anchorage.api.status import FederationStatus, SiloStatus, timestamp
from anchorage_operator import reasons
from anchorage_operator.observed import (
    Invitation,
    Json,
    Observed,
    Unreachable,
)
from anchorage_operator.plan import plan
from anchorage_operator.pods import diagnose

NO_GPU = (
    "0/3 nodes are available: 1 node(s) had untolerated taint {a: b}, 2 Insufficient nvidia.com/gpu. "
    "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pods."
)
NO_CLAIM = '0/1 nodes are available: persistentvolumeclaim "derm-anchors" not found. not found'
NO_VOLUME = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
LINE = "ANC-1202 FolderMissing: /data/derm-anchors/derm is no folder"
LOG = f'{{"level": "INFO", "message": "listening"}}\n{LINE}\n'

PODS: dict[str, tuple[Json | None, str, str]] = {
    "none": (None, "PodMissing", "does not exist yet"),
    "made": (waiting("ContainerCreating"), "Starting", "creating the container"),
    "not-ready": (running(ready=False), "Starting", "not ready yet"),
    "no-gpu": (unscheduled(NO_GPU), "Unschedulable", "no node has a free nvidia.com/gpu: 0/3 nodes are available"),
    "no-room": (
        unscheduled("0/1 nodes are available: 1 Insufficient memory."),
        "Unschedulable",
        "1 Insufficient memory",
    ),
    "no-claim": (unscheduled(NO_CLAIM), "VolumeMissing", 'volume claim "derm-anchors" does not exist'),
    "no-volume": (unscheduled(NO_VOLUME), "VolumePending", "unbound immediate"),
    "pull": (
        waiting("ErrImagePull", "not found"),
        "ImagePullBackOff",
        'image "example.org/anchorage-server:1" cannot be pulled: not found',
    ),
    "back-off": (
        waiting("ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: not found'),
        "ImagePullBackOff",
        'image "example.org/anchorage-server:1" cannot be pulled: not found',
    ),
    "back-off-short": (
        waiting("ImagePullBackOff", 'Back-off pulling image "x"'),
        "ImagePullBackOff",
        'image "example.org/anchorage-server:1" cannot be pulled',
    ),
    "name": (waiting("InvalidImageName", "couldn't parse"), "ImagePullBackOff", "couldn't parse"),
    "secret": (waiting("CreateContainerConfigError", 'secret "x" not found'), "SecretMissing", 'secret "x" not found'),
    "config": (waiting("CreateContainerConfigError", 'configmap "x" not found'), "ConfigMissing", 'configmap "x"'),
    "user": (
        waiting("CreateContainerConfigError", "runAsNonRoot and image will run as root"),
        "ContainerError",
        "root",
    ),
    "runtime": (waiting("RunContainerError", "exec: python3 not found"), "ContainerError", "python3 not found"),
    "named": (crashed(LOG), "DataMissing", LINE),
    "unnamed": (crashed("Traceback", code=70), "CrashLoop", "exited with status 70 (internal error)"),
    "segfault": (crashed(code=139), "CrashLoop", "exited with status 139 (segmentation fault)"),
    "memory": (crashed(code=137, reason="OOMKilled"), "OutOfMemory", "exceeded its memory limit"),
    "once": (
        running(False, restartCount=1, lastState={"terminated": {"exitCode": 137, "reason": "Error"}}),
        "Restarting",
        "exited with status 137 (killed)",
    ),
    "again": (
        running(False, restartCount=1, lastState={"terminated": {"exitCode": 3, "message": LOG}}),
        "DataMissing",
        LINE,
    ),
    "often": (
        running(False, restartCount=3, lastState={"terminated": {"exitCode": 1, "message": ""}}),
        "CrashLoop",
        "exited with status 1",
    ),
    "evicted": (
        {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource"},
        "Evicted",
        "low on",
    ),
    "refused": (
        {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no GPU"},
        "PodFailed",
        "UnexpectedAdmissionError: no GPU",
    ),
}


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("LimitRanger plugin set: memory limit for container server", "512Mi, set by a LimitRange of the namespace"),
        ("LimitRanger plugin set: cpu limit for container server; memory limit for container istio", "512Mi)"),
        ("", "512Mi)"),
    ],
)
def test_a_memory_limit_says_where_it_comes_from(annotation: str, expected: str) -> None:
    ended = crashed(code=137, reason="OOMKilled")
    ended["containerStatuses"][0]["resources"] = {"limits": {"memory": "512Mi"}}
    died = pod("derm-server-0", "server", **ended)
    died["metadata"]["annotations"] = {"kubernetes.io/limit-ranger": annotation}
    assert f"exceeded its memory limit ({expected}" in diagnose(died, "server", {}, NOW).message


def reason_of_line(expected: str) -> str:
    """The catalogue's reason for the code of `LINE`."""
    return CATALOGUE["ANC-1202"].reason if expected == "DataMissing" else expected


def status_of(observed: Observed, now: float = NOW) -> Json:
    """The Federation's status at rest."""
    after = settled(observed, now)[0].federation
    assert after is not None
    status: Json = after["status"]
    return status


@pytest.mark.parametrize("name", PODS)
def test_what_is_wrong_with_the_server_s_pod(name: str) -> None:
    status, reason, message = PODS[name]
    pods = () if status is None else (pod("derm-server-0", "server", **status),)
    federation_status = status_of(world(managed("a"), pods=pods))
    assert conditions_of(federation_status)["ServerAvailable"] == ("False", reason_of_line(reason))
    assert message in message_of(federation_status, "ServerAvailable")
    assert conditions_of(federation_status)["Ready"] == ("False", reason_of_line(reason))
    fatal = reason in ("DataMissing", "CrashLoop", "OutOfMemory")
    assert conditions_of(federation_status)["Failed"][0] == ("True" if fatal else "False")
    assert conditions_of(federation_status)["Succeeded"][0] == ("False" if fatal else "Unknown")


@pytest.mark.parametrize("name", PODS)
def test_what_is_wrong_with_an_agent_s_pod(name: str) -> None:
    status, reason, message = PODS[name]
    pods = () if status is None else (pod("a-silo-0", "silo", "a", **status),)
    observed = world(managed("a"), pods=pods, report=said(others=("a",)))
    silo_status: Json = observed.silos["a"]["status"]
    assert conditions_of(silo_status)["AgentAvailable"] == ("False", reason_of_line(reason))
    assert message in message_of(silo_status, "AgentAvailable")
    assert conditions_of(silo_status)["Ready"] == ("False", reason_of_line(reason))


def test_a_missing_silo_s_reason_is_told_with_the_quorum() -> None:
    pods = [pod("derm-server-0", "server", **running()), pod("a-silo-0", "silo", "a", **running())]
    pods.append(pod("b-silo-0", "silo", "b", **unscheduled(NO_GPU)))
    status = status_of(world(managed("a"), managed("b"), silo("far"), pods=pods, report=said("a", others=("b",))))
    assert conditions_of(status)["QuorumMet"] == ("False", "WaitingForSilos")
    assert message_of(status, "QuorumMet") == "1 of 2 required silos are connected; missing: b (Unschedulable), far"
    assert conditions_of(status)["Ready"] == ("False", "WaitingForSilos")


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ("kueue.x-k8s.io/admission", 'waits in Kueue\'s queue "gpus"'),
        ("example.org/later", "held by example.org/later"),
    ],
)
def test_a_pod_that_waits_for_its_quota_is_queued(gate: str, message: str) -> None:
    gated = pod("derm-server-0", "server", **unscheduled("Scheduling is blocked due to non-empty scheduling gates"))
    gated["spec"]["schedulingGates"] = [{"name": gate}]
    observed = world(managed("a"), federation=federation(queueName="gpus"), pods=(gated,))
    for name in ("derm-server", "a-silo"):
        template = observed.children["StatefulSet", name]["spec"]["template"]
        assert template["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    gated["metadata"]["labels"] |= template["metadata"]["labels"] | {"app.kubernetes.io/component": "server"}
    status = status_of(replace(observed, pods=(gated,)))
    assert conditions_of(status)["ServerAvailable"] == conditions_of(status)["Ready"] == ("False", "Queued")
    assert message in message_of(status, "Ready")


def test_a_server_that_only_shows_results_needs_no_quota() -> None:
    over = settled(replace(world(managed("a"), federation=federation(queueName="gpus")), report=succeeded()), NOW)[0]
    small = settled(over, NOW + 61)[0].children["StatefulSet", "derm-server"]["spec"]["template"]
    assert "kueue.x-k8s.io/queue-name" not in small["metadata"]["labels"]


def test_a_claim_that_is_not_there_is_named_before_the_scheduler_speaks() -> None:
    starting = pod("derm-server-0", "server", **waiting("ContainerCreating"))
    starting["spec"]["volumes"] = [{"name": "claim-0", "persistentVolumeClaim": {"claimName": "anchors"}}]
    observed = world(managed("a"), pods=(starting,), claims={"other": "Bound"})
    assert conditions_of(status_of(observed))["ServerAvailable"] == ("False", "VolumeMissing")
    assert conditions_of(status_of(replace(observed, claims=None)))["ServerAvailable"] == ("False", "Starting")
    young = {**starting, "metadata": {**starting["metadata"], "creationTimestamp": timestamp(NOW - 2)}}
    assert conditions_of(status_of(replace(observed, pods=(young,))))["ServerAvailable"] == ("False", "Starting")


def test_a_server_that_answers_is_available_whatever_its_probes_say() -> None:
    pods = (pod("derm-server-0", "server", **running(ready=False)),)
    status = status_of(world(managed("a"), managed("b"), pods=pods, report=said("a", "b", round=1)))
    assert conditions_of(status)["Ready"] == ("True", "Training")


def test_what_a_server_says_of_its_start_is_shown_while_it_trains() -> None:
    ready = condition("Ready", "True", "Listening", "the run went back a round: round 2 is played again")
    status = status_of(world(managed("a"), managed("b"), report=said("a", "b", round=1, conditions=(ready,))))
    assert conditions_of(status)["Ready"] == ("True", "Training")
    assert message_of(status, "Ready") == ready.message


def test_an_operator_that_has_just_started_believes_what_was_written() -> None:
    observed = world(managed("a"), managed("b"), report=said("a", "b", round=4))
    assert plan(replace(observed, report=None, members=None), SETTINGS, NOW).idle


@pytest.mark.parametrize(("seconds", "expected"), [(5, ("True", "Available")), (11, ("False", "ServerUnreachable"))])
def test_a_silent_server_shows_after_a_moment(seconds: float, expected: tuple[str, str]) -> None:
    observed = world(managed("a"), managed("b"), report=said("a", "b", round=4))
    silent = replace(observed, report=Unreachable("Timeout", "no answer in 5 s", NOW - seconds))
    status = status_of(silent)
    assert conditions_of(status)["ServerAvailable"] == expected
    assert (status["round"], status["connectedSilos"]) == (4, 2), "what was known last stays"
    silos = settled(silent)[0].silos
    assert conditions_of(silos["a"]["status"])["Connected"][0] == ("Unknown" if seconds > 10 else "True")


def test_a_crash_that_is_mended_is_no_failure_any_more() -> None:
    observed = world(managed("a"), managed("b"), pods=(pod("derm-server-0", "server", **crashed(LOG)),))
    mended = replace(observed, pods=(pod("derm-server-0", "server", **running()),), report=said("a", "b"))
    assert conditions_of(status_of(mended))["Failed"] == ("False", "Training")


def test_a_lost_quorum_is_waited_out() -> None:
    line = "ANC-3001 QuorumLost: 1 of 2 silos answered"
    status = crashed(line, code=5)
    federation_status = status_of(world(managed("a"), managed("b"), pods=(pod("derm-server-0", "server", **status),)))
    assert conditions_of(federation_status)["QuorumMet"] == ("False", "QuorumLost")
    assert "missing: a" in message_of(federation_status, "QuorumMet")
    assert conditions_of(federation_status)["Failed"][0] == "False", "the server comes back and waits for silos"


def test_a_quorum_that_was_there_is_lost_with_names() -> None:
    observed = world(managed("a"), managed("b"), report=said("a", "b", round=3))
    status = status_of(replace(observed, report=said("a", others=("b",), round=3)))
    assert conditions_of(status)["QuorumMet"] == ("False", "QuorumLost")
    assert "missing: b" in message_of(status, "QuorumMet")


def test_success() -> None:
    observed = settled(replace(world(managed("a"), managed("b")), report=succeeded()))[0]
    status = status_of(observed)
    assert conditions_of(status)["Succeeded"] == ("True", "AllRoundsCommitted")
    assert conditions_of(status)["Ready"] == ("True", "Succeeded")
    assert conditions_of(status)["Failed"][0] == "False"
    assert status["metric"] == "accuracy 0.969"
    assert conditions_of(observed.silos["a"]["status"])["AgentAvailable"] == ("False", "Succeeded")
    away = replace(observed, report=None, pods=())
    assert conditions_of(status_of(away))["Succeeded"] == ("True", "AllRoundsCommitted"), (
        "results do not depend on the pod"
    )


def storing() -> FederationStatus:
    """What a server reports while it stores the results."""
    return said(round=20, others=("a", "b"), step="", conditions=(condition("Succeeded", "Unknown", "StoringResults"),))


def test_success_needs_stored_results() -> None:
    observed = settled(replace(world(managed("a"), managed("b")), report=storing()))[0]
    status = status_of(observed)
    assert conditions_of(status)["Succeeded"] == ("Unknown", "StoringResults")
    assert conditions_of(status)["Ready"] == ("True", "StoringResults")
    assert conditions_of(status)["Failed"] == ("False", "StoringResults")
    assert conditions_of(status)["QuorumMet"] == ("True", "Succeeded"), "silos that leave at the end are not missed"
    assert conditions_of(observed.silos["a"]["status"])["AgentAvailable"] == ("False", "Succeeded")
    away = settled(replace(observed, report=None))[0]
    assert conditions_of(status_of(away))["Succeeded"] == ("Unknown", "StoringResults")
    assert conditions_of(away.silos["a"]["status"])["AgentAvailable"] == ("False", "Succeeded")
    done = status_of(settled(replace(away, report=succeeded()))[0])
    assert conditions_of(done)["Succeeded"] == ("True", "AllRoundsCommitted")


def test_results_that_cannot_be_stored_are_a_failure() -> None:
    observed = settled(replace(world(managed("a"), managed("b")), report=storing()))[0]
    server = pod("derm-server-0", "server", **crashed("ANC-3101 DiskFull: no space left", code=6))
    status = status_of(replace(observed, report=None, pods=(server,)))
    assert conditions_of(status)["Failed"] == ("True", "DiskFull")
    assert conditions_of(status)["Succeeded"] == ("False", "DiskFull")


def test_the_server_s_own_failure_is_the_federation_s() -> None:
    failed = condition("Failed", "True", "WrongLayout", "ANC-3003 WrongLayout: ...")
    status = status_of(world(managed("a"), managed("b"), report=said("a", "b", round=3, conditions=(failed,))))
    assert conditions_of(status)["Failed"] == ("True", "WrongLayout")
    assert conditions_of(status)["Ready"] == ("False", "WrongLayout")


def test_statuses_are_what_the_spec_says_they_are() -> None:
    invitation = Invitation("h", NOW - DAY, "a" * 64, not_after=NOW + YEAR)
    observed = world(silo("far"), report=succeeded(), invitations={"far": invitation})
    assert observed.federation is not None
    Federation.model_validate_json(json.dumps(_named(observed.federation)))
    Silo.model_validate_json(json.dumps(_named(observed.silos["far"])))


def _named(each: Json) -> Json:
    return {**each, "metadata": {"name": each["metadata"]["name"]}}


def test_every_reason_that_was_seen_is_documented() -> None:
    known = {name for key, name in vars(reasons).items() if key.isupper()} | {
        entry.reason for entry in CATALOGUE.values()
    }
    for status, _, _ in PODS.values():
        pods = () if status is None else (pod("derm-server-0", "server", **status),)
        federation_status = status_of(world(managed("a"), pods=pods))
        assert {reason for _, reason in conditions_of(federation_status).values()} <= known


def test_last_transition_time_moves_only_with_the_status() -> None:
    observed = world(managed("a"), managed("b"), pods=())
    waits = settled(replace(observed, pods=(pod("derm-server-0", "server", **unscheduled(NO_GPU)),)), NOW + 100)[0]
    runs = settled(
        replace(waits, pods=(pod("derm-server-0", "server", **running()),), report=said("a", "b")), NOW + 200
    )[0]
    times = []
    for each in (observed, waits, runs):
        assert each.federation is not None
        conditions = each.federation["status"]["conditions"]
        times.append(next(c["lastTransitionTime"] for c in conditions if c["type"] == "ServerAvailable"))
    assert times == [timestamp(NOW), timestamp(NOW), timestamp(NOW + 200)]


SIDECAR = {"name": "istio-proxy", "ready": True, "restartCount": 0, "state": {"running": {}}}


def beside(status: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    """The status of a pod into which a webhook put containers before the server's own."""
    return {**status, "containerStatuses": [*others, *status["containerStatuses"]]}


@pytest.mark.parametrize("name", ["named", "unnamed", "memory", "often", "pull", "secret"])
def test_containers_beside_it_do_not_hide_what_is_wrong_with_the_server(name: str) -> None:
    status, reason, message = PODS[name]
    assert status is not None
    federation_status = status_of(
        world(managed("a"), pods=(pod("derm-server-0", "server", **beside(status, SIDECAR)),))
    )
    assert conditions_of(federation_status)["ServerAvailable"] == ("False", reason_of_line(reason))
    assert message in message_of(federation_status, "ServerAvailable")
    assert conditions_of(federation_status)["Failed"][0] == ("False" if name in ("pull", "secret") else "True")


COMPANY: dict[str, tuple[dict[str, Any], str, str]] = {
    "sidecar": (
        beside(running(ready=True), {**SIDECAR, **crashed(code=1)["containerStatuses"][0], "name": "istio-proxy"})
        | {"conditions": [{"type": "Ready", "status": "False"}]},
        "CrashLoop",
        'container "istio-proxy": the process exited with status 1',
    ),
    "init": (
        waiting("PodInitializing")
        | {"initContainerStatuses": [{**crashed(code=3)["containerStatuses"][0], "name": "istio-init"}]},
        "CrashLoop",
        'container "istio-init": the process exited with status 3',
    ),
    "init's image": (
        waiting("PodInitializing")
        | {"initContainerStatuses": [{"name": "istio-init", "state": {"waiting": {"reason": "ErrImagePull"}}}]},
        "ImagePullBackOff",
        'container "istio-init": image "" cannot be pulled',
    ),
    "init goes on": (
        waiting("PodInitializing")
        | {"initContainerStatuses": [{"name": "istio-init", "state": {"running": {}}, "ready": False}]},
        "Starting",
        "",
    ),
}


@pytest.mark.parametrize("name", COMPANY)
def test_a_container_beside_the_server_is_named_and_is_no_failure_of_the_study(name: str) -> None:
    status, reason, message = COMPANY[name]
    federation_status = status_of(world(managed("a"), pods=(pod("derm-server-0", "server", **status),)))
    assert conditions_of(federation_status)["ServerAvailable"] == ("False", reason)
    assert message in message_of(federation_status, "ServerAvailable")
    assert conditions_of(federation_status)["Failed"][0] == "False"


QUOTA = 'pods "derm-server-0" is forbidden: exceeded quota: gpu, requested: requests.nvidia.com/gpu=1'


def test_a_pod_that_the_api_server_refuses_is_told_in_its_words() -> None:
    refused = {"derm-server": QUOTA, "a-silo": "violates PodSecurity"}
    observed = world(managed("a"), pods=(), refused_pods=refused)
    status = status_of(observed)
    assert conditions_of(status)["ServerAvailable"] == conditions_of(status)["Ready"] == ("False", "PodRefused")
    assert message_of(status, "ServerAvailable") == QUOTA
    assert conditions_of(observed.silos["a"]["status"])["AgentAvailable"] == ("False", "PodRefused")


MULTI_ATTACH = 'Multi-Attach error for volume "pvc-1" Volume is already exclusively attached to one node'


def test_a_volume_that_the_node_does_not_get_is_told_in_its_words() -> None:
    pods = tuple(
        pod(name, component, silo_name, **waiting("ContainerCreating"))
        for name, component, silo_name in (("derm-server-0", "server", ""), ("a-silo-0", "silo", "a"))
    )
    observed = world(
        managed("a"), pods=pods, volume_failures={"derm-server-0": MULTI_ATTACH, "a-silo-0": "MountVolume.SetUp"}
    )
    status = status_of(observed)
    assert conditions_of(status)["ServerAvailable"] == conditions_of(status)["Ready"] == ("False", "VolumeNotMounted")
    assert message_of(status, "ServerAvailable") == MULTI_ATTACH
    assert conditions_of(observed.silos["a"]["status"])["AgentAvailable"] == ("False", "VolumeNotMounted")


@pytest.mark.parametrize(("seconds", "reason"), [(200, "Terminating"), (400, "NodeLost")])
def test_a_node_that_is_lost_is_named_with_both_ways_on(seconds: int, reason: str) -> None:
    gone = pod("derm-server-0", "server", **running(ready=False))
    gone["spec"]["nodeName"] = "worker-3"
    gone["metadata"]["deletionTimestamp"] = timestamp(NOW - seconds)
    status = status_of(world(managed("a"), pods=(gone,)))
    assert conditions_of(status)["ServerAvailable"] == ("False", reason)
    if reason == "NodeLost":
        message = message_of(status, "ServerAvailable")
        assert "bring the node back" in message and "kubectl delete node worker-3" in message


def test_the_end_is_quiet_while_the_pod_that_keeps_the_results_starts() -> None:
    over = settled(replace(world(managed("a"), managed("b")), report=succeeded()))[0]
    between: list[dict[str, Any] | None] = [None, waiting("ContainerCreating"), running(ready=False)]
    for status in between:
        pods = () if status is None else (pod("derm-server-0", "server", **status),)
        federation_status = status_of(replace(over, report=None, pods=pods), NOW + 70)
        assert conditions_of(federation_status)["Ready"] == ("True", "Succeeded")
    broken = pod("derm-server-0", "server", **unscheduled(NO_GPU))
    federation_status = status_of(replace(over, report=None, pods=(broken,)), NOW + 70)
    assert conditions_of(federation_status)["Ready"] == ("False", "Unschedulable"), "nobody can read the results"


def test_the_summary_of_a_finished_study_counts_who_trained() -> None:
    """Its silos are dismissed, often before the operator looked once while they were connected."""
    silos = (SiloStatus(name="a", samples=40), SiloStatus(name="b", samples=40))
    over = settled(replace(world(managed("a"), managed("b")), report=succeeded(silos=silos)))[0]
    assert over.federation is not None
    assert over.federation["status"]["silosSummary"] == "2/2"
    fewer = replace(over, report=None, pods=(), silos={"a": over.silos["a"]})
    assert status_of(fewer)["silosSummary"] == "2/2"
