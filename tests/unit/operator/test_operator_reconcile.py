"""Observe, plan, carry out: what a federation gets, that nothing is written twice, and what happens where writing fails."""

from contextlib import suppress

import pytest
from fake_api.memory import plural
from fake_api.operator_world import DERM, World

from anchorage.transport.kube.client import ApiError
from anchorage.transport.server_client import ServerError
from anchorage_operator.reconcile import IncompleteError


def fail_once(world, status, verb, kind, retry_after=0.0):
    def refuse(*call):
        if call[:2] == (verb, kind):
            world.api.refuse = lambda *call: None
            raise ApiError(status, "Reason", f"{kind} no", retry_after)

    world.api.refuse = refuse


def test_a_federation_gets_all_that_it_needs(settled):
    assert settled.names("statefulsets") == {"derm-server", "a-silo", "b-silo"}
    assert settled.names("secrets") == {"derm-authority", "derm-server-tls", "a-enrolment", "b-enrolment"}
    assert {"derm-server", "derm-authority", "a-silo", "b-silo"} <= settled.names("configmaps")
    assert settled.condition("federations", "derm", "Accepted")[0] == "True"
    status = settled.store.get("federations", "study", "derm")["status"]
    assert status["observedGeneration"] == 1


def test_the_authority_s_key_is_marked_as_nobody_else_s_to_prune(settled):
    metadata = settled.store.get("secrets", "study", "derm-authority")["metadata"]
    assert metadata["annotations"]["argocd.argoproj.io/sync-options"] == "Prune=false"
    assert metadata["labels"]["anchorage.dev/federation"] == "derm"
    assert "app.kubernetes.io/instance" not in metadata["labels"] and "ownerReferences" not in metadata


def test_nothing_is_written_when_nothing_changed(training):
    for _ in range(10):
        training.look()
    assert training.api.writes() == []


def test_secrets_are_not_read_at_every_look(training):
    for _ in range(10):
        training.look()
    assert [call for call in training.api.calls if call[:2] == ("get", "Secret")] == []


def test_a_new_start_of_the_operator_writes_nothing(training):
    training.start()
    for _ in range(5):
        training.look()
    assert training.api.writes() == []


@pytest.mark.parametrize("kind", ["StatefulSet", "Service", "ConfigMap", "ServiceAccount", "NetworkPolicy"])
def test_a_deleted_child_comes_back(training, kind):
    training.store.delete(plural(kind), "study", "derm-server")
    training.look()
    assert "derm-server" in training.names(plural(kind))


def test_an_edited_child_is_mended(training):
    training.store.patch("statefulsets", "study", "derm-server", {"spec": {"replicas": 5}})
    training.look()
    assert training.store.get("statefulsets", "study", "derm-server")["spec"]["replicas"] == 1


def test_what_others_add_stays(training):
    training.store.patch("statefulsets", "study", "derm-server", {"metadata": {"labels": {"team": "skin"}}})
    training.look()
    assert training.api.writes() == []


def test_an_edited_spec_is_applied(training):
    training.federation(suspend=True)
    training.settle(3)
    replicas = {
        name: training.store.get("statefulsets", "study", name)["spec"]["replicas"]
        for name in training.names("statefulsets")
    }
    assert replicas == {"derm-server": 0, "a-silo": 0, "b-silo": 0}


def test_a_lost_certificate_is_made_again(training):
    training.store.delete("secrets", "study", "derm-server-tls")
    training.server.fails = ServerError("ConnectionRefused", "no")
    for _ in range(25):
        training.look()
    assert "derm-server-tls" in training.names("secrets")


def test_why_a_volume_is_not_mounted_is_read_from_the_pod_s_events(settled):
    settled.run_server()
    (pod,) = settled.store.list("pods", "study")
    waits = {"name": "server", "state": {"waiting": {"reason": "ContainerCreating"}}}
    status = {"phase": "Pending", "conditions": None, "containerStatuses": [waits]}
    change = {"metadata": {"creationTimestamp": "2027-01-01T00:00:00Z"}, "spec": {"nodeName": "n"}, "status": status}
    settled.store.patch("pods", "study", "derm-server-0", change)
    about = {"kind": "Pod", "uid": pod["metadata"]["uid"], "name": "derm-server-0"}

    def event(name, reason, message, moment):
        body = {"metadata": {"name": name}, "involvedObject": about, "reason": reason, "message": message}
        settled.store.create("events", "study", {**body, "lastTimestamp": moment})

    event("a", "FailedMount", "no such file or directory", "2027-01-01T00:01:00Z")
    settled.look()
    assert settled.condition("federations", "derm", "ServerAvailable") == ("False", "VolumeNotMounted")
    event("b", "Pulling", "Pulling image", "2027-01-01T00:02:00Z")
    settled.look()
    assert settled.condition("federations", "derm", "ServerAvailable") == ("False", "Starting")


