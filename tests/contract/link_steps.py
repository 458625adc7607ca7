"""What a silo and the server do before the step that is tested."""

import pytest
from link_world import PROFILE, World, announcement_of, model_of, order_of, train_task

from anchorage.api.errors import AnchorageError
from anchorage.transport.messages import (
    Announced,
    Assigned,
    Joined,
    Permit,
)
from anchorage.transport.tensors.spool import MemorySpool

MODEL, OTHER = model_of(2.5), model_of(2.5, seed=1)


def content(spool: MemorySpool) -> bytes:
    return b"".join(spool.chunk(i) for i in range(len(spool.manifest.digests)))


def joined(world: World, silo: str = "a"):
    link = world.connect(silo)
    assert link.welcome() == '{"federation":"derm"}'
    assert world.event() == Joined(silo, PROFILE)
    return link


def at_work(world: World, silo: str = "a", model=MODEL, number: int = 1):
    """Connect a silo and give it a train task."""
    link, task = joined(world, silo), train_task(model, number)
    world.link.offer(model)
    world.link.assign(silo, task)
    assert order_of(link) == Assigned(task)
    return link, task


def uploading(world: World, silo: str = "a"):
    """Bring a silo to where it may upload `OTHER`."""
    link, task = at_work(world, silo)
    link.announce(announcement_of(task, OTHER))
    assert isinstance(world.event(), Announced)
    sink = MemorySpool(OTHER.manifest)
    world.link.permit(silo, task.id, sink)
    assert order_of(link) == Permit(task.id)
    return link, task, sink


def refused(failure, call, *arguments) -> None:
    with pytest.raises(AnchorageError) as caught:
        call(*arguments)
    assert caught.value.failure is failure, str(caught.value)
