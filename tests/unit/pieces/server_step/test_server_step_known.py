"""Steps of the server against the known answers P1, T1 and D2, and what a checkpoint must carry."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from anchorage.engine.aggregation import ServerStep
from anchorage.pieces.server_step.adagrad import Adagrad
from anchorage.pieces.server_step.adam import Adam
from anchorage.pieces.server_step.adaptive import AdaptiveStep
from anchorage.pieces.server_step.momentum import Momentum
from anchorage.pieces.server_step.replace import Replace
from anchorage.pieces.server_step.residual import Residual
from anchorage.pieces.server_step.yogi import Yogi
from anchorage.pieces.slots import ServerStep as Slot
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


def model_of(values: Any) -> ModelBytes:
    array = np.atleast_1d(np.asarray(values, np.float64))
    return ModelBytes.from_arrays(Layout.of([("theta", "F64", array.shape)]), {"theta": array})


def values_of(model: ModelBytes) -> np.ndarray:
    return model.arrays()["theta"]


def step_of(slot: Slot) -> ServerStep:
    step = slot.step()
    assert step is not None
    return step


def stepped(slot: Slot, start: Any, deltas: Sequence[Any]) -> list[list[float]]:
    step, model, rows = step_of(slot), model_of(start), []
    for number, delta in enumerate(deltas, 1):
        model = step.apply(model, model_of(values_of(model) + np.asarray(delta)), number)
        rows.append(values_of(model).tolist())
    return rows


def adaptive(known: Any, case: Any, kind: type[AdaptiveStep], beta1: str = "beta1") -> Slot:
    options = {"learning_rate": "eta", "momentum": beta1, "tau": "tau", "initial_second_moment": "v0"}
    if "second_momentum" in kind.model_fields:
        options["second_momentum"] = "beta2"
    return kind(**{option: known.decimal(case[key]) for option, key in options.items()})


@pytest.mark.known_answers
def test_p1_server_optimisers(known):
    case = known.inputs("P1_fedopt")
    slots = {
        "fedadagrad": adaptive(known, case, Adagrad, "fedadagrad_beta1"),
        "fedadam": adaptive(known, case, Adam),
        "fedyogi": adaptive(known, case, Yogi),
    }
    computed = {name: stepped(slot, case["w0"], case["deltas"]) for name, slot in slots.items()}
    rate, momentum = (known.decimal(case[f"fedavgm_{name}"]) for name in ("lr", "momentum"))
    averaged = Momentum(learning_rate=rate, momentum=momentum)
    computed[known.key("P1_fedopt", "fedavgm_.*")] = stepped(averaged, case["w0"], case["deltas"])
    corrected = with_bias_correction(case, step_of(slots["fedadam"]))
    known.check("P1_fedopt", {**computed, "fedadam_flower_bias_correction": corrected})


def with_bias_correction(case: Any, step: ServerStep) -> list[list[float]]:
    """FedAdam as Flower does it, from our moments: a correction with exponent round + 1 that the paper's algorithm has not."""
    w, rows = np.array(case["w0"]), []
    for number, delta in enumerate(case["deltas"], 1):
        step.apply(model_of(np.zeros(len(w))), model_of(delta), number)
        m, v = step.state()["m/theta"], step.state()["v/theta"]
        correction = np.sqrt(1 - case["beta2"] ** (number + 1)) / (1 - case["beta1"] ** (number + 1))
        w = w + case["eta"] * correction * m / (np.sqrt(v) + case["tau"])
        rows.append(w.tolist())
    return rows


@pytest.mark.known_answers
def test_t1_semifl_server_momentum(known):
    case = known.inputs("T1_semifl_server_momentum")
    step = step_of(Momentum(learning_rate="1", momentum=known.decimal(case["beta"])))
    model, computed = model_of(case["w0"]), {}
    for number, mean in enumerate(case["client_means"], 1):
        model = step.apply(model, model_of(mean), number)
        computed[f"round{number}"] = values_of(model)[0]
    known.check("T1_semifl_server_momentum", computed)


@pytest.mark.known_answers
def test_d2_residual_connection(known):
    case = known.inputs("D2_cbafed_residual")

    def mixed(key: str) -> float:
        record, current = map(int, re.findall(r"_(\d+)", key))
        step = step_of(Residual(every=5, record_share=known.decimal(record / (record + current))))
        step.apply(model_of(0.0), model_of(case["record"]), 1)
        for number in range(2, 6):
            assert values_of(step.apply(model_of(0.0), model_of(9.0), number)) == [9.0]
        return float(values_of(step.apply(model_of(0.0), model_of(case["current"]), 6))[0])

    known.check("D2_cbafed_residual", {key: mixed(key) for key in known.expected("D2_cbafed_residual")})


SLOTS = [
    Momentum(learning_rate="0.5"),
    Adagrad(),
    Adam(),
    Yogi(),
    Residual(every=2),
]


@pytest.mark.parametrize("slot", SLOTS, ids=lambda slot: slot.name)
def test_a_restored_step_goes_on_as_if_nothing_had_happened(slot: Slot) -> None:
    straight, before, after = step_of(slot), step_of(slot), step_of(slot)
    model = other = model_of([1.0, -2.0])
    for number in range(1, 6):
        mean = model_of(np.sin([number, 2.0 * number]))
        model = straight.apply(model, mean, number)
        if number == 3:
            after.restore({name: array.copy() for name, array in before.state().items()})
        other = (before if number < 3 else after).apply(other, mean, number)
        assert model.digest == other.digest


@pytest.mark.parametrize("slot", SLOTS[:4], ids=lambda slot: slot.name)
def test_counted_tensors_are_averaged_and_never_stepped(slot: Slot) -> None:
    layout = Layout.of([("w", "F32", (2,)), ("norm.running_var", "F32", (2,)), ("norm.num_batches_tracked", "I64", ())])

    def model(scale: float, count: int) -> ModelBytes:
        arrays = {"w": np.full(2, scale, np.float32), "norm.running_var": np.full(2, scale, np.float32)}
        return ModelBytes.from_arrays(layout, {**arrays, "norm.num_batches_tracked": np.array(count)})

    stepped = step_of(slot).apply(model(1.0, 3), model(0.25, 7), 1).arrays()
    assert stepped["norm.running_var"].tolist() == [0.25, 0.25]
    assert stepped["norm.num_batches_tracked"] == 7
    assert stepped["w"].tolist() != [0.25, 0.25]
    assert stepped["w"].dtype == np.float32


def test_plain_averaging_has_no_step() -> None:
    assert Replace().step() is None
