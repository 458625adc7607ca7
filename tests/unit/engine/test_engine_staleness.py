"""How old updates are: FedAsync counts models, adaptive Metis counts steps (KAT-H1)."""

from typing import Any

import numpy as np
import pytest
from scripted_silos import LAYOUT, CountWeigher, ScriptedSilo, set_scene, value_of

from anchorage.api.errors import AnchorageError
from anchorage.engine.step_counter import StepCounter
from anchorage.engine.strategy import Strategy
from anchorage.pieces.server_step.mix import Mix, MixPolynomial
from anchorage.transport.messages import Announcement, StopRequested, Task, TaskKind
from anchorage.transport.tensors.chunks import Manifest

MODEL = Manifest(LAYOUT.digest, LAYOUT.nbytes, ())


def announced(steps: Any) -> Announcement:
    return Announcement("t", {}, {"steps": np.asarray(steps)}, {}, MODEL)


@pytest.mark.known_answers
def test_h1_effective_staleness(known) -> None:
    counter = StepCounter()
    commits = known.inputs("H1_effective_staleness")["commits"]
    tasks = {
        silo: Task("t", TaskKind.TRAIN, 1, MODEL, counter.auxiliary_data(str(silo)))
        for silo in {silo for silo, _ in commits}
    }
    rows = []
    for silo, steps in commits:
        staleness = counter.commit(str(silo), tasks[silo], announced(steps))
        row = {"learner": silo, "own_steps": steps, "effective_staleness": staleness}
        rows.append({**row, "committed_steps_after": counter.committed})
        tasks[silo] = Task("t", TaskKind.TRAIN, 1, MODEL, counter.auxiliary_data(str(silo)))
        assert int(tasks[silo].auxiliary_data["staleness"]) == staleness
        assert "staleness" not in counter.auxiliary_data(str(silo)), "a commit is told of once"
    known.check("H1_effective_staleness", {"rows": rows})


@pytest.mark.parametrize("steps", [-1, 10**9 + 1, [1, 2], 2.5, True])
def test_steps_that_cannot_be_are_not_counted(steps: Any) -> None:
    counter = StepCounter()
    task = Task("t", TaskKind.TRAIN, 1, MODEL, counter.auxiliary_data("a"))
    assert counter.commit("a", task, announced(steps)) == 0 == counter.committed


def counting() -> tuple[ScriptedSilo, ScriptedSilo]:
    return (
        ScriptedSilo("fast", auxiliary_data={"steps": np.array(10)}, train_seconds=1.0, upload_seconds=0.0),
        ScriptedSilo("slow", auxiliary_data={"steps": np.array(100)}, train_seconds=2.5, upload_seconds=0.0),
    )


def test_silos_hear_of_committed_steps_also_after_a_restart() -> None:
    strategy = Strategy(CountWeigher(), counts_steps=True)
    s = set_scene(*counting(), mode="Asynchronous", rounds=9, strategy=strategy)
    s.link.at(4.5, StopRequested("test"))
    with pytest.raises(AnchorageError):
        s.engine.run()
    assert s.link.steps == [0, 10, 20, 120, 130, 140]
    staleness_by_silo = {
        silo: [{name: int(value) for name, value in auxiliary.items()} for auxiliary in sides]
        for silo, sides in s.link.sides.items()
    }
    assert staleness_by_silo["slow"] == [{"committed_steps": 0}, {"committed_steps": 120, "staleness": 120}]
    assert staleness_by_silo["fast"][2:4] == [
        {"committed_steps": 20, "staleness": 10},
        {"committed_steps": 130, "staleness": 110},
    ]
    assert [record.silos[0].metrics["staleness"] for record in s.store.history()[1:]] == [10, 10, 120, 110, 10]
    restarted = set_scene(*counting(), mode="Asynchronous", rounds=6, strategy=strategy, store=s.store)
    restarted.engine.run()
    assert restarted.link.steps == [140, 150]
    assert int(restarted.link.sides["slow"][0]["committed_steps"]) == 140


def test_a_method_without_steps_says_nothing_of_them() -> None:
    s = set_scene(*counting(), mode="Asynchronous", rounds=3)
    s.engine.run()
    assert s.link.steps == [] and s.link.sides["fast"][0] == {}


def test_every_update_is_mixed_in_by_its_age() -> None:
    mixing = MixPolynomial(alpha="0.5", exponent="1").mixing()
    s = set_scene(
        ScriptedSilo("a", adds=1.0, samples=1, train_seconds=1.0, upload_seconds=0.0),
        ScriptedSilo("b", adds=4.0, samples=1000, train_seconds=2.5, upload_seconds=0.0),
        mode="Asynchronous",
        rounds=4,
        strategy=Strategy(CountWeigher(), mixing=mixing),
    )
    s.engine.run()
    # a: 1 at 0.5, 1.5 at 0.5; b trained on 0 two models ago: 4 at 0.5 / 3; a trained on 1 and one model came between
    expected = [0.0, 0.5, 1.0, 1.0 * 5 / 6 + 4 / 6]
    expected.append(expected[3] * 0.75 + 2 * 0.25)
    assert [value_of(model) for model in s.recorder.models] == pytest.approx(expected)
    parts = [record.silos[0] for record in s.store.history()[1:]]
    assert [part.metrics["staleness"] for part in parts] == [0, 0, 2, 1]
    assert [part.weight for part in parts] == pytest.approx([0.5, 0.5, 0.5 / 3, 0.25])
    assert s.store.contributions() == {}, "nothing but the model is kept"


def test_a_mixture_goes_on_from_the_last_model() -> None:
    silo = lambda: ScriptedSilo("a", adds=1.0, upload_seconds=0.0)
    strategy = Strategy(CountWeigher(), mixing=Mix(alpha="0.5").mixing())
    s = set_scene(silo(), mode="Asynchronous", rounds=2, strategy=strategy)
    s.engine.run()
    restarted = set_scene(silo(), mode="Asynchronous", rounds=4, strategy=strategy, store=s.store)
    restarted.engine.run()
    assert [value_of(model) for model in restarted.recorder.models] == pytest.approx([1.5, 2.0])
