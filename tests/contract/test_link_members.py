"""Members that are taken out, and a server whose own disk fails, over every link."""

import threading

import pytest
from link_world import World, announcement_of, model_of, order_of, train_task

from anchorage.api.errors import AnchorageError, storage, transfer
from anchorage.transport.messages import Announced, Arrived, Assigned, Broken, Joined, Left, MembersChanged, Permit
from anchorage.transport.tensors.spool import MemorySpool

MODEL, UPDATE = model_of(3.3), model_of(3.3, seed=1)


class FailingSpool(MemorySpool):
    """A spool on a disk that is full until `room`."""

    room = False

    def write(self, index: int, data: bytes) -> None:
        if not self.room:
            raise AnchorageError(storage.DISK_FULL, "spool: no space left on device")
        super().write(index, data)


def permitted(world: World, sink: MemorySpool):
    """Return a silo that may upload into `sink`, and its task."""
    silo, task = world.connect("a"), train_task(MODEL)
    world.link.offer(MODEL)
    world.link.assign("a", task)
    assert order_of(silo) == Assigned(task)
    silo.announce(announcement_of(task, UPDATE))
    world.events_until(Announced)
    world.link.permit("a", task.id, sink)
    assert order_of(silo) == Permit(task.id)
    return silo, task


def test_who_is_taken_out_hears_so_and_uploads_nothing_more(world: World) -> None:
    sink = MemorySpool(UPDATE.manifest)
    silo, task = permitted(world, sink)
    world.link.change_members(["b", "c"], "it is no member of the federation any more")
    events = {type(world.event()): None for _ in range(2)}
    assert events.keys() == {Left, MembersChanged}
    with pytest.raises(AnchorageError) as caught:
        silo.next_order(20)
    assert caught.value.failure is transfer.SILO_NOT_ADMITTED
    with pytest.raises(AnchorageError):
        silo.push(task.id, UPDATE)
    assert len(sink.missing()) == 4


def test_who_stays_is_not_disturbed_and_who_comes_back_has_nothing_left(world: World) -> None:
    sink = MemorySpool(UPDATE.manifest)
    silo, task = permitted(world, sink)
    other = world.connect("b")
    assert isinstance(world.events_until(Joined), Joined)
    world.link.assign("b", task)
    assert order_of(other) == Assigned(task)
    world.link.change_members(["a"], "gone")
    world.events_until(MembersChanged)
    silo.push(task.id, UPDATE)
    assert world.events_until(Arrived) == Arrived("a", task.id)
    world.link.change_members(["a", "b"], "")
    second = world.connect("b")
    world.events_until(Joined)
    assert second.next_order(0.2) is None


def test_a_full_disk_at_the_server_is_the_servers_failure(world: World) -> None:
    sink = FailingSpool(UPDATE.manifest)
    silo, task = permitted(world, sink)
    pushing = threading.Thread(target=lambda: _push(silo, task.id))
    pushing.start()
    broken = world.events_until(Broken)
    assert broken.error.failure is storage.DISK_FULL
    sink.room = True
    pushing.join(120)
    assert not pushing.is_alive()


def _push(silo, task: str) -> None:
    try:
        silo.push(task, UPDATE)
    except AnchorageError as error:
        assert error.failure is storage.DISK_FULL  # within one process there is nobody to shield from it
