"""Which objects are made, changed, left alone and deleted, and when."""

from copy import deepcopy
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from agent_options import other_options
from plan_world import (
    AUTHORITY,
    NOW,
    SETTINGS,
    applied,
    condition,
    conditions_of,
    edited,
    effects_of,
    federation,
    managed,
    message_of,
    pod,
    running,
    said,
    settled,
    silo,
    stateful_set,
    succeeded,
    world,
)
from pod_security import violations

from anchorage.api.agent import AgentOptions
from anchorage.api.files import load_federation
from anchorage.api.pod_limits import PodOverrideLimits
from anchorage.api.single import read_document
from anchorage.api.status import StoredModel, TrackingStatus
from anchorage_operator.observed import Json, Observed
from anchorage_operator.plan import plan
from anchorage_operator.planned import MakeAuthority, MakeInvitation, MakeServerCertificate, OwnAuthority
from anchorage_server.config import read_config
from anchorage_silo.config import SiloConfig
from anchorage_silo.policy import read_policy


def test_first_the_authority_then_certificates_then_pods() -> None:
    observed = Observed("study", "derm", federation(), {"a": managed("a"), "far": silo("far")})
    _, plans = settled(observed)
    assert [[type(effect) for effect in planned.effects] for planned in plans[:3]] == [
        [MakeAuthority],
        [MakeServerCertificate, MakeInvitation],
        [],
    ]
    assert applied(plans[0]) == []
    assert "StatefulSet" not in {kind for kind, _ in applied(plans[1])}
    assert applied(plans[2]) == [("StatefulSet", "derm-server"), ("StatefulSet", "a-silo")]
    assert not any(name.startswith("far") for planned in plans for _, name in applied(planned))


def test_pods_read_the_configuration_that_was_built(tmp_path: Path) -> None:
    observed, _ = settled(Observed("study", "derm", federation(), {"a": managed("a", policy="own/policy.yaml")}))
    for name in ("derm-server", "a-silo"):
        for file, text in observed.children["ConfigMap", name]["data"].items():
            (tmp_path / file).write_text(text)
    server, agent = read_config(tmp_path / "server.yaml"), read_document(tmp_path / "silo.yaml", SiloConfig)
    assert (str(server.state), str(server.tls), server.stay) == ("/var/lib/anchorage", "/etc/anchorage-tls", True)
    assert agent.server == "derm-server.study.svc.cluster.local:8443"
    assert (str(agent.policy), agent.patience_seconds, agent.stay) == ("/data/own/policy.yaml", 0, True)
    with pytest.raises(Exception, match="found no silo"):  # all but the silos, which come later, is there
        load_federation(tmp_path / "federation.yaml")


@pytest.mark.parametrize("name", ["no", "1e3", "08", "0x1f", "2026"])
def test_names_that_yaml_takes_for_something_else_stay_names(tmp_path: Path, name: str) -> None:
    observed, _ = settled(Observed("study", "derm", federation(), {name: managed(name)}))
    (tmp_path / "silo.yaml").write_text(observed.children["ConfigMap", f"{name}-silo"]["data"]["silo.yaml"])
    assert read_document(tmp_path / "silo.yaml", SiloConfig).silo == name


def test_a_managed_silo_without_a_policy_trusts_its_own_site_s_server(tmp_path: Path) -> None:
    observed, _ = settled(Observed("study", "derm", federation(), {"a": managed("a")}))
    for file, text in observed.children["ConfigMap", "a-silo"]["data"].items():
        (tmp_path / file).write_text(text)
    agent = read_document(tmp_path / "silo.yaml", SiloConfig)
    assert agent.policy == Path("/etc/anchorage/policy.yaml")
    policy = read_policy(tmp_path / agent.policy.name)
    assert (policy.noise_ratio, policy.least_images, policy.undecided) == (None, 0, False)


