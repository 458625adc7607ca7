"""Events are posted once, counted when they repeat, and never too long."""

import pytest
from fake_api.clock import Clock
from fake_api.memory import StoreApi

from anchorage.transport.kube.client import ApiError
from anchorage_operator.events import EventPoster
from anchorage_operator.planned import Event

ABOUT = {"apiVersion": "anchorage.dev/v1alpha1", "kind": "Federation", "name": "derm", "namespace": "ns", "uid": "u"}


@pytest.fixture
def clock():
    return Clock(1_800_000_000.0)


@pytest.fixture
def api():
    return StoreApi()


@pytest.fixture
def poster(api, clock):
    return EventPoster(api, clock)


def posted(api):
    return api.store.list("events", "ns")


def test_an_event_tells_what_happened_to_whom(api, poster):
    poster.post(Event(ABOUT, "Warning", "QuorumLost", "silos a and b are away"))
    (event,) = posted(api)
    assert event["involvedObject"] == ABOUT
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "QuorumLost", "silos a and b are away")
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2027-01-15T08:00:00Z"
    assert event["source"] == {"component": "anchorage-operator"}


def test_a_message_is_cut_at_1024_bytes_between_characters(api, poster):
    poster.post(Event(ABOUT, "Normal", "Long", "x" * 1023 + "é" * 10))
    (event,) = posted(api)
    assert event["message"] == "x" * 1023


def test_a_repeated_event_is_counted_and_written_at_most_once_a_minute(api, poster, clock):
    event = Event(ABOUT, "Warning", "QuorumLost", "silos a and b are away")
    for _ in range(5):
        poster.post(event)
        clock.advance(10.0)
    assert len(api.writes()) == 1
    clock.advance(20.0)
    poster.post(event)
    (event_posted,) = posted(api)
    assert (event_posted["count"], len(api.writes())) == (6, 2)


def test_another_message_is_another_event(api, poster):
    poster.post(Event(ABOUT, "Warning", "QuorumLost", "silo a is away"))
    poster.post(Event(ABOUT, "Warning", "QuorumLost", "silo b is away"))
    assert len(posted(api)) == 2


def test_an_event_that_the_api_server_forgot_is_posted_again(api, poster, clock):
    event = Event(ABOUT, "Normal", "Ready", "")
    poster.post(event)
    api.store.delete("events", "ns", posted(api)[0]["metadata"]["name"])
    clock.advance(100.0)
    poster.post(event)
    assert [event_posted["count"] for event_posted in posted(api)] == [1]


def test_a_refused_event_is_tried_again(api, poster):
    def refuse(*call):
        raise ApiError(500, "InternalError", "no")

    api.refuse = refuse
    with pytest.raises(ApiError):
        poster.post(Event(ABOUT, "Normal", "Ready", ""))
    api.refuse = lambda *call: None
    poster.post(Event(ABOUT, "Normal", "Ready", ""))
    assert len(posted(api)) == 1
