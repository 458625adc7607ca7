"""Rounds of mixed images, SCAFFOLD and SOLO: what leaves once, what is kept, and what comes of a silo that lost it."""

import numpy as np
import pytest
from learning_party import CLASSES, Party, given, images_of, memory_of, method_of

from anchorage.api.errors import AnchorageError
from anchorage.pieces.input_mixing import pool
from anchorage.pieces.input_mixing.pool import DIGEST, LARGEST_POOL_BYTES, WANTED
from anchorage.transport.grpc.calls import MAX_DOWN_BYTES, MAX_UP_BYTES
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.model import ModelBytes

FEDMIX = method_of("FedMix", inputMixing={"groupSize": 4})


def announced(images, labels, **side) -> Announcement:
    arrays = {"mean_images": np.asarray(images, np.float32), "mean_labels": np.asarray(labels, np.float32)}
    return Announcement("task", {}, {**arrays, **side}, {}, None)


def with_means(tmp_path, method=FEDMIX):
    """Two silos after a first round, and the server's memory of it."""
    memory = memory_of(method)
    parties = {name: Party(method, given("All"), tmp_path / name, "All", silo=name) for name in ("a", "b")}
    memory.conclude({name: party.train(1, memory.auxiliary_data(name)) for name, party in parties.items()})
    return parties["a"], memory


def test_a_share_of_nothing_is_fedavg(tmp_path):
    plain = Party(method_of("FedAvg"), given("All"), tmp_path / "a", "All").digest()
    for name in ("FedMix", "NaiveMix", "LocalMix"):
        method = method_of(name, inputMixing={"share": "0"})
        assert Party(method, given("All"), tmp_path / name, "All").digest() == plain
    assert Party(FEDMIX, given("All"), tmp_path / "first", "All").digest() == plain, "without a pool, too"


@pytest.mark.parametrize("name", ["FedMix", "NaiveMix", "GlobalMixup", "FedProxFedMix"])
def test_means_leave_once_and_come_once(tmp_path, name):
    method = method_of(name) if name == "GlobalMixup" else method_of(name, inputMixing={"groupSize": 4})
    party, memory = with_means(tmp_path, method)
    kind = "raw" if name == "GlobalMixup" else "mean"
    first = memory.auxiliary_data("a")
    assert first[WANTED].tolist() == [0] and len(first[f"{kind}_images"]) == (52 if kind == "raw" else 12)
    second = party.train(2, first)
    assert set(second.side) == {DIGEST} and second.update.digest != _plain(tmp_path, method).digest(2)
    memory.conclude({"a": second})
    assert set(memory.auxiliary_data("a")) == {WANTED, DIGEST}, "a keeps the pool"
    assert f"{kind}_images" in memory.auxiliary_data("b")
    party.restart()
    kept = party.train(3, memory.auxiliary_data("a"))
    assert kept.update.digest == party.train(3, memory.auxiliary_data("b")).update.digest

    lost = Party(method, given("All"), tmp_path / "lost", "All", silo="a").train(3, memory.auxiliary_data("a"))
    assert set(lost.side) == set() and lost.update.digest == _plain(tmp_path, method).digest(3)
    memory.conclude({"a": lost})
    assert f"{kind}_images" in memory.auxiliary_data("a"), "so it is told again"


def _plain(tmp_path, method):
    plain = method.model_copy(update={"input_mixing": method_of("FedAvg").input_mixing})
    return Party(plain, given("All"), tmp_path / "plain", "All", silo="a")


def test_what_a_mean_is_of(tmp_path):
    announcement = Party(FEDMIX, given("All"), tmp_path, "All").train(1, {WANTED: np.ones(1, np.uint8)})
    images, labels = announcement.side["mean_images"], announcement.side["mean_labels"]
    assert images.shape == (6, 1, 8, 8) and images.dtype == labels.dtype == np.float32  # of 26, the last of 6
    assert announcement.samples["smallest_group"] == 4
    assert (abs(labels.sum(1, dtype=float) - 1) <= 1e-6).all()
    sizes = np.array([4, 4, 4, 4, 4, 6])
    assert (sizes[:, None] * labels).sum(0).tolist() == pytest.approx([9, 9, 8])
    again = Party(FEDMIX, given("All"), tmp_path / "b", "All").train(7, {WANTED: np.ones(1, np.uint8)})
    np.testing.assert_array_equal(again.side["mean_images"], images)  # never drawn anew: differences would tell


