"""Rounds of mixed images, SCAFFOLD and SOLO: what leaves once, what is kept, and what comes of a silo that lost it."""

from typing import Any

import numpy as np
import pytest
from learning_party import CLASSES, Party, given, images_of, memory_of, method_of

from anchorage.api.errors import AnchorageError
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.pieces.input_mixing.mean_images import MIB, WANTED
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.large_arrays import LargeArrays, layout_of
from anchorage.transport.tensors.model import ModelBytes

FEDMIX = method_of("FedMix", inputMixing={"groupSize": 4})
ASKED = {WANTED: np.ones(1, np.uint8)}


def large(**arrays: Any) -> LargeArrays:
    layout = layout_of(arrays)
    return LargeArrays(layout, ModelBytes.from_arrays(layout, arrays))


def means(images: Any, labels: Any) -> LargeArrays:
    return large(mean_images=np.asarray(images, np.float32), mean_labels=np.asarray(labels, np.float32))


def pooled(memory: RoundMemory, **silos: LargeArrays) -> None:
    for silo, arrays in silos.items():
        memory.receive(silo, arrays)
    memory.conclude({})


def pool_of(memory: RoundMemory) -> dict[str, Any]:
    layout_behind = memory.behind()
    return (
        {}
        if layout_behind is None
        else {e.name: layout_behind.rows(e.name, 0, e.shape[0]) for e in layout_behind.layout.tensors}
    )


def sent_by(party: Party, announcement: Announcement) -> LargeArrays:
    update = announcement.update
    assert update is not None
    received = ModelBytes.of(layout_of({"bytes": party.update}), party.update)
    return LargeArrays(announcement.behind, received, update.nbytes - announcement.behind.nbytes)


def with_means(tmp_path, method=FEDMIX):
    """Two silos after a first round, and the server's memory of it."""
    memory = memory_of(method)
    parties = {name: Party(method, given("All"), tmp_path / name, "All", silo=name) for name in ("a", "b")}
    for name, party in parties.items():
        memory.receive(name, sent_by(party, party.train(1, memory.auxiliary_data(name))))
    memory.conclude({})
    return parties["a"], memory


def test_a_share_of_nothing_is_fedavg(tmp_path):
    plain = Party(method_of("FedAvg"), given("All"), tmp_path / "a", "All").digest()
    for name in ("FedMix", "NaiveMix", "LocalMix"):
        method = method_of(name, inputMixing={"share": "0"})
        assert Party(method, given("All"), tmp_path / name, "All").digest() == plain
    assert Party(FEDMIX, given("All"), tmp_path / "first", "All").digest() == plain, "without a pool, too"


@pytest.mark.parametrize("name", ["FedMix", "NaiveMix", "GlobalMixup", "FedProxFedMix"])
def test_means_leave_once_and_the_pool_comes_behind_every_model(tmp_path, name):
    method = method_of(name) if name == "GlobalMixup" else method_of(name, inputMixing={"groupSize": 4})
    party, memory = with_means(tmp_path, method)
    kind = "raw" if name == "GlobalMixup" else "mean"
    auxiliary = memory.auxiliary_data("a")
    assert auxiliary.keys() == {WANTED} and auxiliary[WANTED].tolist() == [0]
    assert len(pool_of(memory)[f"{kind}_images"]) == (52 if kind == "raw" else 12)
    plain = Party(
        method.model_copy(update={"input_mixing": method_of("FedAvg").input_mixing}),
        given("All"),
        tmp_path / "plain",
        "All",
        silo="a",
    )
    party.behind = memory.behind()
    second = party.train(2, auxiliary)
    assert not second.auxiliary_data and not second.behind.tensors and second.update.digest != plain.digest(2)
    party.restart()
    assert party.train(2, auxiliary).update.digest == second.update.digest, "nothing of the pool is kept elsewhere"
    party.behind = None
    assert party.train(2, auxiliary).update.digest == plain.digest(2), "without a pool the images stay as they are"


