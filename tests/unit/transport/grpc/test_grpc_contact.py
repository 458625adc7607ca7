import pytest

from anchorage.transport.grpc.contact import PART, Contact
from anchorage.transport.liveness import LivenessRegistry


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def liveness(time: Time) -> LivenessRegistry:
    return LivenessRegistry(time)


@pytest.fixture
def contact(time: Time, liveness: LivenessRegistry) -> Contact:
    return Contact(liveness, time)


def test_a_session_comes_and_goes(contact: Contact, time: Time) -> None:
    assert (contact.connected, contact.heard, contact.lost) == (False, 0.0, "")
    contact.record_closed("refused")
    assert (contact.connected, contact.heard, contact.lost) == (False, 0.0, "refused")
    contact.record_opened()
    time.now = 150.0
    assert (contact.connected, contact.heard, contact.lost) == (True, 150.0, "")
    contact.record_closed("ended")
    time.now = 200.0
    contact.record_closed("no route")
    assert (contact.connected, contact.heard, contact.lost) == (False, 150.0, "no route")


def test_an_attempt_must_end_but_a_session_need_not(contact: Contact, liveness: LivenessRegistry, time: Time) -> None:
    contact.trying(60)
    time.now = 161.0
    assert liveness.describe_overdue() == f"{PART} is overdue by 1 s"
    contact.trying(60)
    contact.record_opened()
    time.now = 1e6
    assert liveness.describe_overdue() == ""


@pytest.mark.parametrize("planned", [True, False])
def test_an_end_that_was_not_planned_shows(
    contact: Contact, liveness: LivenessRegistry, time: Time, planned: bool
) -> None:
    contact.trying(60)
    contact.record_ended(planned=planned)
    time.now += 1
    assert bool(liveness.describe_overdue()) is not planned


def test_bytes(contact: Contact) -> None:
    contact.count_received(3)
    contact.count_received(4)
    contact.count_sent(5)
    assert contact.moved == (7, 5)
