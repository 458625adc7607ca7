"""What holds of every server step, every round memory and every part of a mean, whatever the silos say."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from classification_of import classes as of_classes
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorage.api.piece import PIECES
from anchorage.engine.aggregation import RoundMemory, weighted_mean
from anchorage.engine.aggregation.apart import average_apart
from anchorage.engine.hooks import EngineHooks
from anchorage.engine.store.large_files import HeldLarge
from anchorage.engine.strategy import Strategy
from anchorage.methods import PRESETS
from anchorage.pieces.batch_norm.pooled import pool_variances
from anchorage.pieces.self_supervised.cluster_assignment import global_centroids
from anchorage.pieces.server_step.mix import Mix, MixHinge, MixPolynomial, MixStep
from anchorage.pieces.slots import ServerStep
from anchorage.transport.messages import Announcement, AuxiliaryData
from anchorage.transport.tensors.large_arrays import LargeArrays, layout_of
from anchorage.transport.tensors.layout import CONTROL, Layout
from anchorage.transport.tensors.model import ModelBytes

few = settings(max_examples=12)
seeds = st.integers(0, 2**31)
weights = st.lists(st.floats(0.01, 100), min_size=1, max_size=5)
CLASSES = 3
LAYOUT = Layout.of(
    [
        ("w", "F64", (5,)),
        ("classifier.w", "F64", (3,)),
        (f"{CONTROL}w", "F64", (5,)),
        ("n.running_mean", "F64", (2,)),
        ("n.running_var", "F64", (2,)),
    ]
)
STEPS = {name: kind for name, kind in PIECES.of("server_step").items() if kind().step() is not None}
MIXTURES = [Mix(), MixPolynomial(exponent="2"), MixHinge(slope="2", grace=3)]
NARROW = Layout.of([("w", "F64", (5,))])


def model_of(seed: int, layout: Layout = LAYOUT) -> ModelBytes:
    draws = np.random.default_rng(seed)
    arrays = {t.name: draws.normal(size=t.shape) for t in layout.tensors}
    return ModelBytes.from_arrays(layout, {n: np.abs(a) if n.endswith("var") else a for n, a in arrays.items()})


def assert_close(arrays: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    assert arrays.keys() == wanted.keys()
    for name in wanted:
        np.testing.assert_allclose(arrays[name], wanted[name], rtol=1e-9, atol=1e-12, err_msg=name)


def slot_of(kind: str, momentum: str) -> ServerStep:
    """The server step with this momentum, if it has any, that is due in every second round, if it waits at all."""
    options = {"momentum": momentum, "every": 2}
    return STEPS[kind](**{name: value for name, value in options.items() if name in STEPS[kind].model_fields})


@pytest.mark.parametrize("kind", STEPS)
@few
@given(st.lists(weights, min_size=1, max_size=4), seeds, st.randoms(use_true_random=False))
def test_a_step_knows_no_order_of_silos_no_scale_of_weights_and_no_interruption(
    kind: str, rounds: list[list[float]], seed: int, draw: Any
) -> None:
    slot = slot_of(kind, "0" if kind == "adagrad" else "0.5")
    straight, broken = slot.step(), slot.step()
    assert straight is not None and broken is not None
    model = other = model_of(seed)
    for number, shares in enumerate(rounds, 1):
        updates = [model_of(seed + 10 * number + k) for k in range(len(shares))]
        order = draw.sample(range(len(shares)), len(shares))
        shuffled = weighted_mean([updates[i] for i in order], [7 * shares[i] for i in order], LAYOUT)
        model = straight.apply(model, weighted_mean(updates, shares, LAYOUT), number, 0.5)
        other = broken.apply(other, shuffled, number, 0.5)
        assert_close(other.arrays(), model.arrays())
        state, broken = broken.state(), slot.step()
        assert broken is not None
        broken.restore(state)


@pytest.mark.parametrize("kind", STEPS)
def test_silos_that_bring_back_what_they_received_leave_the_model(kind: str) -> None:
    step, model = slot_of(kind, "0").step(), model_of(1)
    assert step is not None
    for number in range(1, 4):
        assert_close(step.apply(model, weighted_mean([model, model], [1, 2], LAYOUT), number).arrays(), model.arrays())


@pytest.mark.parametrize("slot", MIXTURES, ids=lambda slot: slot.name)
@few
@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), seeds)
def test_mixing_one_by_one_is_a_mean_of_all(slot: MixStep, ages: list[int], seed: int) -> None:
    """Every update weighs its share of what the later ones left; with the first model's rest the weights sum to one."""
    mixing = slot.mixing()
    updates, shares, model = [model_of(seed + k, NARROW) for k in range(len(ages) + 1)], [1.0], model_of(seed, NARROW)
    for age, update in zip(ages, updates[1:], strict=True):
        share = mixing.share(age)
        assert 0 < share <= mixing.share(0) < 1
        model = mixing.mix(model, update, NARROW, share)
        shares = [*((1 - share) * s for s in shares), share]
    assert sum(shares) == pytest.approx(1)
    assert_close(model.arrays(), weighted_mean(updates, shares, NARROW).arrays())


