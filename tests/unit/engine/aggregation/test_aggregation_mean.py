"""The weighted mean and the asynchronous global model against plain float64 arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mixed_models import FLOATS, MIXED, random_model, with_value

from anchorage.engine.aggregation import ContributionSum, NonFiniteUpdate, find_nonfinite, weighted_mean
from anchorage.engine.aggregation.mean import MeanSource
from anchorage.transport.tensors.chunks import CHUNK_BYTES
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import SpoolFile


def widened(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def test_a_mean_that_is_read_chunk_by_chunk_is_the_same():
    models, weights = [random_model(seed) for seed in range(3)], [1.0, 0.0, 2.5]
    source, mean = MeanSource(models, weights, MIXED), weighted_mean(models, weights, MIXED)
    assert source.manifest == mean.manifest
    assert tuple(map(source.chunk, range(source.manifest.count))) == mean.chunks


@pytest.mark.parametrize("silos", [1, 3, 8, 19])
def test_every_number_is_the_float64_mean_rounded_once(silos):
    models = [random_model(seed) for seed in range(silos)]
    weights = np.random.default_rng(silos).uniform(0, 5, silos)
    mean = weighted_mean(models, weights.tolist(), MIXED)
    arrays, parts = mean.arrays(), [m.arrays() for m in models]
    for t in MIXED.tensors:
        if t.dtype == "BF16":
            exact = np.average([widened(p[t.name]) for p in parts], axis=0, weights=weights).astype(np.float64)
            np.testing.assert_allclose(widened(arrays[t.name]), exact, rtol=2**-8, atol=2**-40)
        elif t.dtype in FLOATS:
            exact = np.average(np.array([p[t.name] for p in parts], np.float64), axis=0, weights=weights)
            half_a_unit = np.finfo(FLOATS[t.dtype]).eps * 0.5 * (1 + 1e-6)
            smallest = float(np.finfo(FLOATS[t.dtype]).smallest_subnormal)
            tolerance = 1e-15 * silos if t.dtype == "F64" else smallest
            np.testing.assert_allclose(arrays[t.name].astype(np.float64), exact, rtol=half_a_unit, atol=tolerance)
        else:
            assert np.array_equal(arrays[t.name], parts[0][t.name])
    assert mean.digest == ModelBytes(MIXED, mean.chunks).digest


def test_one_source_comes_back_bit_for_bit():
    model = random_model(3)
    assert weighted_mean([model], [0.3], MIXED).digest == model.digest


def test_sources_without_weight_are_not_read():
    model = random_model(1)
    broken = with_value(model, "more", np.nan)
    assert weighted_mean([broken, model], [0.0, 2.0], MIXED).digest == model.digest


def test_spool_files_give_the_same_bits_as_memory(tmp_path):
    models = [random_model(seed) for seed in range(5)]
    spools = []
    for index, model in enumerate(models):
        spool = SpoolFile(tmp_path / f"{index}.bin", model.manifest)
        for chunk, data in enumerate(model.chunks):
            spool.write(chunk, data)
        spools.append(spool)
    weights = [1.0, 2.0, 0.5, 3.0, 1.0]
    assert weighted_mean(spools, weights, MIXED).digest == weighted_mean(models, weights, MIXED).digest
    for spool in spools:
        spool.close()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("tensor", ["big", "double", "half", "more"])
def test_a_number_that_is_not_finite_names_its_update_and_tensor(tensor, value):
    models = [random_model(seed) for seed in range(3)]
    models[1] = with_value(models[1], tensor, value)
    with pytest.raises(NonFiniteUpdate) as raised:
        weighted_mean(models, [1.0, 1.0, 1.0], MIXED)
    assert (raised.value.index, raised.value.tensor) == (1, tensor)
    assert find_nonfinite(models[1], MIXED) == tensor
    assert find_nonfinite(models[0], MIXED) is None


def test_bfloat16_nan_is_found():
    arrays = random_model(0).arrays()
    arrays["brain"][4] = 0x7FC0
    model = ModelBytes.from_arrays(MIXED, arrays)
    assert find_nonfinite(model, MIXED) == "brain"
    with pytest.raises(NonFiniteUpdate, match="brain"):
        weighted_mean([model], [1.0], MIXED)


def test_huge_numbers_whose_sum_overflows_are_not_mistaken_for_broken_ones():
    layout = Layout.of([("x", "F64", (4,))])
    model = ModelBytes.from_arrays(layout, {"x": np.full(4, 1.7e308)})
    assert weighted_mean([model, model], [1.0, 1.0], layout).arrays()["x"][0] == 1.7e308


@pytest.mark.parametrize("weights", [[-1.0, 1.0], [np.nan, 1.0], [np.inf, 1.0], [0.0, 0.0]])
def test_weights_that_mean_nothing_are_refused(weights):
    models = [random_model(0), random_model(1)]
    with pytest.raises(ValueError, match="weight"):
        weighted_mean(models, weights, MIXED)


def test_another_layout_is_refused():
    other = Layout.of([("x", "F32", (2,))])
    with pytest.raises(ValueError, match="layout"):
        weighted_mean([random_model(0)], [1.0], other)
    with pytest.raises(ValueError, match="layout"):
        ContributionSum(other).commit("a", 1.0, random_model(0))


def test_an_empty_layout():
    empty = Layout(())
    assert weighted_mean([ModelBytes(empty, [])], [1.0], empty).chunks == ()


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.just(0.0) | st.floats(0.01, 10), st.integers(0, 50)), min_size=1, max_size=12
    )
)
def test_community_is_the_mean_of_the_last_updates(commits):
    layout = Layout.of([("x", "F64", (7,)), ("n", "I64", ())])
    community = ContributionSum(layout)
    last: dict[str, tuple[ModelBytes, float]] = {}
    for silo, weight, seed in commits:
        update = random_model(seed, layout)
        community.commit(str(silo), weight, update, *last.get(str(silo), (None, 0.0)))
        last[str(silo)] = (update, weight)
    model = community.model()
    if not any(weight for _, weight in last.values()):
        assert model is None
        return
    assert model is not None
    exact = weighted_mean([m for m, _ in last.values()], [w for _, w in last.values()], layout).arrays()["x"]
    scale = sum(w for _, w in last.values())
    np.testing.assert_allclose(model.arrays()["x"], exact, rtol=1e-9, atol=1e-12 * (1 + 10 * len(commits) / scale))
    assert model.arrays()["n"] == update.arrays()["n"]


def test_a_removed_silo_no_longer_counts():
    one, other = random_model(1), random_model(2)
    community = ContributionSum(MIXED)
    community.commit("a", 0.75, one)
    community.commit("b", 0.25, other)
    community.remove("a", one, 0.75)
    model = community.model()
    assert model is not None
    np.testing.assert_allclose(model.arrays()["big"], other.arrays()["big"], rtol=1e-6, atol=1e-12)
    community.remove("b", other, 0.25)
    assert community.model() is None


def test_the_layout_crosses_chunks():
    assert MIXED.nbytes > CHUNK_BYTES
