"""The one order of metrics, and the one meaning of the best round."""

import math

import pytest

from anchorage.api.metrics import headline, lower_is_better, score, shown_first, sort_metrics


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({}, ""),
        ({"server_loss": 0.25}, "server_loss 0.250"),
        ({"loss": 0.25, "accuracy": 0.96912}, "accuracy 0.969"),
        ({"accuracy": 0.9, "balanced_accuracy": 0.5}, "balanced_accuracy 0.500"),
        ({"accuracy": math.nan}, "accuracy nan"),
    ],
)
def test_the_headline_is_the_first_metric(values: dict[str, float], shown: str) -> None:
    assert headline(values) == shown


def test_known_metrics_come_first_and_the_others_as_they_are() -> None:
    names = ["staleness", "loss", "server_loss", "accuracy"]
    assert sort_metrics(names) == ["accuracy", "loss", "staleness", "server_loss"]
    assert list(shown_first(names)) == ["accuracy", "loss"]
    assert list(shown_first(["e", "d", "c", "b", "a"])) == ["e", "d", "c", "b"]


def test_a_loss_is_the_better_the_smaller_it_is() -> None:
    assert lower_is_better("loss") and lower_is_better("server_loss")
    assert not lower_is_better("accuracy") and not lower_is_better("macro_auc")


def test_rounds_are_compared_by_their_first_metric_that_is_a_number() -> None:
    rounds = [
        {},
        {"loss": 0.1},
        {"loss": 0.05},
        {"accuracy": 0.99, "loss": 0.01},
        {"balanced_accuracy": 0.4, "accuracy": 0.1},
        {"balanced_accuracy": 0.5, "accuracy": 0.2},
    ]
    scores = [score(values) for values in rounds]
    assert scores[0] is None
    present = [each for each in scores if each is not None]
    assert present == sorted(present) and len(set(present)) == 5, "each is better than the one before"
    assert score({"balanced_accuracy": math.nan, "accuracy": 0.3}) == score({"accuracy": 0.3})
    assert score({"accuracy": math.inf, "server_loss": 1.0}) is None