@few
@given(weights, seeds, st.randoms(use_true_random=False))
def test_parts_of_a_mean_know_no_order_and_are_the_plain_sums(shares: list[float], seed: int, draw: Any) -> None:
    updates = [model_of(seed + k) for k in range(len(shares))]
    mean = weighted_mean(updates, shares, LAYOUT)
    order = draw.sample(range(len(shares)), len(shares))
    shuffled, moved = [updates[i] for i in order], [shares[i] for i in order]
    labelled = [float(i % 2) for i in range(len(shares))]
    rows = [update.arrays() for update in updates]
    means = np.stack([row["n.running_mean"] for row in rows])
    pooled = np.average([row["n.running_var"] for row in rows], axis=0, weights=shares)
    pooled += np.average((means - np.average(means, axis=0, weights=shares)) ** 2, axis=0, weights=shares)
    apart = np.average([r["classifier.w"] for r in rows], axis=0, weights=labelled) if any(labelled) else None
    for sources, given_weights, given_labels in (
        (updates, shares, labelled),
        (shuffled, moved, [labelled[i] for i in order]),
    ):
        mean_apart = average_apart(pool_variances(mean, sources, given_weights), sources, given_labels, "classifier.")
        expected = {**mean.arrays(), "n.running_var": pooled}
        assert_close(mean_apart.arrays(), expected if apart is None else {**expected, "classifier.w": apart})


def test_pooled_centroids_know_no_order() -> None:
    """Orchestra's memory; the sums of its steps are float64, and three steps show what 500 would."""
    pooled = torch.from_numpy(np.random.default_rng(1).normal(size=(24, 6)))
    start = torch.from_numpy(np.random.default_rng(2).normal(size=(5, 6)))
    units, shuffled = (rows / rows.norm(dim=1, keepdim=True) for rows in (pooled, pooled.flip(0)))
    start = start / start.norm(dim=1, keepdim=True)
    centroids, reordered = (global_centroids(start, rows, 3) for rows in (units, shuffled))
    torch.testing.assert_close(reordered, centroids)
    torch.testing.assert_close(centroids.norm(dim=1), torch.ones(5, dtype=torch.float64))
    assert not torch.equal(centroids, start)


def pieces_with_memories() -> dict[str, EngineHooks]:
    """A preset's piece for every kind of memory but Orchestra's, whose 500 steps take a while."""
    kinds = {}
    for preset in PRESETS.values():
        for slot, memory in Strategy.of(preset.slots, of_classes(CLASSES), 0).memories.items():
            kinds[type(memory).__name__] = getattr(preset.slots, slot)
    assert kinds.keys() >= {"ClassThresholds", "CountedUpdates", "HelperModels", "LabelledPrior", "MeanImages"}
    return {kind: piece for kind, piece in kinds.items() if kind != "GlobalCentroids"}


MEMORIES = pieces_with_memories()


def announced(silo: str, seed: int) -> Announcement:
    """An announcement with everything that a memory may read."""
    draws = np.random.default_rng([seed, ord(silo)])
    auxiliary = {
        "counts": draws.integers(0, 9, CLASSES),
        "label_counts": draws.integers(0, 9, CLASSES),
        "embedding": draws.dirichlet(np.ones(CLASSES)),
        "class_means": draws.normal(size=(CLASSES, 2)).astype(np.float32),
    }
    update = model_of(seed, NARROW).manifest if draws.random() < 0.8 else None
    return Announcement("t", {"train": 5}, auxiliary, {}, update)


def large(memory: RoundMemory, silo: str, seed: int) -> LargeArrays:
    """Images as they come behind an update, under the names that a memory takes."""
    draws = np.random.default_rng([seed, ord(silo)])
    names, of_labels = sorted(memory.takes), draws.integers(0, CLASSES, 2)
    arrays = draws.normal(size=(2, 1, 4, 4)).astype(np.float32), np.eye(CLASSES, dtype=np.float32)[of_labels]
    sent = dict(zip(names, arrays, strict=True))
    layout = layout_of(sent)
    return LargeArrays(layout, ModelBytes.from_arrays(layout, sent))


def conclude(memory: RoundMemory, announcements: Mapping[str, Announcement], seed: int) -> None:
    for silo in announcements if memory.takes else ():
        memory.receive(silo, large(memory, silo, seed))
    memory.conclude(announcements)


def told(memory: RoundMemory, silo: str) -> AuxiliaryData:
    """What a silo is told, and what else the memory would do for it."""
    helpers = getattr(memory, "helpers_of", None)
    chosen = {"helpers": np.array([ord(other) for other in helpers(silo, "abcdef")])} if helpers is not None else {}
    behind = memory.behind(silo)
    pool = {e.name: behind.rows(e.name, 0, e.shape[0]) for e in behind.layout.tensors} if behind else {}
    return {**memory.auxiliary_data(silo), **chosen, **pool}


@pytest.mark.parametrize("kind", MEMORIES)
@few
@given(st.lists(st.sets(st.sampled_from("abcdef")), min_size=1, max_size=3), seeds, st.randoms(use_true_random=False))
def test_a_memory_knows_no_order_of_silos_and_no_interruption(
    kind: str, rounds: list[set[str]], seed: int, draw: Any
) -> None:
    straight, broken = (MEMORIES[kind].memory(of_classes(CLASSES), 0) for _ in range(2))
    assert straight is not None and broken is not None
    straight.large, broken.large = HeldLarge(), HeldLarge()
    for number, silos in enumerate(rounds):
        announcements = {silo: announced(silo, seed + number) for silo in sorted(silos)}
        conclude(straight, announcements, seed + number)
        conclude(broken, {silo: announcements[silo] for silo in draw.sample(sorted(silos), len(silos))}, seed + number)
        state, large_before = {k: v.copy() for k, v in broken.state().items()}, broken.large
        broken = MEMORIES[kind].memory(of_classes(CLASSES), 0)
        assert broken is not None
        broken.large = large_before
        broken.restore(state)
        for silo in "abcdefg":
            assert_close(told(broken, silo), told(straight, silo))
            prior = straight.auxiliary_data(silo).get("prior")
            assert prior is None or (prior.sum() == pytest.approx(1) and (prior >= 0).all())
