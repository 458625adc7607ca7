"""Fixed-point numbers: exact sums, refused where they do not fit; what needs single updates is refused with its line."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from anchorage.api.errors import AnchorageError
from anchorage.engine.aggregation.fixed_point_mean import ImpossibleSumError, fixed_point_mean
from anchorage.methods import validate_study
from anchorage.transport.secure_aggregation.fixed_point import RangeError, encode
from anchorage.transport.secure_aggregation.masks import Mask, add_masks
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes, write_arrays

LAYOUT = Layout.of([("count", "I64", ()), ("weight", "F32", (5,)), ("flag", "BOOL", (3,))])
FLAGS, COUNT = np.zeros(3, bool), np.array(7)
ZERO = ModelBytes.from_arrays(LAYOUT, {"weight": np.zeros(5, np.float32), "count": COUNT, "flag": FLAGS})


def buffer_of(weight: np.ndarray) -> np.ndarray:
    buffer = np.empty(LAYOUT.nbytes, np.uint8)
    write_arrays(LAYOUT, buffer, {"weight": weight, "count": np.array(9), "flag": ~FLAGS})
    return buffer


changes = st.lists(arrays(np.float32, 5, elements=st.floats(-64, 64, width=32)), min_size=3, max_size=6)


@settings(max_examples=40, deadline=None)
@given(changes)
def test_the_sum_is_that_of_whole_numbers(updates: list[np.ndarray]) -> None:
    encoded, share = [buffer_of(update) for update in updates], 1 / len(updates)
    for each in encoded:
        encode(LAYOUT, each, ZERO.buffer(), LAYOUT, share, 24)
    mean = fixed_point_mean([ModelBytes.of(LAYOUT, each) for each in encoded], [], LAYOUT, ZERO, 1.0, 24).arrays()
    exact = sum(np.rint(update.astype(np.float64) * share * 2**24) for update in updates) / 2**24
    assert np.array_equal(mean["weight"], exact.astype(np.float32))
    assert mean["count"] == 7
    assert not mean["flag"].any()


def test_masks_come_off_the_right_words_of_every_chunk() -> None:
    layout = Layout.of([("count", "I64", ()), ("weight", "F32", (600_001,)), ("flag", "BOOL", (3,))])
    numbers = np.random.default_rng(1)
    before, *updates = numbers.normal(size=(4, 600_001)).astype(np.float32)
    model = ModelBytes.from_arrays(layout, {"count": COUNT, "weight": before, "flag": FLAGS})
    masks, sent, exact = [Mask(bytes([n]) * 32, (-1) ** n) for n in range(4)], [], np.zeros(600_001)
    for update in updates:
        buffer = ModelBytes.from_arrays(layout, {"count": COUNT, "weight": update, "flag": FLAGS}).buffer()
        add_masks(encode(layout, buffer, model.buffer(), layout, 0.25, 22), masks)
        sent.append(ModelBytes.of(layout, buffer))
        exact += np.rint((update.astype(np.float64) - before) * 2**20)
    off = [Mask(mask.key, -mask.sign) for mask in masks for _ in updates]
    mean = fixed_point_mean(sent, off, layout, model, 4 / 3, 22)
    expected = (before + exact * (4 / 3 / 2**22)).astype(np.float32)
    assert len(mean.chunks) == 3
    assert mean.digest == ModelBytes.from_arrays(layout, {**model.arrays(), "weight": expected}).digest


@pytest.mark.parametrize("value", [64.1, -64.1, np.nan, np.inf])
def test_what_does_not_fit_is_refused(value: float) -> None:
    with pytest.raises(RangeError, match="tensor weight changes by more than 64"):
        encode(LAYOUT, buffer_of(np.full(5, value, np.float32)), ZERO.buffer(), LAYOUT, 0.1, 24)


def test_a_sum_that_no_updates_have_is_told() -> None:
    """A mask that stays on, numbers beyond the share of the updates, and the largest ones that are right."""
    layout = Layout.of([("weight", "F32", (64,))])
    model = ModelBytes.from_arrays(layout, {"weight": np.zeros(64, np.float32)})

    def mean(words: np.ndarray, scale: float) -> np.ndarray:
        update = ModelBytes.of(layout, words.view(np.uint8).copy())
        return fixed_point_mean([update], [], layout, model, scale, 22).arrays()["weight"]

    masked = np.zeros(64, np.uint32)
    add_masks(masked, [Mask(bytes(32), 1)])
    with pytest.raises(ImpossibleSumError):
        mean(masked, 1.0)
    largest = np.full(64, 2**28, np.uint32)
    assert np.array_equal(mean(largest, 4.0), np.full(64, 256, np.float32))
    for wrong in (largest + np.uint32(2), np.uint32(0) - largest - np.uint32(2)):
        with pytest.raises(ImpossibleSumError):
            mean(wrong, 4.0)


def federation(folder: Path, method: str, protocol: str) -> Path:
    path = folder / "federation.yaml"
    path.write_text(
        f"""kind: Federation