@pytest.mark.parametrize(
    ("asked", "limits"),
    [
        ({}, {"nvidia.com/gpu": "4"}),
        ({"resources": {"limits": {"memory": "8Gi"}}}, {"memory": "8Gi", "nvidia.com/gpu": "4"}),
        ({"resources": {"limits": {"amd.com/gpu": 4}}}, {"amd.com/gpu": "4"}),
        ({"resources": {"limits": {"nvidia.com/gpu": 0}}}, {"nvidia.com/gpu": "0"}),
        ({"pod": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "a100"}]}}, None),
    ],
)
def test_several_devices_are_asked_for_and_told_to_the_agent(
    asked: dict[str, Any], limits: dict[str, str] | None, tmp_path: Path
) -> None:
    document = managed("a", devices=4, release="BetweenRounds", **asked)
    observed, plans = settled(Observed("study", "derm", federation(), {"a": document}))
    pod_of = next(
        each for each in plans[2].apply if each["metadata"]["name"] == "a-silo" and each["kind"] == "StatefulSet"
    )
    (container,) = pod_of["spec"]["template"]["spec"]["containers"]
    assert container["resources"].get("limits") == limits
    (tmp_path / "silo.yaml").write_text(observed.children["ConfigMap", "a-silo"]["data"]["silo.yaml"])
    agent = read_document(tmp_path / "silo.yaml", SiloConfig)
    assert (agent.devices, agent.release) == (4, "BetweenRounds")


def test_every_option_of_an_agent_reaches_its_configuration(tmp_path: Path) -> None:
    options = other_options()
    observed, _ = settled(Observed("study", "derm", federation(), {"a": managed("a", **options)}))
    (tmp_path / "silo.yaml").write_text(observed.children["ConfigMap", "a-silo"]["data"]["silo.yaml"])
    agent = read_document(tmp_path / "silo.yaml", SiloConfig)
    assert agent.changed_options() == options


def test_an_agent_of_the_release_before_reads_the_configuration_of_one_device() -> None:
    defaults = {field.alias: field.default for field in AgentOptions.model_fields.values()}
    observed, _ = settled(Observed("study", "derm", federation(), {"a": managed("a", **defaults)}))
    assert not defaults.keys() & yaml.safe_load(observed.children["ConfigMap", "a-silo"]["data"]["silo.yaml"]).keys()


def test_nothing_changes_nothing() -> None:
    observed = world(managed("a"), managed("b"), silo("far"))
    assert plan(observed, SETTINGS, NOW).idle


def test_silos_are_not_in_the_server_s_configuration() -> None:
    observed = world(managed("a"), managed("b"))
    more = replace(observed, silos={**observed.silos, "c": managed("c")})
    _, plans = settled(more)
    assert not any(name == "derm-server" for planned in plans for _, name in applied(planned))
    assert ("StatefulSet", "c-silo") in {key for planned in plans for key in applied(planned)}


@pytest.mark.parametrize(
    ("spec", "restarts"),
    [
        ({"rounds": 30}, True),
        ({"protocol": {"minSilos": 1}}, True),
        ({"tracking": {"uri": "http://mlflow:5000"}}, True),
        ({"admission": {"approval": "Automatic"}}, False),
        ({"deletionPolicy": "Delete"}, False),
        ({"server": {"service": {"type": "NodePort"}}}, False),
        ({"server": {"address": "fed.example.org:443"}}, False),
        ({"server": {"pod": {"nodeSelector": {"a": "b"}}}}, True),
    ],
)
def test_the_server_restarts_for_what_it_reads(spec: dict[str, Any], restarts: bool) -> None:
    observed = world(managed("a"))
    before = observed.children["StatefulSet", "derm-server"]["spec"]["template"]
    after = settled(edited(observed, **spec))[0].children["StatefulSet", "derm-server"]["spec"]["template"]
    assert (before != after) is restarts


def test_what_somebody_changed_is_set_back() -> None:
    observed = world(managed("a"))
    children = deepcopy(dict(observed.children))
    children["StatefulSet", "derm-server"]["spec"]["replicas"] = 3  # type: ignore[index]
    children["Service", "derm-server"]["spec"]["ports"].pop()
    children["ConfigMap", "a-silo"]["data"]["silo.yaml"] = "other"  # type: ignore[index]
    planned = plan(replace(observed, children=children), SETTINGS, NOW)
    assert set(applied(planned)) == {
        ("StatefulSet", "derm-server"),
        ("Service", "derm-server"),
        ("ConfigMap", "a-silo"),
    }


def test_what_somebody_added_stays() -> None:
    observed = world(managed("a"))
    children = deepcopy(dict(observed.children))
    children["StatefulSet", "derm-server"]["metadata"]["annotations"]["example.org/team"] = "a"  # type: ignore[index]
    children["ConfigMap", "a-silo"]["data"]["note"] = "kept"  # type: ignore[index]
    assert plan(replace(observed, children=children), SETTINGS, NOW).idle


def test_a_deleted_child_comes_back() -> None:
    observed = world(managed("a"))
    children = {key: each for key, each in observed.children.items() if key != ("Service", "derm-server")}
    assert applied(plan(replace(observed, children=children), SETTINGS, NOW)) == [("Service", "derm-server")]