def test_a_deleted_federation_is_let_go(training):
    training.store.delete("federations", "study", "derm")
    for name in ("a", "b"):
        training.store.delete("silos", "study", name)
    for pod in training.names("pods"):
        training.store.delete("pods", "study", pod)
    training.api.calls.clear()
    assert training.look() is None
    assert training.api.writes() == []
    assert "derm-authority" in training.names("secrets")  # deletionPolicy: Retain


def test_what_is_deleted_and_applied_again_at_once_gets_everything_anew(training):
    training.store.delete("federations", "study", "derm")
    for name in ("a", "b"):
        training.store.delete("silos", "study", name)
    training.federation()
    training.silo("a", part=0)
    training.silo("b", part=1)
    training.settle()
    assert training.names("secrets") == {"derm-authority", "derm-server-tls", "a-enrolment", "b-enrolment"}
    uid = training.store.get("silos", "study", "a")["metadata"]["uid"]
    for plural_, name in (("secrets", "a-enrolment"), ("statefulsets", "a-silo")):
        assert training.store.get(plural_, "study", name)["metadata"]["ownerReferences"][0]["uid"] == uid


def test_one_refused_object_does_not_keep_the_rest_back(world):
    refused = set()

    def refuse(verb, kind, name):
        if (verb, kind) == ("apply", "Service"):
            refused.add(name)
            raise ApiError(422, "Invalid", "spec.ports: Required value")

    world.api.refuse = refuse
    for _ in range(40):  # for minutes: it is told when it begins, and not again
        try:
            world.look()
        except IncompleteError as error:
            assert "spec.ports" in str(error)
            world.clock.advance(6.0)
    assert refused == {"derm-server"}
    assert {"derm-server", "a-silo"} <= world.names("statefulsets")
    assert world.condition("federations", "derm", "ServerAvailable") == ("False", "ObjectRefused")
    assert world.condition("federations", "derm", "Ready") == ("False", "ObjectRefused")
    (event,) = [event for event in world.store.list("events") if event["reason"] == "ApplyRefused"]
    assert event["count"] == 1
    assert event["message"].startswith("Service derm-server was refused") and event["type"] == "Warning"


@pytest.mark.parametrize("status", [0, 409, 429, 500, 503])
@pytest.mark.parametrize(
    "verb, kind", [("apply", "ConfigMap"), ("status", "Federation"), ("create", "Secret"), ("get", "Secret")]
)
def test_whatever_fails_once_is_done_the_next_time(world, status, verb, kind):
    fail_once(world, status, verb, kind)
    failures = 0
    for _ in range(10):
        try:
            world.look()
        except (ApiError, IncompleteError):
            failures += 1
            world.clock.advance(6.0)
    assert failures <= 1
    assert world.names("statefulsets") == {"derm-server", "a-silo", "b-silo"}
    assert world.condition("federations", "derm", "Accepted")[0] == "True"
    world.api.calls.clear()
    world.look()
    assert world.api.writes() == []


def test_the_longest_wish_to_wait_is_passed_on(world):
    world.settle(1)
    world.federation(rounds=30)
    fail_once(world, 429, "status", "Federation", retry_after=17.0)
    world.store.delete("federations", "study", "derm")
    world.federation()
    with pytest.raises(IncompleteError) as raised:
        for _ in range(3):
            world.look()
    assert raised.value.retry_after == 17.0


def test_what_somebody_else_made_under_a_name_is_left_alone():
    world = World()
    world.store.create("configmaps", "study", {"metadata": {"name": "derm-server"}, "data": {"mine": "yes"}})
    world.federation()
    world.silo("a", part=0)
    world.silo("b", part=1)
    for _ in range(5):
        try:
            world.look()
        except IncompleteError as error:
            assert "derm-server" in str(error)
            world.clock.advance(6.0)
    assert world.store.get("configmaps", "study", "derm-server")["data"] == {"mine": "yes"}
    assert any("ConfigMap derm-server" in event["message"] for event in world.store.list("events"))


def test_a_status_that_vanished_is_no_failure(world):
    world.settle(3)
    world.federation(rounds=40)
    world.resync.run()
    world.store.delete("federations", "study", "derm")
    world.reconciler.reconcile(DERM)


def test_events_are_posted_once(training):
    reasons = [event["reason"] for event in training.store.list("events")]
    assert reasons.count("Accepted") == 1
    training.start()
    training.settle()
    assert len(training.store.list("events")) == len(reasons)


