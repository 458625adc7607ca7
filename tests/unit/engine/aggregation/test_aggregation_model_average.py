"""The moving average of global models."""

import numpy as np
import pytest

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import LOSS_NOT_FINITE
from anchorage.engine.aggregation.model_average import ModelAverage
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

LAYOUT = Layout.of(
    [("still", "F32", (2,)), ("w", "F32", (300_000,)), ("n.running_mean", "F32", (3,)), ("n", "I64", ())], {"still"}
)


def model_of(value: float, count: int = 0) -> ModelBytes:
    filled = {t.name: np.full(t.shape, value, np.float32) for t in LAYOUT.tensors}
    return ModelBytes.from_arrays(LAYOUT, {**filled, "still": np.float32([7, 8]), "n": np.array(count)})


def values(model: ModelBytes) -> list[float]:
    return [float(array.flat[0]) for array in model.arrays().values()]


@pytest.mark.parametrize(
    ("decay", "wanted"),
    [(0.5, [2, 3, 5]), (0.0, [2, 4, 7]), (1.0, [2, 3, 13 / 3]), (0.6, [2, 3, 3 * 0.6 + 7 * 0.4])],
)
def test_the_first_models_count_alike_and_then_each_by_what_the_decay_leaves(decay, wanted):
    average = ModelAverage(decay)
    averages = [average.follow(model_of(value, count)) for count, value in enumerate((2, 4, 7))]
    assert [model.arrays()["w"][-1] for model in averages] == pytest.approx(wanted)
    assert all(len(set(model.arrays()["w"])) == 1 for model in averages)
    for count, model in enumerate(averages):
        arrays = model.arrays()
        assert arrays["n.running_mean"][0] == arrays["w"][0] and int(arrays["n"]) == count
        assert arrays["still"].tolist() == [7, 8] and model.manifest.fixed == model_of(0).manifest.fixed


def test_before_the_first_round_there_is_nothing():
    average, model = ModelAverage(0.9), model_of(1)
    assert average.state() == {} and average.apply(model) is model and average.resume(model) is model


def test_an_average_goes_on_from_what_was_committed():
    straight, before, after = (ModelAverage(0.7) for _ in range(3))
    models = [model_of(value, value) for value in (3, 1, 4, 1, 5)]
    wanted = [straight.follow(model).digest for model in models]
    committed = [before.follow(model) for model in models[:2]][-1]
    after.restore(before.state())
    assert after.resume(committed).digest == models[1].digest
    assert [after.follow(model).digest for model in models[2:]] == wanted[2:]


def test_a_model_that_is_not_finite_is_named():
    average = ModelAverage(0.9)
    average.follow(model_of(1))
    with pytest.raises(AnchorageError, match="tensor w is not finite") as caught:
        average.follow(model_of(float("nan")))
    assert caught.value.failure is LOSS_NOT_FINITE