def test_what_a_mean_is_of(tmp_path):
    party = Party(FEDMIX, given("All"), tmp_path, "All")
    announcement = party.train(1, ASKED)
    sent = sent_by(party, announcement)
    images, labels = sent.rows("mean_images", 0, 6), sent.rows("mean_labels", 0, 6)
    assert announcement.auxiliary == {"mean_images", "mean_labels"}
    assert images.shape == (6, 1, 8, 8) and images.dtype == labels.dtype == np.float32  # of 26, the last of 6
    assert announcement.samples["smallest_group"] == 4
    assert (abs(labels.sum(1, dtype=float) - 1) <= 1e-6).all()
    sizes = np.array([4, 4, 4, 4, 4, 6])
    assert (sizes[:, None] * labels).sum(0).tolist() == pytest.approx([9, 9, 8])
    other = Party(FEDMIX, given("All"), tmp_path / "b", "All")
    second = sent_by(other, other.train(7, ASKED))
    np.testing.assert_array_equal(second.rows("mean_images", 0, 6), images)  # never drawn anew: differences would tell


def test_the_update_is_the_same_with_means_behind_it(tmp_path):
    party = Party(FEDMIX, given("All"), tmp_path, "All")
    alone = party.train(1, {})
    assert alone.behind.nbytes == 0
    update = party.update.copy()
    asked = party.train(1, ASKED)
    assert asked.trained and asked.update.nbytes == alone.update.nbytes + asked.behind.nbytes
    np.testing.assert_array_equal(party.update[: len(update)], update)


def test_one_image_stays(tmp_path):
    announcement = Party(FEDMIX, images_of(1), tmp_path, "All").train(1, ASKED)
    assert announcement.trained and announcement.auxiliary == set()


def test_means_beyond_the_documents_bound_are_refused(tmp_path):
    small = method_of("FedMix", inputMixing={"groupSize": 4, "maximumPoolMiB": 1})
    next_step = "maximumPoolMiB of spec.method.inputMixing allows 1 MiB; raise it, or groupSize"
    rows = MIB // (4 * (64 * 64 + CLASSES))
    images, labels = np.zeros((rows, 1, 64, 64)), np.tile([1, 0, 0], (rows, 1))
    memory = memory_of(small)
    allowed = means(images, labels)
    assert memory.refusal(allowed.layout.by_name) is None
    refusal = memory.refusal(means(np.zeros((rows + 1, 1, 64, 64)), np.tile([1, 0, 0], (rows + 1, 1))).layout.by_name)
    assert refusal is not None and next_step in str(refusal) and refusal.code == "ANC-1309"
    pooled(memory, a=allowed)
    with pytest.raises(AnchorageError, match=f"MeansTooLarge: the pool of {rows + 1} images of 2 silos .*{next_step}"):
        pooled(memory, b=means(np.zeros((1, 1, 64, 64)), [[1, 0, 0]]))
    assert len(pool_of(memory)["mean_images"]) == rows, "the pool stays as it was"
    many = images_of(5000)
    with pytest.raises(AnchorageError, match=f"MeansTooLarge: 5000 images of 8 x 8 pixels .*{next_step}"):
        Party(method_of("GlobalMixup", inputMixing={"maximumPoolMiB": 1}), many, tmp_path, "All").train(1, ASKED)


def test_a_pool_tells_nothing_of_whose_the_means_are_and_survives():
    draw = np.random.default_rng(0)
    silo_means = {silo: means(draw.random((3, 1, 2, 2)), np.eye(3)) for silo in ("a", "b")}
    memory, reverse, restored = (memory_of(FEDMIX) for _ in range(3))
    pooled(memory, **silo_means)
    pooled(reverse, b=silo_means["b"])
    pooled(reverse, a=silo_means["a"])
    restored.large = memory.large
    restored.restore(memory.state())
    for silo in ("a", "b", "c"):
        np.testing.assert_array_equal(memory.auxiliary_data(silo)[WANTED], restored.auxiliary_data(silo)[WANTED])
    pool = pool_of(memory)
    assert len(pool["mean_images"]) == 6
    for other in (reverse, restored):
        assert memory.behind().source.manifest.digest == other.behind().source.manifest.digest
        assert all(np.array_equal(pool[name], pool_of(other)[name]) for name in pool)
    pairs = {
        (i.tobytes(), label.tobytes())
        for s in silo_means.values()
        for i, label in zip(*(s.rows(n, 0, 3) for n in pool), strict=True)
    }
    assert {(i.tobytes(), label.tobytes()) for i, label in zip(*pool.values(), strict=True)} == pairs
    assert memory.auxiliary_data("c")[WANTED] == 1 and not memory.gathers_first


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        (np.full((1, 1, 2, 2), np.nan), [[1, 0, 0]]),
        (np.zeros((1, 1, 2, 2)), [[0.5, 0.4, 0]]),
        (np.zeros((1, 1, 2, 2)), [[1.5, -0.5, 0]]),
    ],
)
def test_means_that_mean_nothing_are_left_out(images, labels):
    memory = memory_of(FEDMIX)
    pooled(memory, a=means(np.zeros((1, 1, 2, 2)), [[0, 1, 0]]))
    pooled(memory, b=means(images, labels))
    assert memory.auxiliary_data("b")[WANTED].tolist() == [1]
    assert len(pool_of(memory)["mean_images"]) == 1


