"""A server whose volume lacks committed rounds: it waits, and nobody trains over them, until somebody says so or the volume is back."""

import pytest
from fake_api.operator_world import World

from anchorage.api.status import CheckpointStatus, FederationStatus, SiloStatus
from anchorage_operator.secret_facts import encode_data


@pytest.fixture
def world():
    """A federation that has committed 12 of 20 rounds."""
    world = World()
    world.federation()
    for part, name in enumerate(("a", "b")):
        world.silo(name, part=part)
    world.settle()
    for name in ("a", "b"):  # they have enrolled
        world.store.patch("secrets", "study", f"{name}-enrolment", {"data": encode_data({"key": name * 64})})
    world.start()
    world.run_server()
    committed(world, 12)
    world.settle()
    assert [member.name for member in world.server.members_known] == ["a", "b"]
    return world


def committed(world, number, *connected):
    silos = tuple(SiloStatus(name=name, connected=True) for name in connected or ("a", "b"))
    checkpoint = CheckpointStatus(round=number, path=f"/var/lib/anchorage/{number}")
    world.server.report = FederationStatus(
        rounds=20, round=number, silos=silos, connected_silos=len(silos), last_checkpoint=checkpoint
    )


def status(world):
    return world.store.get("federations", "study", "derm")["status"]


def message(world, kind="Ready"):
    return next(each["message"] for each in status(world)["conditions"] if each["type"] == kind)


@pytest.mark.parametrize(("lost", "words"), [(0, "the volume is empty"), (7, "the volume has round 7 only")])
def test_a_volume_that_lacks_committed_rounds_stops_training_and_says_so(world, lost, words):
    committed(world, lost)
    world.server.members_known = ()  # as on an empty volume
    world.settle(4)
    for kind in ("ServerAvailable", "QuorumMet", "Ready"):
        assert world.condition("federations", "derm", kind) == ("False", "StateLost")
    assert message(world).startswith(f"round 12 was committed, {words}; ")
    assert world.server.members_known == ()
    assert (status(world)["round"], status(world)["lastCheckpoint"]["round"]) == (12, 12)
    assert world.condition("silos", "a", "Connected") == ("False", "StateLost")
    events = [event for event in world.store.list("events", "study") if event["reason"] == "StateLost"]
    assert [event["involvedObject"]["kind"] for event in events] == ["Federation"]


def test_silos_that_an_older_volume_knows_are_put_out(world):
    committed(world, 7)
    world.settle(2)
    assert world.server.members_known == ()


def test_a_new_operator_keeps_it(world):
    committed(world, 0)
    world.settle(2)
    world.start()
    world.settle(4)
    assert world.condition("federations", "derm", "Ready") == ("False", "StateLost")
    assert world.api.writes() == []


def test_training_goes_on_when_the_volume_is_back(world):
    committed(world, 0)
    world.settle(2)
    committed(world, 12)
    world.settle(3)
    assert world.condition("federations", "derm", "Ready") == ("True", "Training")
    assert [member.name for member in world.server.members_known] == ["a", "b"]


def test_training_goes_on_from_what_there_is_when_somebody_says_that_it_is_lost(world):
    committed(world, 0)
    world.settle(2)
    annotate(world, "11")
    world.settle(2)
    assert world.condition("federations", "derm", "Ready") == ("False", "StateLost"), "that was another loss"
    annotate(world, "12")
    world.settle(3)
    assert world.condition("federations", "derm", "Ready") == ("True", "Training")
    assert status(world)["round"] == 0
    assert [member.name for member in world.server.members_known] == ["a", "b"]
    committed(world, 15)
    world.settle(2)
    committed(world, 3)
    world.settle(2)
    assert world.condition("federations", "derm", "Ready") == ("False", "StateLost"), "a second loss"


def annotate(world, value):
    change = {"metadata": {"annotations": {"anchorage.dev/state-lost": value}}}
    world.store.patch("federations", "study", "derm", change)


def test_a_server_that_went_back_by_one_round_itself_lost_no_volume(world):
    committed(world, 11)
    world.settle(3)
    assert world.condition("federations", "derm", "Ready") == ("True", "Training")
    assert status(world)["round"] == 11


def test_a_finished_federation_stays_finished_without_its_volume(world):
    committed(world, 20)
    report = world.server.report.model_dump()
    condition = {"type": "Succeeded", "status": "True", "reason": "AllRoundsCommitted"}
    report["conditions"] = ({**condition, "last_transition_time": "2027-01-15T08:00:00Z"},)
    world.server.report = FederationStatus.model_validate(report)
    world.settle(3)
    committed(world, 0)
    world.settle(3)
    assert world.condition("federations", "derm", "Succeeded")[0] == "True"
    assert world.condition("federations", "derm", "Ready") == ("False", "StateLost")