def test_suspended_pods_end_and_come_back() -> None:
    observed = world(managed("a"), managed("b"), report=said("a", "b", round=3))
    suspended, plans = settled(edited(observed, suspend=True))
    for name in ("derm-server", "a-silo", "b-silo"):
        assert stateful_set(plans[0], name)["spec"]["replicas"] == 0
    gone = settled(replace(suspended, pods=(), report=None))[0]
    assert gone.federation is not None
    conditions = conditions_of(gone.federation["status"])
    assert conditions["Ready"] == ("False", "Suspended")
    assert conditions["ServerAvailable"] == ("False", "Suspended")
    assert gone.federation["status"]["round"] == 3
    assert gone.federation["status"]["connectedSilos"] == 0
    back = plan(edited(gone, suspend=False), SETTINGS, NOW)
    assert stateful_set(back, "derm-server")["spec"]["replicas"] == 1


def test_after_success_agents_end_and_the_server_only_shows_results() -> None:
    observed = world(managed("a"), report=said("a", round=19))
    finished, plans = settled(replace(observed, report=succeeded()))
    assert stateful_set(plans[0], "a-silo")["spec"]["replicas"] == 0
    assert ("StatefulSet", "derm-server") not in applied(plans[0]), "MLflow may not have the results yet"
    assert plan(finished, SETTINGS, NOW).requeue_after <= 60
    later = plan(finished, SETTINGS, NOW + 61)
    server = stateful_set(later, "derm-server")["spec"]
    assert server["replicas"] == 1
    assert server["template"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "20m", "memory": "128Mi"}}