def test_repeated_effects_wait_longer_and_longer(world, monkeypatch):
    """Were the plan never content with a Secret, the API server would not be flooded."""
    monkeypatch.setattr(world.identity, "make_authority", lambda *_: None)
    waits = [world.look() for _ in range(12)]
    assert waits == sorted(waits) and waits[0] <= 0.1 and waits[-1] >= 5.0


def claim(world, size):
    spec = {"resources": {"requests": {"storage": size}}}
    metadata = {"name": "state-derm-server-0"}
    world.store.put("persistentvolumeclaims", {"metadata": metadata, "spec": spec}, "study")


def test_a_volume_grows_with_its_spec(training):
    claim(training, "20Gi")
    training.federation(server={"storage": {"size": "40Gi"}})
    training.settle(3)
    stored_claim = training.store.get("persistentvolumeclaims", "study", "state-derm-server-0")
    assert stored_claim["spec"]["resources"]["requests"]["storage"] == "40Gi"
    assert [each["reason"] for each in training.store.list("events")].count("VolumeGrows") == 1


def test_a_volume_that_cannot_grow_is_told_of_and_hinders_nothing(training):
    refused = "only dynamically provisioned pvc can be resized"

    def refuse(verb, kind, name):
        if (verb, kind) == ("patch", "PersistentVolumeClaim"):
            raise ApiError(403, "Forbidden", refused)

    training.api.refuse = refuse
    claim(training, "20Gi")
    training.federation(server={"storage": {"size": "40Gi"}}, rounds=30)
    for _ in range(10):
        training.look()
    assert training.api.calls.count(("patch", "PersistentVolumeClaim", "state-derm-server-0")) == 1
    assert training.condition("federations", "derm", "Accepted") == ("True", "Accepted")
    (event,) = (each for each in training.store.list("events") if each["reason"] == "VolumeNotGrown")
    assert refused in event["message"] and event["type"] == "Warning"
    training.clock.advance(1000.0)
    training.look()
    assert training.api.calls.count(("patch", "PersistentVolumeClaim", "state-derm-server-0")) == 2


@pytest.mark.parametrize("last, reason", [("FailedCreate", "PodRefused"), ("SuccessfulCreate", "PodMissing")])
def test_why_a_pod_was_refused_is_read_from_its_controller_s_events(settled, last, reason):
    uid = settled.store.get("statefulsets", "study", "derm-server")["metadata"]["uid"]
    words = 'pods "derm-server-0" is forbidden: no PriorityClass with name high was found'
    message = f"create Pod derm-server-0 in StatefulSet derm-server failed error: {words}"
    for number, expected_reason in enumerate(["FailedCreate", last]):
        about = {"kind": "StatefulSet", "name": "derm-server", "uid": uid}
        moment = f"2027-01-15T08:00:0{number}Z"
        event = {"involvedObject": about, "reason": expected_reason, "message": message, "lastTimestamp": moment}
        settled.store.create("events", "study", {"metadata": {"name": f"e{number}"}, **event})
    settled.look()
    assert settled.condition("federations", "derm", "ServerAvailable") == ("False", reason)
    if reason == "PodRefused":
        conditions = settled.store.get("federations", "study", "derm")["status"]["conditions"]
        assert words in {each["message"] for each in conditions}
        assert reason in {each["reason"] for each in settled.store.list("events")}
        settled.run_server()
        settled.look()
        assert settled.condition("federations", "derm", "ServerAvailable")[1] != reason


@pytest.mark.parametrize("runs", [False, True])
def test_a_stateful_set_that_is_refused_is_told_in_the_api_server_s_words(world, runs):
    """What is in Kubernetes' own form is checked by the API server alone."""
    words = "spec.template.spec.affinity: Required value: must have at least one node selector term"
    if runs:
        world.settle()
        world.run_server()
        world.connected("a", "b")
        world.settle()
    world.federation(server={"pod": {"affinity": {"nodeAffinity": {}}}})

    def refuse(verb, kind, name):
        if (verb, kind, name) == ("apply", "StatefulSet", "derm-server"):
            raise ApiError(422, "Invalid", words)

    world.api.refuse = refuse
    for _ in range(6):
        with suppress(IncompleteError):
            world.look()
    conditions = {c["type"]: c for c in world.store.get("federations", "study", "derm")["status"]["conditions"]}
    assert conditions["ServerAvailable"]["reason"] == ("Available" if runs else "PodRefused")
    assert words in conditions["Accepted" if runs else "ServerAvailable"]["message"]
    world.api.refuse = lambda *call: None
    world.settle(4)
    conditions = {c["type"]: c for c in world.store.get("federations", "study", "derm")["status"]["conditions"]}
    assert words not in str(conditions)


