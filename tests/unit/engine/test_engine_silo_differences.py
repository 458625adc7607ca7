"""An update goes up as differences from the task's model, or whole where the silo has that model no more."""

from dataclasses import replace

import numpy as np
from silo_fakes import LAYOUT, FakeLearner, FakeLink, model_of, train_task

from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.silo import SiloWorker
from anchorage.transport.messages import Assigned, Permit, TaskKind, UpdateFormat
from anchorage.transport.tensors.chunks import Manifest


def test_an_update_travels_as_differences_where_the_model_is_still_there() -> None:
    one, two = model_of(1.0), model_of(2.0)
    link, buffers = FakeLink(one, two), MemoryBuffers()
    task = replace(train_task(one), update_format=UpdateFormat.DIFFERENCES)
    for worker in (SiloWorker(link, FakeLearner(), buffers), SiloWorker(link, FakeLearner(), buffers)):
        worker.handle(Assigned(task))
        worker.handle(Permit(task.id))
        assert len(link.updates[task.id]) < 10_000 < LAYOUT.nbytes
    buffers.model(TaskKind.TRAIN).receive(two.manifest)  # as for the next task
    worker.handle(Permit(task.id))
    update_bytes = np.frombuffer(link.updates[task.id], np.uint8)
    assert Manifest.of(LAYOUT.digest, update_bytes) == link.announcements[task.id].update