def test_one_image_stays(tmp_path):
    announcement = Party(FEDMIX, images_of(1), tmp_path, "All").train(1, {WANTED: np.ones(1, np.uint8)})
    assert announcement.update is not None and announcement.side == {}


def test_means_that_no_message_carries_are_refused(tmp_path, monkeypatch):
    assert pool.LARGEST_UPLOAD_BYTES <= MAX_UP_BYTES - 2**19
    assert LARGEST_POOL_BYTES <= MAX_DOWN_BYTES // 2 - 2**20
    monkeypatch.setattr(pool, "LARGEST_UPLOAD_BYTES", 6 * (64 + CLASSES) * 4 - 1)
    with pytest.raises(AnchorageError, match="MeansTooLarge: 6 images of 8 x 8 .*raise inputMixing.groupSize"):
        Party(FEDMIX, given("All"), tmp_path, "All").train(1, {WANTED: np.ones(1, np.uint8)})
    memory = memory_of(FEDMIX)
    rows = LARGEST_POOL_BYTES // (4 * 65 * 65) + 1
    with pytest.raises(AnchorageError, match="MeansTooLarge: the pool of .*raise inputMixing.groupSize"):
        memory.conclude({"a": announced(np.zeros((rows, 1, 65, 65)), np.tile([1, 0, 0], (rows, 1)))})


def test_a_pool_tells_nothing_of_whose_the_means_are_and_survives():
    draw = np.random.default_rng(0)
    own = {silo: announced(draw.random((3, 1, 2, 2)), np.eye(3)) for silo in ("a", "b")}
    memory, reverse, restored = (memory_of(FEDMIX) for _ in range(3))
    memory.conclude(own)
    reverse.conclude(dict(reversed(own.items())))
    memory.conclude({"a": announced([], [], **{DIGEST: memory.auxiliary_data("a")[DIGEST]})})
    restored.restore(memory.state())
    for silo in ("a", "b", "c"):
        one, other = memory.auxiliary_data(silo), restored.auxiliary_data(silo)
        assert one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
    np.testing.assert_array_equal(memory.auxiliary_data("b")["mean_images"], reverse.auxiliary_data("b")["mean_images"])
    assert set(memory.auxiliary_data("a")) == {WANTED, DIGEST} and memory.auxiliary_data("c")[WANTED] == 1


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        (np.zeros((1, 1, 3, 3)), [[1, 0, 0]]),  # another size than the first silo's
        (np.full((1, 1, 2, 2), np.nan), [[1, 0, 0]]),
        (np.zeros((1, 1, 2, 2)), [[0.5, 0.4, 0]]),
        (np.zeros((1, 1, 2, 2)), [[1.5, -0.5, 0]]),
        (np.zeros((1, 1, 2, 2)), [[1, 0]]),
    ],
)
def test_means_that_mean_nothing_are_left_out(images, labels):
    memory = memory_of(FEDMIX)
    memory.conclude({"a": announced(np.zeros((1, 1, 2, 2)), [[0, 1, 0]])})
    memory.conclude({"b": announced(images, labels)})
    assert memory.auxiliary_data("b")[WANTED].tolist() == [1]
    assert len(memory.auxiliary_data("b")["mean_images"]) == 1


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
    own = {name: array.copy() for name, array in party.arrays().items()}
    second = party.digest(2)
    party.restart()
    assert party.digest(2) == second
    assert Party(method, given("All"), tmp_path / "b", "All").digest(2) != second
    plain = Party(method_of("FedAvg"), given("All"), tmp_path / "c", "All")
    plain.model = ModelBytes.from_arrays(plain.server.down, own)
    assert plain.digest(2) == second
    step = method.server_step.step()
    assert step.apply(party.model, ModelBytes.of(party.server.up, party.update), 1, 1.0).digest == party.model.digest
