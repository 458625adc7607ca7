"""Silos with labels score the new model on images that they do not train on."""

from dataclasses import replace
from typing import Any

import pytest
from classification_of import classes
from scripted_silos import PlainLearner, Scene, ScriptedSilo, set_scene

from anchorage.transport.messages import Report, TaskKind
from anchorage.transport.tensors.model import ModelBytes

GOOD, BAD = ((3, 1), (0, 4)), ((1, 3), (2, 2))
"""Confusion matrices: balanced accuracy 0.875 and 0.375, accuracy 7/8 and 3/8."""


class Blind(PlainLearner):
    """A server without validation images."""

    def evaluate(self, model: ModelBytes, round_number: int) -> Report:
        return Report({})


def scene(*silos: ScriptedSilo, unlabelled: str = "", **settings: Any) -> Scene:
    s = set_scene(*silos, **{"held_out_task": classes(2), **settings})
    s.link.heap = [
        (
            at,
            order,
            replace(event, profile=replace(event.profile, labels="None")) if event.silo == unlabelled else event,
        )
        for at, order, event in s.link.heap
    ]
    return s


def test_every_silo_s_and_the_worst_one_s_scores_are_in_the_record() -> None:
    s = scene(ScriptedSilo("a", scores=GOOD), ScriptedSilo("b", scores=BAD), ScriptedSilo("c"), unlabelled="c")
    record = s.engine.run()
    of = {part.name: part.metrics for part in record.silos}
    expected = {"held_out_accuracy": 7 / 8, "held_out_balanced_accuracy": 0.875, "held_out_images": 8.0}
    assert {name: of["a"][name] for name in expected} == pytest.approx(expected)
    assert of["b"]["held_out_accuracy"] == 3 / 8 and set(of["c"]) == {"loss"}
    assert [silo for silo, _ in s.link.evaluated] == ["a", "b"]
    assert {name: value for name, value in record.metrics.items() if "silo" in name} == pytest.approx(
        {
            "silos_balanced_accuracy": (4 / 8 + 6 / 8) / 2,
            "silos_accuracy": 10 / 16,
            "worst_silo_balanced_accuracy": 0.375,
            "worst_silo_accuracy": 3 / 8,
        }
    )


def test_the_worst_silo_is_one_silo() -> None:
    """Here the silo with the least balanced accuracy is not that with the least accuracy."""
    one, other = ((90, 0), (9, 1)), ((6, 4), (4, 6))
    s = scene(ScriptedSilo("a", scores=one), ScriptedSilo("b", scores=other))
    metrics = s.engine.run().metrics
    assert (metrics["worst_silo_balanced_accuracy"], metrics["worst_silo_accuracy"]) == pytest.approx((0.55, 0.91))


def test_the_new_model_is_scored_in_the_rounds_that_are_due() -> None:
    s = scene(ScriptedSilo("a", scores=GOOD), rounds=5, evaluate_every=2)
    s.engine.run()
    digests = [model.digest[:16] for model in s.recorder.models]
    assert s.link.evaluated == [("a", f"{number}.score.{digests[number]}") for number in (2, 4, 5)]
    assert all(digest not in s.link.offered for digest in digests[1:])


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ((1, 2), "no matrix"),
        (((1, -1), (2, 2)), "negative"),
        (((0, 0), (0, 0)), "no images"),
        (((200, 0), (0, 1)), "more images than the silo has"),
        (((1, 0, 0), (0, 1, 0), (0, 0, 1)), "other classes"),
    ],
)
def test_counts_that_cannot_be_are_left_out(wrong: Any, why: str) -> None:
    s = scene(ScriptedSilo("a", scores=GOOD), ScriptedSilo("b", scores=wrong))
    record = s.engine.run()
    assert record.metrics["silos_accuracy"] == 7 / 8, why
    assert "held_out_accuracy" not in record.silos[1].metrics


def test_who_does_not_answer_is_waited_for_no_longer_than_the_deadline() -> None:
    silos = ScriptedSilo("a", scores=GOOD), ScriptedSilo("b", scores=BAD, score_seconds=1e6)
    s = scene(*silos)
    assert s.engine.run().metrics["worst_silo_accuracy"] == 7 / 8
    assert s.clock.seconds < 2 * 100.0 + 10
    assert [task.split(".")[1] for silo, task, why in s.link.dismissals if (silo, why) == ("b", "late")] == ["score"]


def test_without_validation_images_at_the_server_the_silos_choose_the_best_round() -> None:
    silo = ScriptedSilo("a", scores=GOOD)
    s = scene(silo, learner=Blind(), rounds=1)
    record = s.engine.run()
    assert record.metrics["accuracy"] == 7 / 8 and s.recorder.reports[-1] is not None
    assert s.recorder.reports[-1].tally["confusion"].tolist() == [list(row) for row in GOOD]
    silo.scores = BAD
    restarted = set_scene(silo, held_out_task=classes(2), learner=Blind(), rounds=3, store=s.store)
    restarted.engine.run()
    best = s.store.best()
    assert best is not None and best.record.round == 1


def test_the_task_says_which_images_are_meant() -> None:
    tasks: list[Any] = []
    s = scene(ScriptedSilo("a", scores=GOOD))
    assign = s.link.assign
    s.link.assign = lambda silo, task: (tasks.append(task), assign(silo, task))  # type: ignore[method-assign,assignment]
    s.engine.run()
    assert [task.held_out for task in tasks if task.kind is TaskKind.EVALUATE] == [True]
