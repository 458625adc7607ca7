"""Exact shortcuts of the methods reference, 9.2 in the protocol against their plain forms; tests/shortcuts.md lists them."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from classification_of import classes as of_classes
from scripted_silos import LAYOUT, CountWeigher, ScriptedSilo, model_of, set_scene, value_of

from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.silo import SiloWorker
from anchorage.pieces.weighting.semianagg import SemiAnAgg
from anchorage.transport.messages import Assigned, Evaluation, Task, TaskKind
from anchorage.transport.tensors.chunks import ChunkSink, Manifest
from anchorage.transport.tensors.model import read_arrays

NOTHING = np.nan


def test_13_scalars_go_up_first_and_then_each_model_by_itself():
    """SemiAnAgg in two steps: no model moves before every silo's C scalars are there, and a silo that weighs nothing sends none."""
    similarities = {"a": [0.2, NOTHING], "b": [0.6, 0.4], "idle": [NOTHING, NOTHING], "late": [0.9, 0.1]}
    silos = [
        ScriptedSilo(name, adds=float(i), train_seconds=1.0 + i, auxiliary_data={"similarity": np.array(row)})
        for i, (name, row) in enumerate(similarities.items(), 1)
    ]
    scene = set_scene(*silos, weigher=SemiAnAgg().weigher(of_classes(2)))
    record = scene.engine.run()
    assert scene.link.permits == [(5.0, "a"), (5.0, "b"), (5.0, "late")]
    accumulators, totals = np.zeros(2), np.zeros(2)  # the plain form: a sum of models per class
    for silo in silos:
        r = np.nan_to_num(1 - np.array(similarities[silo.name]))
        accumulators, totals = accumulators + r * silo.adds, totals + r
    assert value_of(scene.recorder.models[-1]) == pytest.approx((accumulators / totals).mean())
    assert sum(part.weight for part in record.silos) == pytest.approx(1)


def test_17_only_the_committing_silo_is_scored_and_the_others_keep_their_weight():
    silos = [
        ScriptedSilo(n, adds=2.0**i, train_seconds=s) for i, (n, s) in enumerate({"a": 1, "b": 1.7, "c": 4}.items())
    ]
    scene = set_scene(*silos, mode="Asynchronous", rounds=9, weigher=CountWeigher(evaluated=True))
    assign, correct = scene.link.assign, count(1)

    def score_anew(silo: str, task: Task) -> None:
        scene.link.silos[silo].scores = (next(correct), 100)
        assign(silo, task)

    contribute, weights = scene.store.contribute, list[float]()

    def note_weight(silo: str, number: int, weight: float) -> None:
        weights.append(weight)
        contribute(silo, number, weight)

    scene.link.assign, scene.store.contribute = score_anew, note_weight
    scene.engine.run()
    commits = [record.silos[0] for record in scene.store.history()[1:]]
    assert len({part.name for part in commits}) == 3 and len(set(weights)) == 9
    waiting = sum(len(opened.evaluators) > 0 for opened in scene.engine._open.values())
    assert len(scene.link.evaluated) == 2 * (len(commits) + waiting), "two others score a commit, once"
    last, received = dict[str, tuple[float, float]](), dict.fromkeys("abc", 0.0)
    for part, weight, model in zip(commits, weights, scene.recorder.models[1:], strict=True):
        last[part.name] = weight, received[part.name] + scene.link.silos[part.name].adds
        received[part.name] = sum(p * theta for p, theta in last.values()) / sum(p for p, _ in last.values())
        assert part.weight == pytest.approx(weight / sum(p for p, _ in last.values()))
        assert value_of(model) == pytest.approx(received[part.name], rel=1e-6)


class OneAddress:
    """A learner that notes where the models lie that it scores, and their first weight."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, float]] = []

    def evaluate(self, task: Task, model: np.ndarray) -> Evaluation:
        self.calls.append((model.ctypes.data, float(read_arrays(LAYOUT, model)["w"][0])))
        return Evaluation(task.id, {"validation": np.array([1, 2])})


def test_20_models_are_scored_one_after_another_in_the_memory_of_one():
    """They come into one buffer, each when its turn has come, whatever the number that waits."""
    models = {m.digest: m for m in map(model_of, (1.0, 2.0, 3.0))}
    jobs: list[tuple[str, Callable[[], None]]] = []

    class Link:
        fetched = 0

        def fetch(self, manifest: Manifest, sink: ChunkSink) -> None:
            self.fetched += 1
            sink.write(0, models[manifest.digest].chunk(0))

        def report(self, evaluation: Evaluation) -> None:
            pass

    link, learner = Link(), OneAddress()
    worker = SiloWorker(link, learner, MemoryBuffers(), lanes=lambda lane, job: jobs.append((lane, job)))
    task = Task("", TaskKind.EVALUATE, 1, Manifest("", 0, ()))
    for name, model in models.items():
        worker.handle(Assigned(replace(task, id=name, model=model.manifest)))
    assert [lane for lane, _ in jobs] == ["evaluate"] * 3, "a lane does one job after another"
    for number, (_, job) in enumerate(jobs, 1):
        job()
        assert link.fetched == number
    assert [value for _, value in learner.calls] == [1.0, 2.0, 3.0]
    assert len({address for address, _ in learner.calls}) == 1
