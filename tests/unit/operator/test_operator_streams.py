"""The watch against streams that go silent, close, expire or fail: nothing lost, no hot loop. All of it in fake time."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from fake_api.jumping_loop import JumpingLoop
from fake_api.operator_world import DERM, SPEC
from fake_api.streams import Streams
from kubernetes.client import Configuration

from anchorage.transport.kube.access import ClusterAccess
from anchorage_operator import wiring
from anchorage_operator.cache import Cache
from anchorage_operator.resync import WATCHED
from anchorage_operator.wiring import PAUSE_SECONDS, SILENT_SECONDS, Watch


class Watching:
    """A watch, the API server that it watches, and whom it told of what."""

    def __init__(self, api, url, loop):
        self.api, self.loop = api, loop
        self.cache = Cache(loop.time)
        self.told = []
        self.watch = Watch(ClusterAccess(Configuration(host=url)), self.cache, ("study",), self.told.append)

    async def until(self, probe, seconds=600.0):
        end = self.loop.time() + seconds
        while not probe():
            assert self.loop.time() < end, "not in time"
            await asyncio.sleep(1.0)

    async def opened(self):
        """Wait until a stream of every kind was begun."""
        begun = self.loop.time()
        await self.until(lambda: len({asked.path for asked in self.api.watches(begun)}) == len(WATCHED))

    async def learns(self):
        """See that the watch works: what is written from now on gets into the cache."""
        self.api.apply("federations", "derm", {"spec": SPEC})
        await self.until(lambda: self.cache.federation(DERM) is not None)
        assert DERM in self.told


@pytest.fixture
def play(monkeypatch):
    """Play a scene with a watch that has begun, in a loop whose time jumps."""

    @asynccontextmanager
    async def watching(loop):
        api = Streams()
        world = Watching(api, await api.start(), loop)
        task = asyncio.create_task(world.watch._run())
        try:
            await world.opened()
            yield world
            assert not task.done()
        finally:
            world.watch._end()
            await asyncio.wait((task,))
            await api.stop()

    def play(scene):
        async def played():
            async with watching(asyncio.get_running_loop()) as world:
                await scene(world)

        loop = JumpingLoop()
        monkeypatch.setattr(wiring, "time", SimpleNamespace(monotonic=loop.time))
        loop.set_exception_handler(lambda *_: None)  # kopf leaves the error that ended it in tasks that nobody asks
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(played())

    return play


def test_what_is_written_is_learnt(play):
    async def scene(world):
        await world.learns()

    play(scene)


def test_a_silent_stream_is_begun_again(play):
    async def scene(world):
        world.api.watching = "silent"
        await asyncio.sleep(3.5 * SILENT_SECONDS)
        begun = Counter(asked.path for asked in world.api.watches())
        assert set(begun.values()) == {4}
        world.api.watching = "normal"
        await world.learns()

    play(scene)


@pytest.mark.parametrize("how", ["closing", "gone", "failing"])
def test_streams_that_end_at_once_make_no_hot_loop(play, how):
    async def scene(world):
        world.api.watching = how
        world.api.cut()
        begun, seconds = world.loop.time(), 60.0
        await asyncio.sleep(seconds)
        watches = Counter(asked.path for asked in world.api.watches(begun))
        assert len(watches) == len(WATCHED)
        assert max(watches.values()) <= seconds / PAUSE_SECONDS + 1
        asked = [asked for asked in world.api.asked if asked.time >= begun]
        assert len(asked) <= 3 * len(WATCHED) * (seconds / PAUSE_SECONDS + 1)
        world.api.watching = "normal"
        await world.learns()

    play(scene)


def test_old_events_that_were_compacted_are_made_up_for(play):
    async def scene(world):
        world.api.watching = "silent"
        world.api.cut()
        await world.opened()
        world.api.apply("federations", "derm", {"spec": SPEC})
        world.api.store.compact()
        world.api.watching = "normal"
        await world.until(lambda: world.cache.federation(DERM) is not None)

    play(scene)


def test_other_namespaces_are_watched_from_now_on(play):
    async def scene(world):
        world.watch.watch_over(())
        begun = world.loop.time()
        await asyncio.sleep(3.0 * SILENT_SECONDS)
        assert world.api.watches(begun + 1.0) == [] and world.watch.scopes == ()
        world.watch.watch_over(("study",))
        await world.opened()
        await world.learns()

    play(scene)
