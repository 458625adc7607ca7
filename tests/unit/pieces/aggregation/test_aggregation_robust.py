"""Robust aggregations against their formulas in plain numpy, on files, in bounded memory, and what they refuse."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mixed_models import FLOATS, MIXED, random_model, with_value

from anchorage.api.files import load_federation
from anchorage.api.mistakes import format_path
from anchorage.api.piece import PIECES
from anchorage.engine.aggregation import NonFiniteUpdate, coordinates
from anchorage.engine.aggregation.norms import MOST, Norms, norms, outliers
from anchorage.methods import check
from anchorage.pieces.aggregation.mean import Mean
from anchorage.pieces.aggregation.median import Median
from anchorage.pieces.aggregation.multi_krum import MultiKrum, distances, krum_scores
from anchorage.pieces.aggregation.norm_bounding import NormBounding, scale_factors
from anchorage.pieces.aggregation.trimmed_mean import TrimmedMean
from anchorage.pieces.slots import Aggregation
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import SpoolFile

FLAT = Layout.of([("w", "F64", (4,)), ("norm.running_var", "F64", (2,)), ("count", "I64", ())])
LABELLED = Path(__file__).parents[4] / "examples" / "fedavg-digits.yaml"
ROBUST = [Median(), TrimmedMean(), MultiKrum(), NormBounding()]


def flat(w: float, variance: float = 1.0, count: int = 3) -> ModelBytes:
    arrays = {"w": np.full(4, w), "norm.running_var": np.full(2, variance), "count": np.array(count)}
    return ModelBytes.from_arrays(FLAT, arrays)


def aggregated(piece: Aggregation, *values: float, model: float = 0.0) -> float:
    updates = [flat(value) for value in values]
    arrays = piece.aggregate(updates, [1.0] * len(updates), FLAT, flat(model)).arrays()
    assert arrays["count"] == 3
    return float(arrays["w"][0])


@pytest.mark.parametrize("silos", [1, 2, 5, 8])
@pytest.mark.parametrize(
    ("piece", "formula"),
    [
        (Median(), lambda rows: np.median(rows, axis=0)),
        (TrimmedMean(share="0.25"), lambda rows: np.sort(rows, 0)[len(rows) // 4 : len(rows) - len(rows) // 4].mean(0)),
    ],
)
def test_coordinate_by_coordinate_over_chunks_and_widths(piece, formula, silos, monkeypatch):
    models = [random_model(seed) for seed in range(silos)]
    once = piece.aggregate(models, [1.0] * silos, MIXED, random_model(99))
    arrays, parts = once.arrays(), [m.arrays() for m in models]
    for t in MIXED.tensors:
        if t.dtype in FLOATS and t.nbytes:
            exact = formula(np.stack([p[t.name].astype(np.float64) for p in parts])).astype(FLOATS[t.dtype])
            np.testing.assert_array_equal(arrays[t.name], exact)
        elif t.dtype not in (*FLOATS, "BF16"):
            np.testing.assert_array_equal(arrays[t.name], parts[0][t.name])
    monkeypatch.setattr(coordinates, "HELD", 1000)
    assert piece.aggregate(models, [1.0] * silos, MIXED, random_model(99)).digest == once.digest


@pytest.mark.parametrize("piece", ROBUST, ids=lambda piece: piece.name)
def test_files_give_the_bits_of_memory_and_a_silo_that_sends_rubbish_moves_little(piece, tmp_path):
    models = [random_model(seed) for seed in range(5)]
    models[3] = ModelBytes.from_arrays(
        MIXED, {n: a * a.dtype.type(-1e4) if a.dtype == np.float32 else a for n, a in models[3].arrays().items()}
    )
    spools = [SpoolFile(tmp_path / f"{index}.bin", model.manifest) for index, model in enumerate(models)]
    for spool, model in zip(spools, models, strict=True):
        for chunk, data in enumerate(model.chunks):
            spool.write(chunk, data)
    start = random_model(50)
    aggregated = piece.aggregate(spools, [1.0] * 5, MIXED, start)
    assert aggregated.digest == piece.aggregate(models, [1.0] * 5, MIXED, start).digest
    assert np.abs(aggregated.arrays()["big"]).max() < 10
    assert np.abs(Mean().aggregate(models, [1.0] * 5, MIXED, start).arrays()["big"]).max() > 1e3
    for spool in spools:
        spool.close()


@pytest.mark.parametrize("piece", [Mean(), *ROBUST], ids=lambda piece: piece.name)
def test_an_update_that_is_not_finite_is_named(piece):
    models = [random_model(seed) for seed in range(5)]
    models[2] = with_value(models[2], "more", np.nan)
    with pytest.raises(NonFiniteUpdate) as raised:
        piece.aggregate(models, [1.0] * 5, MIXED, random_model(9))
    assert (raised.value.index, raised.value.tensor) == (2, "more")


@example([0.0, 0.0, 1.0, -1.0, -1.0], -1.25, 0)
@given(st.lists(st.floats(-1, 1), min_size=5, max_size=9), st.floats(-1e30, 1e30), st.integers(0, 8))
@pytest.mark.parametrize("piece", ROBUST, ids=lambda piece: piece.name)
def test_one_silo_of_five_cannot_move_the_model_beyond_the_others(piece, values, wrong, place):
    """Multi-Krum may keep a wrong value among its m = n - 3: one that is no farther from its m nearest than an honest one can be, which is 2."""
    values.insert(min(place, len(values)), wrong)
    beyond = 2 / (len(values) - 3) if isinstance(piece, MultiKrum) else 0.0
    assert abs(aggregated(piece, *values)) <= 1.0 + beyond + 1e-9


def test_multi_krum_takes_the_mean_of_the_updates_that_agree():
    """n = 7, f = 2: each is judged by its 3 nearest, and 3 are kept."""
    assert aggregated(MultiKrum(byzantine=2), 1.0, 1.1, 0.9, 1.3, 0.6, 50.0, 50.0) == pytest.approx(1.0)
    assert aggregated(MultiKrum(), 4.0) == 4.0


@given(st.integers(1, 6), st.integers(0, 2**32))
def test_distances_are_those_of_the_pairs(silos, seed):
    rows = np.random.default_rng(seed).normal(size=(silos, 6))
    updates = [
        ModelBytes.from_arrays(FLAT, {"w": r[:4], "norm.running_var": r[4:], "count": np.array(1)}) for r in rows
    ]
    apart = distances(updates, FLAT, flat(3.0))
    np.testing.assert_allclose(apart, np.square(rows[:, None] - rows[None]).sum(2), atol=1e-9)


def test_an_update_beyond_all_measure_is_furthest_from_everybody():
    apart = distances([flat(1.0), flat(1e200), flat(-1e200), flat(1.5)], FLAT, flat(0.0))
    assert apart[0, 3] == pytest.approx(1.0) and np.isinf(apart[0, 1]) and not np.isnan(apart).any()
    assert np.argmin(krum_scores(apart, 1)) in (0, 3)


def test_differences_are_scaled_down_to_the_median_of_the_round():
    """w = 1; lengths 2, 4 and 40 of four equal coordinates: the last one counts as 4."""
    assert aggregated(NormBounding(), 2.0, 3.0, 21.0, model=1.0) == pytest.approx(1 + (1 + 2 + 2) / 3)
    assert aggregated(NormBounding(factor=3), 2.0, 3.0, 21.0, model=1.0) == pytest.approx(1 + (1 + 2 + 6) / 3)
    updates = [flat(2.0), flat(3.0), flat(21.0)]
    weighed = NormBounding().aggregate(updates, [1.0, 0.0, 1.0], FLAT, flat(1.0)).arrays()["w"][0]
    assert weighed == pytest.approx(1 + (1 + 10.5) / 2), "an update without a weight has no norm"


def test_statistics_are_bounded_by_themselves():
    updates = [flat(2.0), flat(2.0), flat(2.0, variance=1e30)]
    arrays = NormBounding().aggregate(updates, [1.0] * 3, FLAT, flat(1.0)).arrays()
    assert arrays["norm.running_var"].max() == 1.0 and arrays["w"][0] == pytest.approx(1 + 2 / 3)
    assert scale_factors([Norms(1, 4), Norms(2, 2), Norms(8, 1)], 1) == [0.5, 1.0, 0.25]


def test_honest_updates_that_are_equally_far_are_averaged():
    assert aggregated(NormBounding(), 3.0, -1.0, 3.0, model=1.0) == pytest.approx(5 / 3)


def test_norms_are_of_weights_and_of_what_is_counted():
    assert norms(flat(3.0, 2.0), FLAT) == pytest.approx((6.0, np.sqrt(8)))
    assert norms(flat(3.0, 2.0), FLAT, flat(1.0, 2.0)) == pytest.approx((4.0, 0.0))
    model, arrays = random_model(7), random_model(7).arrays()
    exact = sum(float(np.square(a.astype(np.float64)).sum()) for a in arrays.values() if a.dtype.kind == "f")
    brain = (arrays["brain"].astype(np.uint32) << 16).view(np.float32)
    assert norms(model, MIXED).trained == pytest.approx(np.sqrt(exact + float(np.square(brain).sum())), rel=1e-5)
    huge = ModelBytes.from_arrays(MIXED, {**arrays, "big": np.full(300_000, 1e30, np.float32)})
    assert norms(huge, MIXED).trained == pytest.approx(1e30 * np.sqrt(300_000), rel=1e-5), "float32 cannot hold squares"


def test_outliers_are_told_from_three_updates_on():
    assert outliers([Norms(1, 1), Norms(1e30, 1)]) == {}
    assert outliers([Norms(1, 0), Norms(9.9, 0), Norms(1, 1e30)]) == {}, "a median of 0 says nothing"
    outlying = outliers([Norms(1, 1), Norms(2, 1), Norms(MOST.trained * 2.1, 1), Norms(2, 101)])
    assert outlying == {2: "its norm is 21, the median of 4 updates 2", 3: "its norm is 101, the median of 4 updates 1"}


UNIFORM = "spec.method.weighting={uniform: {}}"


def mistakes(*overrides: str, silos: int = 9) -> list[tuple[str, str]]:
    study = load_federation(LABELLED, overrides, silos=silos)
    return [(m.code, format_path(m.path).removeprefix("spec.")) for m in check(study.federation, study.silos)]


@pytest.mark.parametrize(
    ("aggregation", "least"),
    [
        ("trimmedMean: {share: '0.25'}", 4),
        ("trimmedMean: {}", 5),
        ("multiKrum: {}", 5),
        ("multiKrum: {byzantine: 2}", 7),
    ],
)
def test_what_a_robust_aggregation_needs(aggregation, least):
    robust, few = f"spec.method.aggregation={{{aggregation}}}", [("ANC-1119", "method.aggregation")]
    assert mistakes(robust, UNIFORM, silos=least) == []
    assert mistakes(robust, UNIFORM, silos=least - 1) == few
    assert mistakes(robust, UNIFORM, f"spec.protocol.silosPerRound={least - 1}") == few
    assert mistakes(robust) == [("ANC-1116", "method.weighting")]
    assert mistakes(robust, UNIFORM, "spec.method.serverStep={adam: {}}") == []
    assert mistakes(robust, UNIFORM, "spec.protocol.mode=Asynchronous") == [("ANC-1120", "protocol.mode")]


@pytest.mark.parametrize("aggregation", ["median", "normBounding"])
def test_of_two_updates_none_is_in_the_middle(aggregation):
    robust, two = f"spec.method.aggregation={{{aggregation}: {{}}}}", "spec.protocol={minSilos: 1, silosPerRound: 2}"
    assert mistakes(robust, UNIFORM, two) == [("ANC-1119", "method.aggregation")]
    assert mistakes(robust, UNIFORM, silos=3) == []


def test_norm_bounding_suits_every_weighting_of_rounds():
    bounded = "spec.method.aggregation={normBounding: {}}"
    assert mistakes(bounded) == []
    assert mistakes(bounded, "spec.method.name=DVW") == []
    assert mistakes(bounded, "spec.protocol.mode=Asynchronous") == [("ANC-1120", "protocol.mode")]


@pytest.mark.parametrize("share", ["0", "0.5", "1"])
def test_a_share_leaves_something_out_and_something_in(share):
    robust = f"spec.method.aggregation={{trimmedMean: {{share: '{share}'}}}}"
    assert ("ANC-1116", "method.aggregation.trimmedMean.share") in mistakes(robust, UNIFORM)


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("spec.method.name=SCAFFOLD", "method.aggregation"),
        ("spec.method.batchNorm={pooled: {}}", "method.batchNorm"),
        ("spec.method.name=FedCLR", "method.aggregation"),
    ],
)
def test_what_is_a_mean_itself_is_refused_beside_it(override, field):
    messages = mistakes("spec.method.aggregation={median: {}}", UNIFORM, override)
    assert [mistake for mistake in messages if mistake[1] == field] == [("ANC-1116", field)]


def test_the_slot_has_these():
    assert {*PIECES.of("aggregation")} >= {"mean", "median", "trimmedMean", "multiKrum", "normBounding"}
