"""What the server says of a model or an update while it travels."""

import threading
from typing import Any

import pytest
from link_world import World, announcement_of, model_of, order_of, train_task

from anchorage.transport.messages import Arrived, Assigned, Joined, Left, Permit
from anchorage.transport.pace import Travel
from anchorage.transport.tensors.chunks import CHUNK_BYTES
from anchorage.transport.tensors.spool import MemorySpool

MODEL, UPDATE = model_of(8), model_of(8, seed=1)


class TickingClock:
    """Time that goes on by two seconds for every chunk that is read or written."""

    def __init__(self) -> None:
        self.time = 1_000_000.0

    def now(self) -> float:
        return self.time


class Source:
    """A model that takes its time to be read, its last chunk until it is opened: the line alone holds as many as are left."""

    def __init__(self, clock: TickingClock, opened: threading.Event) -> None:
        self.manifest, self._clock, self._opened = MODEL.manifest, clock, opened

    def chunk(self, index: int) -> bytes:
        if index == 7:
            assert self._opened.wait(120)
        self._clock.time += 2.0
        return MODEL.chunk(index)


class Sink(MemorySpool):
    """A sink that stops at its fifth chunk until it is opened."""

    def __init__(self, manifest: Any, clock: TickingClock | None = None) -> None:
        super().__init__(manifest)
        self._clock = clock
        self.reached, self.opened = threading.Event(), threading.Event()

    def write(self, index: int, data: bytes) -> None:
        if index == 4:
            self.reached.set()
            assert self.opened.wait(120)
        elif self._clock is not None:
            self._clock.time += 2.0
        super().write(index, data)


@pytest.mark.parametrize("way", ["down", "up"])
def test_a_transfer_under_way_has_a_rate_and_an_end(serve: Any, dial: Any, way: str) -> None:
    clock = TickingClock()
    link, port = serve(clock=clock)
    world, task = World(link, lambda silo: dial(port, silo)), train_task(MODEL)
    silo = world.connect("a")
    assert isinstance(world.event(), Joined) and link.travels() == {"a": Travel()}
    sink = Sink(MODEL.manifest) if way == "down" else Sink(UPDATE.manifest, clock)
    link.offer(Source(clock, sink.opened))
    link.assign("a", task)
    assert order_of(silo) == Assigned(task)
    if way == "up":
        silo.announce(announcement_of(task, UPDATE))
        link.permit("a", task.id, sink)
        assert order_of(silo) == Permit(task.id)
    work = (silo.push, (task.id, UPDATE)) if way == "up" else (silo.fetch, (task.model, sink))
    thread = threading.Thread(target=work[0], args=work[1])
    thread.start()
    assert sink.reached.wait(120)
    travel = link.travels()["a"]
    assert travel.rate == pytest.approx(CHUNK_BYTES / 2, rel=0.5)
    assert travel.seconds_left is not None and 0 <= travel.seconds_left <= 12
    if way == "up":  # four chunks have come, in eight seconds, and four are left
        assert travel.rate == pytest.approx(CHUNK_BYTES / 2, rel=0.1)
        assert travel.seconds_left == pytest.approx(8, rel=0.1)
    sink.opened.set()
    thread.join(120)
    assert not sink.missing()
    if way == "up":
        assert world.events_until(Arrived) == Arrived("a", task.id)
        assert link.travels() == {"a": Travel()}
    silo.close()
    world.events_until(Left)
    assert link.travels() == {}
