"""Exact shortcuts of the methods reference, 9.2 at the server against their plain forms, which are only here; tests/shortcuts.md lists them."""

import tracemalloc
from collections import Counter
from typing import Any

import numpy as np
import pytest
from classification_of import classes as of_classes
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from anchorage.engine.aggregation import ContributionSum, weighted_mean
from anchorage.pieces.pseudo_labels.helpers import Helpers
from anchorage.pieces.slots import Weighting
from anchorage.pieces.weighting.fedavg_semi import FedAvgSemi, normalised
from anchorage.pieces.weighting.semianagg import SemiAnAgg
from anchorage.pieces.weighting.sub_consensus import distances
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.chunks import CHUNK_BYTES
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

few = settings(max_examples=25)
seeds = st.integers(0, 2**31)
counts = st.integers(0, 500)
CLASSES = 3
LAYOUT = Layout.of([("w", "F64", (6,)), ("b", "F64", (2,))])
WIDE = Layout.of([("w", "F32", (3 * CHUNK_BYTES // 4,))])


def model_of(seed: int, spread: float = 1.0) -> ModelBytes:
    draws = np.random.default_rng(seed)
    return ModelBytes.from_arrays(LAYOUT, {n: 1 + spread * draws.normal(size=s) for n, s in (("w", 6), ("b", 2))})


def flat(model: ModelBytes) -> np.ndarray:
    return np.concatenate([model.arrays()["w"], model.arrays()["b"]])


class Counted:
    """A source that counts how often each of its chunks is read."""

    def __init__(self, model: ModelBytes) -> None:
        self.model, self.manifest, self.read = model, model.manifest, Counter[int]()

    def chunk(self, index: int) -> bytes:
        self.read[index] += 1
        return self.model.chunk(index)


def averaged(weighting: Weighting, facts: list[tuple[dict[str, int], dict[str, Any]]]) -> tuple[np.ndarray, list[Any]]:
    """The mean as the engine makes it, and the updates, of silos that say samples and auxiliary data."""
    updates = [model_of(index) for index in range(len(facts))]
    announcements = {
        str(index): Announcement("t", samples, auxiliary, {}, updates[index].manifest)
        for index, (samples, auxiliary) in enumerate(facts)
    }
    weights = normalised(np.array(list(weighting.weigher(of_classes(CLASSES)).weigh(announcements, {}).values())))
    return flat(weighted_mean(updates, weights.tolist(), LAYOUT)), [flat(update) for update in updates]


@few
@given(st.lists(st.tuples(counts, counts), min_size=1, max_size=6).filter(lambda facts: any(map(any, facts))))
def test_11_one_sum_is_as_good_as_two_accumulators(facts: list[tuple[int, int]]) -> None:
    """FedAvg-Semi: the labelled and the unlabelled mean, each over its own sum, put together at the end."""
    mean, updates = averaged(
        FedAvgSemi(labelled_share="0.3"),
        [({"labelled": labelled, "selected": selected}, {}) for labelled, selected in facts],
    )
    sums, totals = np.zeros((2, 8)), np.zeros(2)
    for update, pair in zip(updates, facts, strict=True):
        sums += np.outer(pair, update)
        totals += pair
    share = 1.0 if not totals[1] else 0.0 if not totals[0] else 0.3
    means = sums / np.where(totals, totals, 1)[:, None]
    np.testing.assert_allclose(mean, share * means[0] + (1 - share) * means[1], rtol=1e-12)


similarities = st.lists(st.floats(-1, 0.999) | st.just(np.nan), min_size=CLASSES, max_size=CLASSES)


@few
@given(st.lists(similarities, min_size=1, max_size=6))
def test_12_13_scalars_first_are_as_good_as_an_accumulator_per_class(similarities_drawn: list[list[float]]) -> None:
    """SemiAnAgg, paper's order: C sums of ``r_kc theta_k``, each divided by its ``R_c``, and their mean."""
    mean, updates = averaged(
        SemiAnAgg(), [({"selected": 1}, {"similarity": np.array(row)}) for row in similarities_drawn]
    )
    accumulators, totals = np.zeros((CLASSES, 8)), np.zeros(CLASSES)
    for update, row in zip(updates, similarities_drawn, strict=True):
        r = np.array([0.0 if np.isnan(w) else 1 - w for w in row])
        accumulators += np.outer(r, update)
        totals += r
    plain = (accumulators[totals > 0] / totals[totals > 0, None]).mean(0) if totals.any() else np.mean(updates, 0)
    np.testing.assert_allclose(mean, plain, rtol=1e-9)


@pytest.mark.parametrize("silos", [1, 9, 20])
def test_11_a_mean_reads_each_update_once(silos: int) -> None:
    sources = [Counted(model_of(index)) for index in range(silos)]
    weighted_mean(sources, [1.0] * silos, LAYOUT)
    assert all(source.read == {0: 1} for source in sources)


def test_11_memory_does_not_grow_with_the_silos() -> None:
    """Of 40 updates of three chunks, which come from a disk, few chunks are held beside the threads' working memory."""
    model = ModelBytes.of(WIDE, np.ones(3 * CHUNK_BYTES // 4, np.float32).view(np.uint8))

    class OnDisk:
        manifest = model.manifest

        def chunk(self, index: int) -> bytes:
            return bytes(bytearray(model.chunk(index)))

    tracemalloc.start()
    try:
        mean = weighted_mean([OnDisk() for _ in range(40)], [1.0] * 40, WIDE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert mean.digest == model.digest
    assert peak < 64 * CHUNK_BYTES, "about 45; those of two chunks at a time would be 80 more"


@few
@given(seeds, st.integers(2, 5), st.sampled_from([1.0, 1e-9]))
def test_15_distances_of_updates_that_are_almost_the_same(seed: int, silos: int, spread: float) -> None:
    """By the differences themselves, tensor by tensor; the expanded square loses all its digits where updates are close."""
    models, weights = [model_of(seed + k, spread) for k in range(silos)], np.arange(1.0, silos + 1)
    apart, expanded = np.zeros(silos), np.zeros(silos)
    for name in ("w", "b"):
        rows = np.stack([m.arrays()[name] for m in models])
        mean = weights @ rows / weights.sum()
        apart += np.linalg.norm(rows - mean, axis=1)
        expanded += np.sqrt(np.maximum(0, (rows**2).sum(1) - 2 * rows @ mean + mean @ mean))
    distances_measured = distances(models, weights, LAYOUT)
    np.testing.assert_allclose(distances_measured, apart, rtol=1e-6)
    assert np.allclose(expanded, apart, rtol=1e-2, atol=0) == (spread == 1.0)


commits = st.lists(st.tuples(st.integers(0, 3), st.floats(0, 5), seeds), min_size=1, max_size=12)


@few
@given(commits)
def test_24_a_commit_reads_two_updates_and_gives_the_sum_over_all_silos(events: list[tuple[int, float, int]]) -> None:
    community, last = ContributionSum(LAYOUT), dict[str, tuple[Counted, float]]()
    for silo, weight, seed in events:
        update = Counted(model_of(seed))
        before, previous_weight = last.get(str(silo), (None, 0.0))
        reads = {name: source.read.total() for name, (source, _) in last.items()}
        community.commit(str(silo), weight, update, before, previous_weight)
        assert {n: s.read.total() - reads[n] for n, (s, _) in last.items()} == {n: int(n == str(silo)) for n in last}
        assert update.read.total() == 1
        last[str(silo)] = update, weight
        total = sum(weight for _, weight in last.values())
        model = community.model()
        assert (model is None) == (total == 0)
        if model is not None and total > 1e-3:
            plain = sum(weight * flat(source.model) for source, weight in last.values()) / total
            np.testing.assert_allclose(flat(model), plain, rtol=1e-9, atol=1e-9)


@few
@given(seeds, st.integers(2, 30))
def test_27_comparing_all_is_as_good_as_a_tree(seed: int, silos: int) -> None:
    embeddings = np.random.default_rng(seed).dirichlet(np.ones(4), silos)
    names = [f"s{index:02d}" for index in range(silos)]
    memory = Helpers().memory(of_classes(4), 0)
    memory.conclude(
        {n: Announcement("t", {}, {"embedding": e}, {}, None) for n, e in zip(names, embeddings, strict=True)}
    )
    _, nearest = cKDTree(embeddings).query(embeddings, k=range(1, min(3, silos) + 1))
    for name, row in zip(names, nearest, strict=True):
        assert memory.helpers_of(name, names) == [names[i] for i in row if names[i] != name]
