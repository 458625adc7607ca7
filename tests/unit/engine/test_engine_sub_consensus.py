"""RSCFed's rounds: a silo trains as often as groups drew it, and groups decide what its models weigh (methods reference, 6.10)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from classification_of import classes as of_classes
from scripted_silos import LAYOUT, ScriptedLink, ScriptedSilo, model_of, set_scene, value_of

from anchorage.engine.repeating import RepeatingLearner
from anchorage.pieces.weighting.sub_consensus import SubConsensus
from anchorage.transport.messages import Announcement, Task, TaskKind
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.model import ModelBytes

SLOT = SubConsensus(groups=2, group_size=2, scale="0", labelled_scale="0")


class BrokenSilo(ScriptedSilo):
    def update_for(self, model: ModelBytes) -> ModelBytes:
        return ModelBytes.from_arrays(LAYOUT, {"w": np.full(4, np.nan, np.float32), "steps": np.array(1)})


@dataclass(frozen=True)
class Several:
    """Models one behind the other (`ChunkSource`)."""

    models: tuple[ModelBytes, ...]

    @property
    def manifest(self) -> Manifest:
        return Manifest.of(LAYOUT.digest, np.frombuffer(self.chunk(0), np.uint8))

    def chunk(self, index: int) -> bytes:
        return b"".join(model.chunk(index) for model in self.models)


class DiligentSilo(ScriptedSilo):
    """Trains as often as it is told; the next model is another one."""

    link: ScriptedLink

    def update_for(self, model: ModelBytes) -> Several:
        task = self.link.tasks[self.name][-1]
        start = value_of(model) + self.adds
        return Several(tuple(model_of(start * 100**number) for number in range(task.repetitions)))


def test_only_drawn_silos_train():
    silos = [ScriptedSilo(name) for name in "abcdefgh"]
    s = set_scene(*silos, weigher=SLOT.weigher(of_classes(2)), rounds=3, min_silos=2)
    s.engine.run()
    records = s.store.history()[1:]
    assert all(2 <= len(record.silos) <= 4 for record in records)
    assert len({tuple(part.name for part in record.silos) for record in records}) > 1
    for record in records:
        assert sum(part.weight for part in record.silos) == pytest.approx(1)
        assert {part.weight for part in record.silos} <= {0.25, 0.5, 0.75, 1.0}
    trained = [task for silo in silos for task in silo.trained]
    assert len(trained) == sum(len(record.silos) for record in records)


def test_who_two_groups_drew_trains_twice_and_each_model_belongs_to_its_group():
    silos = [DiligentSilo("a", adds=1), DiligentSilo("b", adds=2)]
    s = set_scene(*silos, weigher=SLOT.weigher(of_classes(2)), rounds=1, min_silos=2)
    for silo in silos:
        silo.link = s.link
    s.engine.run()
    assert [s.link.tasks[name][0].repetitions for name in "ab"] == [2, 2]
    checkpoint = s.store.latest()
    assert value_of(checkpoint.model) == pytest.approx(((1 + 2) / 2 + (100 + 200) / 2) / 2)
    assert [part.weight for part in checkpoint.record.silos] == [0.5, 0.5]
    assert checkpoint.record.bytes_up == 4 * LAYOUT.nbytes


@pytest.mark.parametrize(("times", "state"), [(2, "Counted"), (3, "Failed")])
def test_no_update_holds_more_models_than_there_are_groups(times, state):
    class Eager(ScriptedSilo):
        def update_for(self, model: ModelBytes) -> Several:
            return Several((model_of(5.0),) * times)

    s = set_scene(Eager("a"), ScriptedSilo("b"), weigher=SLOT.weigher(of_classes(2)), rounds=1, min_silos=1)
    assert [part.state for part in s.engine.run().silos] == [state, "Counted"]


def test_an_update_that_is_not_finite_is_taken_out_and_the_rest_measured_again():
    slot = SLOT.model_copy(update={"groups": 1, "group_size": 3})
    silos = [ScriptedSilo("a"), BrokenSilo("b"), ScriptedSilo("c")]
    s = set_scene(*silos, weigher=slot.weigher(of_classes(2)), rounds=1, min_silos=2)
    record = s.engine.run()
    assert [(part.state, part.weight) for part in record.silos] == [("Counted", 0.5), ("Failed", 0.0), ("Counted", 0.5)]


class Counting:
    """A learner that writes which time it trains, or has nothing to train on."""

    def __init__(self, idle: bool = False) -> None:
        self.idle = idle

    def train(self, task: Task, model: np.ndarray, out: Callable, progress: Callable) -> Announcement:
        progress(1, 2)
        if self.idle:
            return Announcement(task.id, {}, {}, {}, None)
        update = out(5)
        update[:] = 7 + (task.repetition or 0)
        return Announcement(task.id, {"train": 3}, {}, {}, Manifest.of("layout", update))


@pytest.mark.parametrize(("times", "idle"), [(1, False), (3, False), (3, True)])
def test_the_models_of_one_update_lie_one_behind_the_other(times, idle):
    written, received = [], []

    def out(nbytes: int) -> np.ndarray:
        written.append(np.zeros(nbytes, np.uint8))
        return written[-1]

    task = Task("1", TaskKind.TRAIN, 1, model_of(0).manifest, repetitions=times)
    learner = RepeatingLearner(Counting(idle))
    announcement = learner.train(
        task, np.zeros(5, np.uint8), out, lambda done, total: received.append((done, total)) or 0
    )
    assert received == [(2 * number + 1, 2 * times) for number in range(times)]
    if idle:
        assert announcement.update is None and not written
    else:
        assert [array.tolist() for array in written] == [[7 + n for n in range(times) for _ in range(5)]]
        assert announcement.update == Manifest.of("layout", written[0])
