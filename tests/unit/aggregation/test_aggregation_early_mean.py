"""The mean that is formed while updates arrive: the bytes of the plain one, or none."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anchorage.engine.aggregation import weighted_mean
from anchorage.engine.aggregation.early_mean import EarlyMean
from anchorage.engine.aggregation.norms import norms_of
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import SpoolFile

LAYOUT = Layout.of([("count", "I64", ()), ("weight", "F32", (700_001,))])
CHUNKS = 3


def model(seed: int) -> ModelBytes:
    weight = np.random.default_rng(seed).normal(size=700_001).astype(np.float32)
    return ModelBytes.from_arrays(LAYOUT, {"count": np.array(seed), "weight": weight})


MODELS = [model(seed) for seed in range(3)]
PLACES = [(update, index) for update in range(3) for index in range(CHUNKS)]


def spools(folder: Path, models: list[ModelBytes] = MODELS) -> list[SpoolFile]:
    return [SpoolFile(folder / f"{number}.bin", each.manifest) for number, each in enumerate(models)]


def write(files: list[SpoolFile], places: list[tuple[int, int]], models: list[ModelBytes] = MODELS) -> None:
    for update, index in places:
        files[update].write(index, models[update].chunk(index))


def same(mean: ModelBytes | None, weights: list[float]) -> bool:
    plain = weighted_mean(MODELS, weights, LAYOUT)
    return mean is not None and (mean.chunks, mean.manifest) == (plain.chunks, plain.manifest)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(PLACES), st.integers(0, len(PLACES)), st.sampled_from([[1.0, 2.0, 0.5], [3.0, 0.0, 1.0]]))
def test_whatever_the_order_of_arrival_the_bytes_are_those_of_the_plain_mean(
    tmp_path: Path, places: list[tuple[int, int]], before: int, weights: list[float]
) -> None:
    files = spools(tmp_path)
    write(files, places[:before])
    early = EarlyMean(files, weights, LAYOUT)
    write(files, places[before:])
    assert early.norms(files) == (norms_of(MODELS, LAYOUT) if all(weights) else None)
    assert same(early.mean(files, weights), weights)


def test_chunks_that_several_threads_write_twice_count_once(tmp_path: Path) -> None:
    files = spools(tmp_path)
    early = EarlyMean(files, [1.0, 1.0, 1.0], LAYOUT)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda update: write(files, [(update, i % CHUNKS) for i in range(6)]), range(3)))
    assert same(early.mean(files, [1.0, 1.0, 1.0]), [1.0, 1.0, 1.0])
    write(files, [(0, 0)])  # nobody listens any more


def test_other_weights_or_other_updates_give_none(tmp_path: Path) -> None:
    files = spools(tmp_path)
    write(files, PLACES)
    assert EarlyMean(files, [1.0, 1.0, 1.0], LAYOUT).mean(files, [1.0, 1.0, 2.0]) is None
    assert EarlyMean(files, [1.0, 1.0, 1.0], LAYOUT).mean(files[:2], [1.0, 1.0]) is None
    assert EarlyMean(files, [1.0, 1.0, 1.0], LAYOUT).mean([*files[:2], MODELS[2]], [1.0, 1.0, 1.0]) is None


def test_an_update_that_is_not_whole_gives_none(tmp_path: Path) -> None:
    files = spools(tmp_path)
    write(files, PLACES[:-1])
    assert EarlyMean(files, [1.0, 1.0, 1.0], LAYOUT).mean(files, [1.0, 1.0, 1.0]) is None


def test_updates_are_measured_one_by_one(tmp_path: Path) -> None:
    files = spools(tmp_path)
    write(files, PLACES)
    early = EarlyMean(files, [1.0, 1.0, 1.0], LAYOUT)
    assert early.norms(files[1:]) == norms_of(MODELS[1:], LAYOUT)
    assert early.norms([*files, MODELS[0]]) is None
    assert early.mean(files[1:], [1.0, 1.0]) is None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_give_none(value: float, tmp_path: Path) -> None:
    bad = MODELS[1].arrays()
    bad["weight"][-1] = value
    models = [MODELS[0], ModelBytes.from_arrays(LAYOUT, bad), MODELS[2]]
    files = spools(tmp_path, models)
    write(files, PLACES, models)
    early = EarlyMean(files, [1.0, 1.0, 1.0], LAYOUT)
    assert early.norms(files) is None
    assert early.norms(files[::2]) == norms_of(models[::2], LAYOUT)
    assert early.mean(files, [1.0, 1.0, 1.0]) is None


def test_a_file_that_cannot_be_read_gives_none(tmp_path: Path) -> None:
    files = spools(tmp_path)
    write(files, PLACES)
    files[0].close()
    assert EarlyMean(files, [1.0, 1.0, 1.0], LAYOUT).mean(files, [1.0, 1.0, 1.0]) is None
