"""Newer images and defaults reach running pods between rounds, a few federations at a time; what somebody asks for is done at once."""

from copy import deepcopy

import pytest
from fake_api.operator_world import DERM, SETTINGS, World

from anchorage.api.pod_limits import PodOverrideLimits
from anchorage.api.status import FederationStatus, SiloStatus
from anchorage.transport.server_client import ServerError
from anchorage_operator.cache import Key
from anchorage_operator.names import agent_labels
from anchorage_operator.settings import OperatorSettings
from anchorage_operator.upgrades import LEAST_SECONDS, MOST_SECONDS, Turns

NEWER = OperatorSettings.model_validate({"images": {"server": "example.org/s:2", "agent": "example.org/a:2"}})


def report(round_: int, step: str = "train") -> FederationStatus:
    silos = tuple(SiloStatus(name=name, connected=True) for name in "ab")
    return FederationStatus(round=round_, rounds=20, step=step, connected_silos=2, silos=silos)


@pytest.fixture
def training() -> World:
    """A federation in the middle of round 4, whose operator has just become another version."""
    world = World()
    world.federation()
    for part, name in enumerate("ab"):
        world.silo(name, part=part)
    world.settle()
    world.run_server()
    (server,) = world.store.list("pods", "study")
    for name in "ab":
        pod = deepcopy(server)
        pod["metadata"] = {"name": f"{name}-silo-0", "labels": agent_labels("derm", name)}
        pod["status"]["containerStatuses"][0]["name"] = "agent"
        world.store.create("pods", "study", pod)
    world.server.report = report(3)
    world.settle()
    world.reconciler.settings = NEWER
    return world


def images(world: World) -> set[str]:
    stateful_sets = world.store.list("statefulsets", "study")
    return {each["spec"]["template"]["spec"]["containers"][0]["image"] for each in stateful_sets}


OLD, NEW = {"example.org/s:1", "example.org/a:1"}, {"example.org/s:2", "example.org/a:2"}


def test_pods_are_replaced_after_the_next_commit(training: World) -> None:
    training.settle(4)
    assert images(training) == OLD
    assert training.reconciler.turns.waiting() == 1
    assert training.api.writes() == [], "nothing is written again and again while they wait"
    training.server.report = report(4)
    training.look()
    assert images(training) == NEW
    training.look()
    assert training.reconciler.turns.waiting() == 0


def test_a_restarted_operator_waits_for_a_commit_that_it_sees(training: World) -> None:
    """Rounds were committed while it was away: the status is behind the server's first answer, in the middle of round 8."""
    training.server.report = report(7)
    training.start()
    training.reconciler.settings = NEWER
    training.settle(3)
    assert images(training) == OLD
    training.server.report = report(8)
    training.look()
    assert images(training) == NEW


def test_a_server_that_comes_back_tells_of_no_commit(training: World) -> None:
    training.server.fails = ServerError("Timeout", "no answer in time")
    training.look()
    training.server.fails, training.server.report = None, report(6)
    training.settle(2)
    assert images(training) == OLD, "nobody saw when round 6 was committed"


def test_pods_are_replaced_when_no_round_is_open(training: World) -> None:
    training.server.report = report(3, step="")
    training.look()
    assert images(training) == NEW


@pytest.mark.parametrize("limit", [0, 1])
def test_another_federation_has_its_turn_first(training: World, limit: int) -> None:
    turns = training.reconciler.turns = Turns(limit, training.clock)
    assert turns.take(Key("study", "other")) is bool(limit)
    for round_ in range(4, 8):
        training.server.report = report(round_)
        training.look()
        assert images(training) == OLD
    training.clock.advance(MOST_SECONDS)
    training.server.report = report(9)
    training.look()
    assert images(training) == (NEW if limit else OLD)


def test_suspension_is_a_moment_of_one_s_own_choice(training: World) -> None:
    training.reconciler.turns = Turns(0, training.clock)
    training.federation(suspend=True)
    training.look()
    assert images(training) == NEW


def test_an_edit_is_applied_at_once(training: World) -> None:
    training.federation(server={"resources": {"limits": {"memory": "2Gi"}}})
    training.look()
    assert images(training) == {"example.org/s:2", "example.org/a:1"}, "the server restarts anyway, the agents do not"


def test_a_pod_that_does_not_run_well_may_be_mended_by_what_is_new(training: World) -> None:
    pod = training.store.get("pods", "study", "a-silo-0")
    pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    training.store.put("pods", pod, "study")
    training.look()
    stateful_set = training.store.get("statefulsets", "study", "a-silo")
    assert stateful_set["spec"]["template"]["spec"]["containers"][0]["image"] == "example.org/a:2"
    assert images(training) == {"example.org/s:1", "example.org/a:1", "example.org/a:2"}


def test_pods_of_an_operator_without_turns_wait_too(training: World) -> None:
    """It left no note of what the documents asked."""
    for each in training.store.list("statefulsets", "study"):
        del each["metadata"]["annotations"]["anchorage.dev/asked-hash"]
        training.store.put("statefulsets", each, "study")
    training.settle(3)
    assert images(training) == OLD


def test_a_pin_is_kept(training: World) -> None:
    training.reconciler.settings = NEWER.model_copy(update={"pod_overrides": PodOverrideLimits(fields=("image",))})
    training.federation(server={"pod": {"image": "example.org/s:1"}})
    for round_ in (4, 5):
        training.server.report = report(round_)
        training.look()
    assert images(training) == {"example.org/s:1", "example.org/a:2"}


def test_a_turn_ends_when_the_server_answers_again(training: World) -> None:
    turns, other = Turns(1, training.clock), Key("study", "other")
    assert turns.take(DERM) and not turns.take(other)
    turns.note(DERM, waits=False, answers=True)
    assert not turns.take(other), "the old pod may still answer"
    training.clock.advance(LEAST_SECONDS)
    turns.note(DERM, waits=False, answers=False)
    assert not turns.take(other)
    turns.note(DERM, waits=False, answers=True)
    assert turns.take(other)
    assert SETTINGS.upgrades_at_once == 1
