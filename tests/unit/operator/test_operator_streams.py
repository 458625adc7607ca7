"""The watch against streams that go silent, close, expire or fail: nothing lost, no hot loop.

First in fake time over an API that the test plays, then with threads over HTTP.
"""

import queue
import time
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import pytest
from fake_api.clock import Clock
from fake_api.memory import plural
from fake_api.operator_scene import TurningEvent
from fake_api.operator_world import DERM, SPEC
from fake_api.server import FakeApi
from fake_api.store import Store
from kubernetes.client import Configuration

from anchorage.transport.kube.access import ClusterAccess
from anchorage.transport.kube.client import ApiError, EventStream, KubeClient
from anchorage_operator import watch
from anchorage_operator.cache import Cache
from anchorage_operator.resync import WATCHED
from anchorage_operator.watch import LONGEST_PAUSE_SECONDS, PAUSE_SECONDS, SILENT_SECONDS, STREAM_SECONDS, Stream, Watch

PATIENCE_SECONDS = 60.0
BOOKMARK_SECONDS = 60.0
KINDS = len(WATCHED)
GONE = ApiError(410, "Expired", "too old")


class Streams:
    """Lists and watches of one kind; `behaviour` is what happens to streams: normal, or the name of a method here."""

    def __init__(self, clock):
        self.clock, self.store = clock, Store()
        self.behaviour, self.lists, self.watches = "normal", [], []
        self.oldest, self.latest = 0, "1000000"

    def latest_version(self, kind, scope):
        return self.latest

    def pages(self, kind, scope, labels):
        self.lists.append(self.clock.now)
        if self.behaviour == "unlistable":
            raise ApiError(500, "InternalError", "no")
        for body in self.store.list(plural(kind), scope):
            yield "7", iter([body])
        yield self.store.version(), iter(())

    def watch(self, kind, scope, labels, version, *, seconds, silent_seconds):
        self.watches.append(SimpleNamespace(time=self.clock.now, version=version))
        if self.behaviour == "refused":
            raise ApiError(403, "Forbidden", "no")
        if self.behaviour == "throttled":
            raise ApiError(429, "TooManyRequests", "slow down", 20.0)
        play = getattr(self, f"_{self.behaviour}")
        return EventStream(play(int(version), seconds, silent_seconds), lambda: None)

    def since(self, begun):
        return [each for each in self.watches if each.time >= begun]

    def _normal(self, version, seconds, silent_seconds):
        end = self.clock.now + seconds
        if version < self.store.oldest:
            raise GONE
        while self.clock.now < end:
            for at, _, _, change, body in self.store.log:
                if at > version:
                    version = at
                    yield change, body
            self.clock.advance(BOOKMARK_SECONDS)
            version = int(self.store.version())
            yield "BOOKMARK", {"metadata": {"resourceVersion": str(version)}}

    def _silent(self, version, seconds, silent_seconds):
        self.clock.advance(silent_seconds)
        raise ApiError(0, "Unreachable", "timed out")
        yield

    def _closing(self, *_):
        return iter(())
        yield

    def _failing(self, *_):
        raise ApiError(500, "InternalError", "no")
        yield

    def _gone(self, *_):
        raise GONE
        yield

    def _ahead(self, version, seconds, silent_seconds):
        if version > int(self.store.version()):
            raise ApiError(504, "Timeout", f"Too large resource version: {version}")
        return self._normal(version, seconds, silent_seconds)


class World:
    def __init__(self):
        self.clock = Clock()
        self.api, self.received = Streams(self.clock), []
        callbacks = {
            "before_relist": lambda: self.callbacks_called.append("before"),
            "after_relist": lambda: self.callbacks_called.append("after"),
        }
        self.callbacks_called = []
        self.stream = Stream(self.api, "Federation", "study", self.take_in, clock=self.clock, **callbacks)
        self.stream.ended = TurningEvent()
        self.stream.ended.clock = self.clock

    def take_in(self, change, body):
        self.received.append((change, body["metadata"]["name"]))

    def play(self, seconds, behaviour="normal"):
        """Let the stream run for a while; return when that began."""
        begun, self.api.behaviour = self.clock.now, behaviour
        self.stream.ended.end = begun + seconds
        self.stream.run()
        return begun

    def write(self, name):
        self.api.store.apply("federations", "study", name, {"metadata": {"name": name}, "spec": SPEC}, "user")

    def learns(self):
        """See that the stream works: what is written from now on is received."""
        self.write("later")
        self.play(4 * LONGEST_PAUSE_SECONDS)
        assert "later" in {name for _, name in self.received}