metadata: {{name: derm}}
spec:
  rounds: 1
  task: {{classification: {{classes: [a, b]}}}}
  model: {{network: ResNet18, imageSize: 32}}
  method: {method}
  protocol: {{{protocol}}}
"""
        + "".join(
            f"---\nkind: Silo\nmetadata: {{name: {name}}}\nspec: {{federation: derm, labels: All}}\n" for name in "abc"
        )
    )
    return path


ROUNDS = "minSilos: 3, secureAggregation: {}"
REFUSED = [
    ("{name: FedAvg}", "minSilos: 3, secureAggregation: {minimumSurvivors: 4}", "whose sum 4 make known"),
    ("{name: FedAvg}", "minSilos: 2, silosPerRound: 2, secureAggregation: {minimumSurvivors: 2}", "rounds of 2 silos"),
    ("{name: FedAvg}", "minSilos: 2, secureAggregation: {}", "rounds of 2 silos"),
    ("{name: FedAvg}", f"silosPerRound: 2, {ROUNDS}", "rounds of 2 silos"),
    ("{name: AsyncFedAvg}", f"mode: Asynchronous, {ROUNDS}", "an asynchronous protocol"),
    ("{name: FedAvg, aggregation: {median: {}}}", ROUNDS, "aggregation median"),
    ("{name: FedAvg, weighting: {stepCount: {}}}", ROUNDS, "weighting stepCount, whose weights"),
    ("{name: SyncDVW}", ROUNDS, "weighting dvw"),
    ("{name: SCAFFOLD}", ROUNDS, "control"),
    ("{name: FedMatch}", ROUNDS, "helpers"),
    ("{name: SemiAnAgg}", ROUNDS, "weighting semiAnAgg"),
]


@pytest.mark.parametrize(("method", "protocol", "why"), REFUSED)
def test_what_needs_single_updates_is_refused_with_its_line(
    method: str, protocol: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(AnchorageError) as refused:
        validate_study(federation(tmp_path, method, protocol))
    assert "federation.yaml:8" in str(refused.value)
    assert why in str(refused.value)


@pytest.mark.parametrize("method", ["{name: FedAvg}", "{name: FedProx}", "{name: FedAvg, weighting: {uniform: {}}}"])
def test_what_needs_sums_alone_is_accepted(method: str, tmp_path: Path) -> None:
    study = validate_study(federation(tmp_path, method, ROUNDS))
    assert study.federation.spec.protocol.secure_aggregation is not None


def test_the_sum_of_two_may_be_asked_for_knowingly(tmp_path: Path) -> None:
    study = validate_study(
        federation(tmp_path, "{name: FedAvg}", "minSilos: 2, secureAggregation: {minimumSurvivors: 2}")
    )
    assert study.federation.spec.protocol.secure_aggregation is not None