def test_a_server_that_only_shows_results_keeps_the_limits_that_a_quota_may_want() -> None:
    limits = {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": 1}
    document = federation(server={"resources": {"limits": limits, "requests": {"cpu": "1"}}})
    observed = world(federation=document, report=said(round=19))
    finished, _ = settled(replace(observed, report=succeeded()))
    server = stateful_set(plan(finished, SETTINGS, NOW + 61), "derm-server")["spec"]
    assert server["template"]["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "20m", "memory": "128Mi"},
        "limits": {"cpu": "2", "memory": "8Gi"},
    }


def test_nothing_keeps_a_drain_waiting_for_the_end_of_training() -> None:
    """What every commit and every whole update leaves on the volume is what the next pod goes on from."""
    observed = world(managed("a"), managed("b"), report=said("a", "b", round=3))
    assert "PodDisruptionBudget" not in {kind for kind, _ in observed.children}


def test_pods_may_ask_resolvers_of_the_cluster_alone_and_only_scrapers_read_metrics() -> None:
    observed = world(managed("a"))
    for name in ("derm-server", "a-silo"):
        policy = observed.children["NetworkPolicy", name]["spec"]
        (names,) = [rule for rule in policy["egress"] if rule["ports"][0]["port"] == 53]
        nets = [ip_network(peer["ipBlock"]["cidr"]) for peer in names["to"] if "ipBlock" in peer]
        assert {"namespaceSelector": {}} in names["to"] and not any(net.is_global for net in nets)
        (metrics,) = [rule for rule in policy["ingress"] if rule["ports"][0]["port"] == 8080]
        assert all(peer.get("podSelector") for peer in metrics["from"])


def test_the_server_is_replaced_once_after_success() -> None:
    model = StoredModel(path="model/final.safetensors", round=20, digest="d" * 64)
    recorded = succeeded(model=model, tracking=TrackingStatus(model_version="1"))
    small, plans = settled(replace(world(managed("a")), report=recorded))
    assert any(("StatefulSet", "derm-server") in applied(each) for each in plans)
    replaced = plan(replace(small, report=None, pods=()), SETTINGS, NOW + 5)  # it cannot say anything while it is
    assert ("StatefulSet", "derm-server") not in applied(replaced)


def test_more_rounds_after_success_start_training_again() -> None:
    observed = settled(replace(world(managed("a")), report=succeeded()))[0]
    shrunk = settled(observed, NOW + 61)[0]
    resettled, plans = settled(edited(shrunk, rounds=30), NOW + 70)
    assert stateful_set(plans[0], "a-silo")["spec"]["replicas"] == 1
    assert "512Mi" in str(
        stateful_set(plans[0], "derm-server")["spec"]["template"]["spec"]["containers"][0]["resources"]
    )
    assert resettled.federation is not None
    assert conditions_of(resettled.federation["status"])["Succeeded"][0] == "Unknown"


def test_a_deadline_stops_everything_until_the_spec_changes() -> None:
    line = "ANC-3002 DeadlineExceeded: the run took longer than 60 s"
    observed = world(managed("a"), report=said("a", round=3))
    over = said(round=3, others=("a",), conditions=(condition("Failed", "True", "DeadlineExceeded", line),))
    failed = settled(replace(observed, report=over))[0]
    assert failed.federation is not None
    assert conditions_of(failed.federation["status"])["Failed"] == ("True", "DeadlineExceeded")
    assert failed.children["StatefulSet", "a-silo"]["spec"]["replicas"] == 0
    failed_spec = failed.children["StatefulSet", "derm-server"]["spec"]
    container = failed_spec["template"]["spec"]["containers"][0]
    assert (failed_spec["replicas"], container["command"][-1]) == (1, "anchorage_server.results")
    assert "512Mi" not in str(container["resources"])
    still = settled(replace(failed, pods=(), report=None), NOW + 500)[0]
    assert still.federation is not None
    assert conditions_of(still.federation["status"])["Failed"] == ("True", "DeadlineExceeded")
    assert conditions_of(still.federation["status"])["Ready"] == ("False", "DeadlineExceeded")
    content = settled(edited(still, rounds=3), NOW + 600)[0]  # with the rounds that it has, to read what came of them
    assert content.children["StatefulSet", "derm-server"]["spec"]["replicas"] == 1
    ended = said(round=3, rounds=3, others=("a",), conditions=(condition("Succeeded", "True", "AllRoundsCommitted"),))
    pods = (pod("derm-server-0", "server", **running()),)
    content = settled(replace(content, report=ended, pods=pods), NOW + 610)[0]
    assert content.federation is not None
    assert conditions_of(content.federation["status"])["Succeeded"][0] == "True"
    raised = settled(edited(still, activeDeadlineSeconds=10_000), NOW + 600)[0]
    server_spec = raised.children["StatefulSet", "derm-server"]["spec"]
    assert (server_spec["replicas"], server_spec["template"]["spec"]["containers"][0]["command"][-1]) == (
        1,
        "anchorage_server",
    )
    assert raised.federation is not None
    assert conditions_of(raised.federation["status"])["Failed"][0] == "False"


def test_a_deadline_before_the_first_round_leaves_no_pod() -> None:
    over = said(others=("a",), conditions=(condition("Failed", "True", "DeadlineExceeded", "too long"),))
    failed = settled(replace(world(managed("a"), report=said("a")), report=over))[0]
    assert failed.children["StatefulSet", "derm-server"]["spec"]["replicas"] == 0


def test_a_federation_that_is_being_deleted_is_left_alone() -> None:
    observed = world(managed("a"))
    old: Json = observed.federation or {}
    metadata = {**old["metadata"], "deletionTimestamp": "2026-11-21T12:00:00Z"}
    assert plan(replace(observed, federation={**old, "metadata": metadata}, children={}), SETTINGS, NOW).idle


def test_without_its_federation_an_agent_rests_and_says_so() -> None:
    observed = world(managed("a"), silo("far"))
    orphaned = replace(observed, federation=None, authority=None, server_certificate=None, invitations={}, pods=())
    rested, plans = settled(orphaned)
    assert applied(plans[0]) == [("StatefulSet", "a-silo")]
    assert rested.children["StatefulSet", "a-silo"]["spec"]["replicas"] == 0
    assert not any(planned.delete or planned.effects for planned in plans)
    for each in rested.silos.values():
        assert conditions_of(each["status"])["Ready"] == ("False", "FederationNotFound")


def test_a_silo_may_be_there_before_its_federation() -> None:
    planned = plan(Observed("study", "derm", None, {"a": managed("a"), "far": silo("far")}), SETTINGS, NOW)
    assert applied(planned) == []
    assert conditions_of(planned.silo_statuses["a"])["Accepted"] == ("False", "FederationNotFound")
    assert conditions_of(planned.silo_statuses["far"])["Ready"] == ("False", "FederationNotFound")
    assert message_of(planned.silo_statuses["a"], "Accepted") == "Federation derm does not exist in namespace study"


def test_an_agent_goes_when_the_hospital_runs_it_itself() -> None:
    observed = world(managed("a"), managed("b"))
    planned = plan(replace(observed, silos={**observed.silos, "a": silo("a")}), SETTINGS, NOW)
    assert {(reference.kind, reference.name) for reference in planned.delete} == {
        (kind, "a-silo") for kind in ("StatefulSet", "ConfigMap", "ServiceAccount", "NetworkPolicy")
    }


def test_an_agent_of_an_authority_that_is_no_more_starts_anew() -> None:
    observed = world(managed("a"))
    replaced = replace(observed, authority=replace(AUTHORITY, certificate="another"))
    planned = plan(replaced, SETTINGS, NOW)
    assert {(r.kind, r.name) for r in planned.delete} == {("StatefulSet", "a-silo"), ("Secret", "a-enrolment")}
    resettled = settled(replaced)[0]
    assert ("StatefulSet", "a-silo") in resettled.children
    assert resettled.invitations["a"].key == ""


def test_the_authority_goes_with_the_federation_only_if_asked() -> None:
    observed = world(managed("a"))
    planned = plan(edited(observed, deletionPolicy="Delete"), SETTINGS, NOW)
    (own_effect,) = effects_of(planned, OwnAuthority)
    assert own_effect.owner["name"] == "derm"
    policy = stateful_set(planned, "derm-server")["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert policy == {"whenDeleted": "Delete", "whenScaled": "Retain"}
    first_plan = plan(Observed("study", "derm", federation()), SETTINGS, NOW)
    assert [effect.owner for effect in effects_of(first_plan, MakeAuthority)] == [None]


def test_a_service_for_hospitals_comes_and_goes() -> None:
    observed = world(managed("a"))
    public = settled(edited(observed, server={"service": {"type": "LoadBalancer"}}))[0]
    assert public.children["Service", "derm-server-public"]["spec"]["type"] == "LoadBalancer"
    back = plan(edited(public, server={"service": {"type": "ClusterIP"}}), SETTINGS, NOW)
    assert [(reference.kind, reference.name) for reference in back.delete] == [("Service", "derm-server-public")]


def test_the_server_s_pod_is_the_youngest_of_two() -> None:
    old = pod("derm-server-0", "server", **running())
    old["metadata"] |= {"creationTimestamp": "2026-11-20T12:00:00Z", "deletionTimestamp": "2026-11-21T12:00:00Z"}
    observed = world(managed("a"), pods=(old, pod("derm-server-0", "server", **running())))
    assert observed.federation is not None
    assert conditions_of(observed.federation["status"])["ServerAvailable"] == ("False", "Starting")


def test_yaml_of_the_configuration_is_stable() -> None:
    spec = federation()["spec"]
    turned = {**federation(), "spec": dict(reversed(spec.items()))}
    texts = []
    for document in (federation(), turned):
        children = settled(Observed("study", "derm", document))[0].children
        texts.append(children["ConfigMap", "derm-server"]["data"]["federation.yaml"])
    assert texts[0] == texts[1]
    assert yaml.safe_load(texts[0])["spec"] == {**spec}


def test_a_cluster_that_assigns_users_is_asked_for_none() -> None:
    settings = SETTINGS.model_copy(update={"user_id": 0})
    observed, _ = settled(world(managed("a")), settings=settings)
    for name in ("derm-server", "a-silo"):
        template = observed.children["StatefulSet", name]["spec"]["template"]
        assert template["spec"]["securityContext"] == {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert list(violations(template)) == []


def test_mlflow_s_credentials_come_from_a_secret_and_reach_the_server_alone() -> None:
    settings = SETTINGS.model_copy(
        update={
            "tracking_uri": "http://mlflow:5000",
            "tracking_secret": "mlflow-login",
            "pod_overrides": PodOverrideLimits(fields=("env",)),
        }
    )
    overrides = {"pod": {"env": [{"name": "MLFLOW_TRACKING_TOKEN", "value": "plain"}]}}
    observed, _ = settled(world(managed("a"), federation=federation(server=overrides), pods=()), settings=settings)
    server, agent = (observed.children["StatefulSet", name] for name in ("derm-server", "a-silo"))
    env = {each["name"]: each for each in server["spec"]["template"]["spec"]["containers"][0]["env"]}
    for key in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        assert env[key]["valueFrom"]["secretKeyRef"] == {"name": "mlflow-login", "key": key, "optional": True}
    assert env["MLFLOW_TRACKING_TOKEN"] == {"name": "MLFLOW_TRACKING_TOKEN", "value": "plain"}, (
        "the spec's own comes first"
    )
    assert "mlflow-login" not in str(agent)