@pytest.fixture
def world():
    return World()


def test_what_exists_is_listed_once_and_what_changes_then_is_received(world):
    world.write("derm")
    world.play(STREAM_SECONDS)
    world.write("nevi")
    world.api.store.delete("federations", "study", "derm")
    world.play(3 * STREAM_SECONDS)
    assert world.received == [("ADDED", "derm"), ("ADDED", "nevi"), ("DELETED", "derm")]
    assert len(world.api.lists) == 1


def test_a_stream_goes_on_after_the_last_bookmark(world):
    world.play(STREAM_SECONDS)
    first = int(world.api.watches[0].version)
    world.play(STREAM_SECONDS)
    assert int(world.api.watches[1].version) == first + STREAM_SECONDS / BOOKMARK_SECONDS


def test_a_silent_stream_is_begun_again(world):
    world.write("derm")
    world.play(3.0 * SILENT_SECONDS, "silent")
    assert len(world.api.watches) == 3 and len(world.api.lists) == 1
    assert len({each.version for each in world.api.watches}) == 1
    world.learns()


@pytest.mark.parametrize("behaviour", ["closing", "failing", "gone", "refused", "unlistable"])
def test_streams_that_end_at_once_make_no_hot_loop(world, behaviour):
    begun, seconds = world.clock.now, 600.0
    world.play(seconds, behaviour)
    asked = world.api.lists if behaviour in ("unlistable", "gone") else [each.time for each in world.api.watches]
    growing = 6  # 1, 2, 4, 8, 16 and 30 seconds
    assert seconds / (1.5 * LONGEST_PAUSE_SECONDS) < len(asked) <= growing + seconds / LONGEST_PAUSE_SECONDS
    assert min(after - before for before, after in pairwise(asked)) >= PAUSE_SECONDS
    assert len(world.api.lists) <= len(asked) and begun == asked[0]
    world.learns()


def test_a_stream_that_lasts_ends_the_growth_of_pauses(world):
    world.play(300.0, "closing")
    world.play(STREAM_SECONDS)
    begun = world.play(10.0, "closing")
    assert len(world.api.since(begun)) >= 3


def test_a_wish_to_wait_is_kept(world):
    world.play(60.0, "throttled")
    times = [each.time for each in world.api.watches]
    assert len(times) > 1 and all(after - before >= 20.0 for before, after in pairwise(times))


def test_events_that_were_compacted_are_made_up_for_by_a_list(world):
    world.play(STREAM_SECONDS)
    world.write("derm")
    world.api.store.compact()
    world.play(STREAM_SECONDS)
    assert world.received == [("ADDED", "derm")] and len(world.api.lists) == 2


@pytest.mark.parametrize("behaviour", ["failing", "silent", "refused"])
def test_an_api_server_that_went_back_is_read_anew(world, behaviour, caplog):
    world.write("derm")
    world.play(STREAM_SECONDS)
    world.play(2 * SILENT_SECONDS, behaviour)
    assert (len(world.api.lists), world.callbacks_called) == (1, [])
    world.api.latest = "12"  # a backup of before
    world.play(STREAM_SECONDS)
    assert (len(world.api.lists), world.callbacks_called) == (2, ["before", "after"])
    assert world.received[-1] == ("ADDED", "derm") and "as after a restore" in caplog.text
    world.learns()


class OddError(Exception):
    """Nothing that anybody expects."""


def test_an_object_that_cannot_be_handled_stops_no_stream(world, caplog):
    defects = []
    world.stream.defect = lambda: defects.append(world.clock.now)

    def fail(change, body):
        world.take_in(change, body)
        if body["metadata"]["name"] == "derm":
            raise OddError

    world.stream.take_in = fail
    world.play(1.0)
    world.write("derm")
    world.learns()
    assert [name for _, name in world.received] == ["derm", "later"]
    assert "internal error of the operator" in caplog.text and len(defects) == 1