@pytest.mark.parametrize(
    "arrays",
    [
        {"mean_images": np.zeros((1, 1, 3, 3), np.float32), "mean_labels": np.ones((1, 3), np.float32)},  # another size
        {"mean_images": np.zeros((1, 1, 2, 2)), "mean_labels": np.ones((1, 3))},  # float64
        {"mean_images": np.zeros((2, 1, 2, 2), np.float32), "mean_labels": np.ones((1, 3), np.float32)},
        {"mean_images": np.zeros((1, 1, 2, 2), np.float32), "mean_labels": np.ones((1, 2), np.float32)},
        {"mean_images": np.zeros((0, 1, 2, 2), np.float32), "mean_labels": np.ones((0, 3), np.float32)},
        {"mean_images": np.zeros((1, 1, 2, 2), np.float32)},
    ],
)
def test_means_of_another_form_are_refused_before_they_arrive(arrays):
    memory = memory_of(FEDMIX)
    pooled(memory, a=means(np.zeros((1, 1, 2, 2)), [[0, 1, 0]]))
    refusal = memory.refusal(large(**arrays).layout.by_name)
    assert refusal is not None and refusal.code == "ANC-3003"


def test_scaffold_carries_its_variates_beside_the_network(tmp_path):
    method = method_of("SCAFFOLD", local={"batchSize": 8})
    party = Party(method, given("All"), tmp_path, "All")
    layout = party.server.down
    variates = [t for t in layout.tensors if t.name.startswith("control.")]
    assert len(variates) == len(list(party.learner._network.parameters()))
    assert not any("running" in t.name or "num_batches" in t.name for t in variates)
    party.train(1)
    sent = party.arrays()
    for name, parameter in party.model.of_network().arrays().items():
        if f"control.{name}" in sent:  # the mean gradient along the way: four steps of 0.01
            np.testing.assert_allclose(sent[f"control.{name}"], (parameter - sent[name]) / 0.04, rtol=1e-3, atol=1e-4)
    step = method.server_step.step()
    after = step.apply(party.model, ModelBytes.of(party.server.up, party.update), 1, 0.5)
    changed = after.arrays()
    name = "control.classifier.weight"
    np.testing.assert_allclose(changed[name], sent[name] / 2, rtol=1e-5)
    trained, _ = party.server.train(after, 1)
    assert trained.digest == after.digest
    assert party.server.evaluate(after, 1).metrics
    assert after.of_network().layout == Party(method_of("FedAvg"), given("All"), tmp_path / "b", "All").server.down


def test_scaffold_server_training_hands_its_variates_on(tmp_path):
    method = method_of("SCAFFOLD", serverTraining={"anchors": {"epochs": 1}})
    party = Party(method, given("All"), tmp_path, "All")
    arrays = {name: a + 1 if name.startswith("control.") else a for name, a in party.model.arrays().items()}
    trained, _ = party.server.train(ModelBytes.from_arrays(party.server.down, arrays), 1)
    assert (trained.arrays()["control.classifier.bias"] == 1).all()


def test_solo_goes_on_from_its_own_model(tmp_path):
    method = method_of("SOLO")
    party = Party(method, given("All"), tmp_path / "a", "All")
    party.train(1)
    arrays = {name: array.copy() for name, array in party.arrays().items()}
    second = party.digest(2)
    party.restart()
    assert party.digest(2) == second
    assert Party(method, given("All"), tmp_path / "b", "All").digest(2) != second
    plain = Party(method_of("FedAvg"), given("All"), tmp_path / "c", "All")
    plain.model = ModelBytes.from_arrays(plain.server.down, arrays)
    assert plain.digest(2) == second
    step = method.server_step.step()
    assert step.apply(party.model, ModelBytes.of(party.server.up, party.update), 1, 1.0).digest == party.model.digest
