"""Noise at the server: its sensitivity, its size, whose it is, what it costs, and what it is refused beside."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from classification_of import classes as of_classes
from mixed_models import MIXED, random_model, with_value

from anchorage.api.errors import AnchorageError
from anchorage.api.files import load_federation
from anchorage.api.mistakes import format_path
from anchorage.engine.aggregation import NonFiniteUpdate
from anchorage.engine.aggregation.noised_mean import NoisedMean
from anchorage.engine.strategy import Strategy
from anchorage.methods import check, resolve
from anchorage.pieces.aggregation.private_mean import PrivateMean
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage_silo.policy import Policy

dp_accounting = pytest.importorskip("dp_accounting")

LABELLED = Path(__file__).parents[4] / "examples" / "fedavg-digits.yaml"
FLAT = Layout.of([("w", "F64", (4,)), ("norm.running_var", "F64", (2,)), ("count", "I64", ())])
WIDE = Layout.of([("w", "F32", (400_000,))])
ALMOST_NONE = 1e-9


def flat(w: float, variance: float = 1.0, count: int = 3) -> ModelBytes:
    arrays = {"w": np.full(4, w), "norm.running_var": np.full(2, variance), "count": np.array(count)}
    return ModelBytes.from_arrays(FLAT, arrays)


def wide(value: float) -> ModelBytes:
    return ModelBytes.from_arrays(WIDE, {"w": np.full(400_000, value, np.float32)})


def test_changes_are_shortened_over_all_floats_together_and_their_sum_is_divided_by_their_number():
    updates = [flat(3.0, count=7), flat(1.5, count=8), flat(1.0, variance=1 + 8.0)]
    arrays = NoisedMean(2.0, ALMOST_NONE, 1e-5).aggregate(updates, [1 / 3] * 3, FLAT, flat(1.0)).arrays()
    # changes of norms 4, 1 and 8 sqrt(2): halved, whole, and by sqrt(2) / 8
    np.testing.assert_allclose(arrays["w"], 1 + (1 + 0.5 + 0) / 3, atol=1e-6)
    np.testing.assert_allclose(arrays["norm.running_var"], 1 + np.sqrt(2) / 3, atol=1e-6)
    assert arrays["count"] == 3, "an integer of a silo would tell of it"


def test_one_silo_moves_the_sum_by_the_norm_whatever_it_sends():
    """The sensitivity: with its change and with none the sums of K updates are at most C apart."""
    for sent in (0.5, 1e30, 1e200):
        alike = NoisedMean(2.0, ALMOST_NONE, 1e-5)
        with_it, without = (
            alike.aggregate([flat(1.0), flat(value)], [0.5, 0.5], FLAT, flat(0.0)).arrays()["w"]
            for value in (sent, 0.0)
        )
        assert 2 * np.linalg.norm(with_it - without) <= 2.0 + 1e-6


def test_noise_in_each_number_is_that_of_the_sum_divided_by_the_number_of_updates():
    noised, updates = NoisedMean(0.5, 3.0, 1e-5), [wide(1e-6)] * 4
    values = noised.aggregate(updates, [0.25] * 4, WIDE, wide(0.0)).arrays()["w"]
    assert values.std() == pytest.approx(0.5 * 3.0 / 4, rel=0.01) and abs(values.mean()) < 0.003
    halves = np.array_split(values, 16)
    assert all(abs(np.corrcoef(one, other)[0, 1]) < 0.03 for one, other in pairwise(halves))


def test_noise_is_the_same_for_the_same_updates_of_a_run_and_for_nothing_else():
    noised, other, updates = NoisedMean(1.0, 1.0, 1e-5), NoisedMean(1.0, 1.0, 1e-5), [random_model(1), random_model(2)]
    first = noised.aggregate(updates, [0.5, 0.5], MIXED, random_model(9))
    assert noised.aggregate(updates, [0.5, 0.5], MIXED, random_model(9)).digest == first.digest
    assert other.aggregate(updates, [0.5, 0.5], MIXED, random_model(9)).digest != first.digest
    other.restore(noised.state())
    assert other.aggregate(updates, [0.5, 0.5], MIXED, random_model(9)).digest == first.digest
    assert other.metrics()["epsilon"] > noised.metrics()["epsilon"] > 0, "three rounds cost more than two"
    one = [NoisedMean(1.0, 1.0, 1e-5) for _ in range(2)]
    one[1].restore(one[0].state())
    means = [
        n.aggregate([wide(a)], [1.0], WIDE, wide(0.0)).arrays()["w"] for n, a in zip(one, (0.0, 1e-9), strict=True)
    ]
    assert not np.array_equal(means[0], means[1]) and np.abs(means[0] - means[1]).max() > 0.1, (
        "the noise is another one"
    )


def test_variances_stay_usable_and_what_is_not_finite_is_named():
    arrays = NoisedMean(1.0, 50.0, 1e-5).aggregate([flat(0.0)], [1.0], FLAT, flat(0.0, variance=0.0)).arrays()
    assert (arrays["norm.running_var"] >= 0).all() and np.abs(arrays["w"]).max() > 1
    models = [random_model(seed) for seed in range(3)]
    models[2] = with_value(models[2], "more", np.nan)
    with pytest.raises(NonFiniteUpdate) as raised:
        PrivateMean().aggregate(models, [1.0] * 3, MIXED, random_model(9))
    assert (raised.value.index, raised.value.tensor) == (2, "more")


@pytest.mark.parametrize(
    ("noise", "rounds", "delta"),
    [(1.0, 1, 1e-5), (1.0, 20, 1e-5), (4.0, 100, 1e-6), (0.5, 3, 1e-3), (12.0, 1000, 1e-5), (2.0, 7, 1e-8)],
)
def test_rounds_cost_what_dp_accounting_says(noise: float, rounds: int, delta: float):
    noised = NoisedMean(1.0, noise, delta)
    noised.restore({**noised.state(), "rounds": np.array(rounds)})
    accountant = dp_accounting.pld.PLDAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(noise), rounds)
    assert noised.metrics() == {"epsilon": pytest.approx(accountant.get_epsilon(delta), abs=1e-3), "delta": delta}


def test_a_silo_scales_its_update_itself():
    method = resolve(study().federation.spec.method)
    norms = [Policy.model_validate(fields).bound(method) for fields in ({}, {"clipNorm": "0.25"}, {"clipNorm": "7"})]
    assert norms == [2.0, 0.25, 2.0]
    plain = resolve(load_federation(LABELLED).federation.spec.method)
    assert [Policy.model_validate(fields).bound(plain) for fields in ({}, {"clipNorm": "7"})] == [None, 7.0]


def test_a_run_waits_for_the_commit_and_compares_no_norms():
    strategy = Strategy.of(resolve(study().federation.spec.method), of_classes(10), 1)
    assert not strategy.ahead and not strategy.compares_norms and strategy.metrics()["epsilon"] == 0
    restarted = Strategy.of(resolve(study().federation.spec.method), of_classes(10), 1)
    restarted.restore(strategy.state())
    assert {name: array.tolist() for name, array in restarted.state().items()} == {
        name: array.tolist() for name, array in strategy.state().items()
    }
    assert {"noise/key", "noise/rounds"} <= strategy.state().keys()


def test_without_the_package_the_run_does_not_begin(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "dp_accounting.rdp", None)
    with pytest.raises(AnchorageError, match=r"ANC-2218.*pip install dp-accounting"):
        NoisedMean(1.0, 0.98765, 1e-5)


PRIVATE = ("spec.method.aggregation={privateMean: {clipNorm: '2'}}", "spec.method.weighting={uniform: {}}")


def study(*overrides: str) -> Any:
    return load_federation(LABELLED, [*PRIVATE, *overrides], silos=9)


@pytest.mark.parametrize(
    ("override", "field", "reason"),
    [
        ("spec.method.weighting={sampleCount: {}}", "method.weighting", "count alike"),
        ("spec.protocol.mode=Asynchronous", "protocol.mode", "needs a round's updates together"),
        ("spec.protocol.secureAggregation={}", "protocol.secureAggregation", "privateMean, which needs single updates"),
        ("spec.warmUp=[{method: FedAvg, rounds: 1}]", "warmUp", "has no noise"),
        ("spec.evaluation={siloPercent: 20}", "method.aggregation", "siloPercent"),
        ("spec.method.name=SCAFFOLD", "method.aggregation", "control variates are a plain mean"),
        ("spec.method.name=FedMix", "method.aggregation", "beside their updates"),
        ("spec.method.batchNorm={pooled: {}}", "method.aggregation", "looks at single updates"),
        ("spec.method.serverStep={keep: {}}", "method.aggregation", "scores every silo's model"),
    ],
)
def test_what_reaches_others_past_the_noise_is_refused_with_the_reason(override: str, field: str, reason: str):
    documents = study(override)
    messages = [
        m.message for m in check(documents.federation, documents.silos) if format_path(m.path) == f"spec.{field}"
    ]
    assert len(messages) == 1 and reason in messages[0]


@pytest.mark.parametrize(
    "override", ["spec.rounds=5", "spec.method.serverStep={adam: {}}", "spec.method.encoding={int8: {}}"]
)
def test_what_is_a_function_of_the_noised_sum_is_allowed(override: str):
    documents = study(override)
    assert check(documents.federation, documents.silos) == []
