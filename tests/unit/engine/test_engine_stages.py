"""A silo's learner in a run of several stages, and the run as each of them is told it."""

from typing import Any

import numpy as np
import pytest

from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription, StageDescription
from anchorage.engine.stages import stage_learner
from anchorage.methods import PRESETS
from anchorage.pieces.task.classification import Classification
from anchorage.transport.messages import Announcement, Evaluation, Task, TaskKind
from anchorage.transport.tensors.chunks import Manifest

MODEL = ModelDescription(network="SmallCnn", task=Classification(classes=("a", "b", "c")), image_size=8)


def described(*stages: tuple[str, int], rounds: int) -> RunDescription:
    warm_up = tuple(
        StageDescription(method=PRESETS[name].slots, down=f"[{last}]", up=f"[-{last}]", last=last)
        for name, last in stages
    )
    return RunDescription(
        federation="derm",
        seed=1,
        model=MODEL,
        method=PRESETS["SemiAnAgg"].slots,
        down="[]",
        up="[]",
        rounds=rounds,
        mode="Synchronous",
        warm_up=warm_up,
    )


class Noting:
    def __init__(self, run: RunDescription) -> None:
        self.name = run.method.name

    def train(self, task: Task, *others: Any) -> Announcement:
        return Announcement(f"{task.round} {self.name}", {}, {}, {}, None)

    def evaluate(self, task: Task, model: object) -> Evaluation:
        return Evaluation(f"{task.round} {self.name}")


def task(number: int) -> Task:
    return Task(f"{number}", TaskKind.TRAIN, number, Manifest("", 0, ()))


def test_every_round_has_the_learner_of_its_stage() -> None:
    built: list[str] = []

    def build(run: RunDescription) -> Noting:
        built.append(run.method.name)
        return Noting(run)

    learner = stage_learner(described(("FedBarlow", 2), ("FedCLR", 3), rounds=5), build)
    assert built == ["FedBarlow"], "the first stage's learner tells at once whether the images can be used"
    nothing = np.empty(0, np.uint8)
    tasks = [learner.train(task(n), nothing, lambda n: nothing, lambda done, total: 0).task for n in (1, 2, 3, 4, 5)]
    assert tasks == ["1 FedBarlow", "2 FedBarlow", "3 FedCLR", "4 SemiAnAgg", "5 SemiAnAgg"]
    assert built == ["FedBarlow", "FedCLR", "SemiAnAgg"]
    assert learner.evaluate(task(2), nothing).task == "2 FedBarlow", "a late task is still its own stage's"
    assert stage_learner(described(rounds=5), build).__class__ is Noting


def test_a_stage_is_told_as_a_run_of_its_own_with_what_was_before() -> None:
    run = described(("FedBarlow", 2), ("FedCLR", 3), rounds=7)
    parts = [run.stage(number) for number in (1, 3, 4)]
    assert [(p.method.name, p.down, p.up, p.rounds, len(p.warm_up)) for p in parts] == [
        ("FedBarlow", "[2]", "[-2]", 2, 0),
        ("FedCLR", "[3]", "[-3]", 3, 1),
        ("SemiAnAgg", "[]", "[]", 7, 2),
    ]
    assert run.ends == (2, 3, 7)
    shares = [run.stage(number).share_done(number) for number in range(1, 8)]
    assert shares == pytest.approx([0, 0.5, 0, 0, 0.25, 0.5, 0.75]), "a schedule begins anew in every stage"
    assert [run.stage(number).rounds_done(number) for number in range(1, 8)] == [0, 1, 0, 0, 1, 2, 3]