def test_nothing_is_received_after_the_end(world):
    world.write("derm")
    world.stream.take_in = lambda *event: world.take_in(*event) or world.stream.end()
    world.write("nevi")
    world.play(STREAM_SECONDS)
    assert world.received == [("ADDED", "derm")]


class Watching:
    """A watch over HTTP, and what it tells."""

    def __init__(self, api, **options):
        self.api, self.woken, self.asked = api, queue.Queue(), queue.Queue()
        api.refuse = lambda asked: self.asked.put(asked) if asked.watch else None
        self.client = KubeClient(ClusterAccess(Configuration(host=api.url)), field_manager="tester")
        self.cache = Cache(Clock())
        self.watch = Watch(self.client, self.cache, self.woken.put, **{"pause_seconds": 0.01, **options})

    def opened(self, number=KINDS):
        """Wait until as many streams were asked for; return their paths."""
        return [self.asked.get(timeout=PATIENCE_SECONDS).path for _ in range(number)]

    def apply(self, name="derm", namespace="study"):
        self.api.store.apply("federations", namespace, name, {"metadata": {"name": name}, "spec": SPEC}, "user")

    def woke(self):
        return self.woken.get(timeout=PATIENCE_SECONDS)

    def threads(self):
        return [thread for _, thread in self.watch._threads.values()]


@pytest.fixture
def watching(request):
    api = FakeApi().start()
    world = Watching(api, **getattr(request, "param", {}))
    world.watch.watch_over(("study",))
    yield world
    world.watch.stop()
    api.stop()
    world.client.close()


def test_the_cache_has_what_is_written_and_not_what_was_deleted(watching):
    watching.apply()
    assert watching.woke() == DERM and watching.cache.federation(DERM)["spec"] == SPEC
    watching.opened()
    watching.api.store.delete("federations", "study", "derm")
    assert watching.woke() == DERM and watching.cache.federation(DERM) is None


@pytest.mark.parametrize("watching", [{"silent_seconds": 0.1}], indirect=True)
def test_silence_is_noticed(watching):
    watching.api.watching = "silent"
    asked = Counter()
    while len(asked) < KINDS or min(asked.values()) < 3:
        asked.update(watching.opened(1))
    watching.api.watching = "normal"
    watching.apply()
    assert watching.woke() == DERM and watching.watch.alive()


def test_streams_that_were_cut_and_forgotten_by_the_server_go_on(watching):
    watching.opened()
    watching.api.watching = "silent"
    watching.api.cut_watches()
    watching.opened()
    watching.apply()
    watching.api.store.compact()
    watching.api.watching = "normal"
    assert watching.woke() == DERM


def test_the_end_does_not_wait_for_events(watching):
    watching.api.watching = "silent"
    watching.opened()
    threads = watching.threads()
    watching.watch.stop()
    assert len(threads) == KINDS and not any(thread.is_alive() for thread in threads)
    watching.watch.watch_over(("study",))
    assert watching.threads() == []


def test_other_namespaces_are_watched_from_now_on(watching):
    watching.opened()
    threads = watching.threads()
    watching.watch.watch_over(("other",))
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    assert all("/namespaces/other/" in path for path in watching.opened())
    watching.apply(namespace="study")
    watching.apply("nevi", "other")
    assert watching.woke() == ("other", "nevi") and watching.cache.federation(DERM) is None


def test_streams_of_a_namespace_that_stays_go_on(watching):
    watching.opened()
    threads = watching.threads()
    watching.watch.watch_over(("study", "other"))
    watching.opened()
    assert set(threads) < set(watching.threads()) and all(thread.is_alive() for thread in threads)
    assert watching.watch.alive()


def test_a_stream_that_is_not_heard_of_is_no_watch(watching, monkeypatch):
    watching.opened()
    assert watching.watch.alive()
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 2 * (SILENT_SECONDS + LONGEST_PAUSE_SECONDS))
    with monkeypatch.context() as patched:
        patched.setattr(watch, "time", later)
        assert not watching.watch.alive()
    assert watching.watch.alive()


def test_a_thread_that_ended_is_no_watch(watching, monkeypatch):
    monkeypatch.setattr(Stream, "run", lambda stream: None)
    watching.watch.watch_over(("other",))
    for thread in watching.threads():
        thread.join(PATIENCE_SECONDS)
    assert not watching.watch.alive()