def test_a_role_that_may_not_list_events_costs_only_the_words(settled):
    def refuse(verb, kind, name):
        if (verb, kind) == ("list", "Event"):
            raise ApiError(403, "Forbidden", "cannot list events")

    settled.api.refuse = refuse
    settled.look()
    assert settled.condition("federations", "derm", "ServerAvailable") == ("False", "PodMissing")


def policy(world, change):
    """A mutating webhook: whatever is applied to the server's StatefulSet is changed before it is kept."""
    apply = world.store.apply

    def applied(plural_, namespace, name, body, manager, subresource=""):
        result = apply(plural_, namespace, name, body, manager, subresource)
        if (plural_, name) == ("statefulsets", "derm-server"):
            result = change(result)
            result = world.store.put(plural_, result, namespace)
        return result

    world.store.apply = applied


def applies(world):
    return world.api.calls.count(("apply", "StatefulSet", "derm-server"))


def test_what_a_policy_adds_is_left(training):
    def add(body):
        pod = body["spec"]["template"]["spec"]
        pod.setdefault("tolerations", []).append({"key": "zone", "operator": "Exists"})
        pod["containers"].append({"name": "istio-proxy", "image": "proxy:1"})
        pod["containers"][0]["env"].append({"name": "ZONE", "value": "a"})
        body["metadata"]["labels"]["team"] = "skin"
        return body

    policy(training, add)
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    training.federation(server={"pod": {"tolerations": tolerations}})
    training.look()
    training.api.calls.clear()
    for _ in range(10):
        training.look()
    assert training.api.writes() == []


def test_a_contest_with_a_policy_is_noticed_told_and_backed_off(training):
    contested = []
    training.reconciler.contested = contested.append

    def overrule(body):
        body["spec"]["template"]["spec"]["containers"][0]["image"] = "mirror.example.org/s:1"
        return body

    policy(training, overrule)
    training.federation(server={"resources": {"limits": {"cpu": "2"}}})
    for _ in range(100):  # ten minutes
        training.look()
    assert 4 <= applies(training) <= 10
    assert contested == ["StatefulSet"] * len(contested) and 1 <= len(contested) <= 7
    (event,) = [each for each in training.store.list("events") if each["reason"] == "ApplyContested"]
    assert "containers[0].image of StatefulSet derm-server" in event["message"] and event["type"] == "Warning"
    before = applies(training)
    training.federation(suspend=True)
    training.look()
    assert applies(training) == before + 1, "another wish of the user's is carried out at once"


def test_another_installation_is_named(training):
    training.reconciler.installation = "anchorage/one-operator"

    def overrule(body):
        assert body["metadata"]["annotations"]["anchorage.dev/operated-by"] == "anchorage/one-operator"
        body["spec"]["template"]["spec"]["containers"][0]["image"] = "mirror.example.org/s:1"
        body["metadata"]["annotations"]["anchorage.dev/operated-by"] = "trials/two-operator"
        return body

    policy(training, overrule)
    training.federation(server={"resources": {"limits": {"cpu": "2"}}})
    for _ in range(100):
        training.look()
    (event,) = [each for each in training.store.list("events") if each["reason"] == "ApplyContested"]
    assert event["message"].startswith(
        "another installation of the operator, two-operator in namespace trials, watches this namespace too and changes "
    )


def test_writes_that_fail_are_no_contest(training):
    """As at load: the API server answers 429, or not at all, and nobody changed anything."""

    def fail(verb, kind, name):
        if (verb, kind) == ("apply", "StatefulSet"):
            raise ApiError(429, "TooManyRequests", "slow down")

    training.api.refuse = fail
    training.federation(server={"resources": {"limits": {"cpu": "2"}}})
    for _ in range(20):
        with suppress(IncompleteError):
            training.look()
        training.clock.advance(6.0)
    training.api.refuse = lambda *call: None
    training.look()
    assert not [each for each in training.store.list("events") if each["reason"] == "ApplyContested"]
    container = training.store.get("statefulsets", "study", "derm-server")["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"cpu": "2"}


def test_a_person_who_edits_now_and_then_is_no_contest(training):
    for replicas in (5, 3, 2, 4, 7):
        training.store.patch("statefulsets", "study", "derm-server", {"spec": {"replicas": replicas}})
        training.look()
        assert training.store.get("statefulsets", "study", "derm-server")["spec"]["replicas"] == 1
        training.clock.advance(700.0)
    assert not [each for each in training.store.list("events") if each["reason"] == "ApplyContested"]
