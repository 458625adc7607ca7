"""The queue towards the engine stays bounded and keeps what counts."""

from hypothesis import given
from hypothesis import strategies as st

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import DISK_FULL
from anchorage.transport.events import EventQueue
from anchorage.transport.messages import (
    Arrived,
    Broken,
    Joined,
    Left,
    MembersChanged,
    Profile,
    Progressed,
    StopRequested,
)

PROFILE = Profile("None", 1, "0")


def drained(queue: EventQueue) -> list:
    events = []
    while (event := queue.pop()) is not None:
        events.append(event)
    return events


def test_events_keep_their_order_and_progress_its_newest_state() -> None:
    queue = EventQueue()
    for event in (Joined("a", PROFILE), Progressed("a", "t", 1, 9), Arrived("b", "t"), Progressed("a", "t", 5, 9)):
        queue.post(event)
    assert drained(queue) == [Joined("a", PROFILE), Progressed("a", "t", 5, 9), Arrived("b", "t")]


def test_a_stop_is_asked_for_once() -> None:
    queue = EventQueue()
    queue.post(StopRequested("SIGINT"))
    queue.post(StopRequested("SIGTERM"))
    assert drained(queue) == [StopRequested("SIGTERM")]


def test_members_come_last_and_nobody_who_was_taken_out_is_forgotten() -> None:
    queue = EventQueue()
    for event in (
        MembersChanged(("a",), frozenset("b")),
        Joined("b", PROFILE),
        MembersChanged(("a", "b")),
        MembersChanged(("b",), frozenset("a")),
    ):
        queue.post(event)
    assert drained(queue) == [Joined("b", PROFILE), MembersChanged(("b",), frozenset("ab"))]


def test_the_first_thing_that_broke_is_told() -> None:
    queue, errors = EventQueue(), [AnchorageError(DISK_FULL, text) for text in ("first", "second")]
    for error in errors:
        queue.post(Broken(error))
    assert drained(queue) == [Broken(errors[0])]


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1))
def test_presence_stays_short_and_ends_as_it_is(steps: list[tuple[bool, bool]]) -> None:
    queue, presence = EventQueue(), None
    for joins, reads in steps:
        presence = Joined("a", PROFILE) if joins else Left("a", "cut")
        queue.post(presence)
        assert len(queue) <= 2
        if reads:
            last = queue.pop()
            assert queue or last == presence
    remaining = drained(queue)
    assert not remaining or remaining[-1] == presence
