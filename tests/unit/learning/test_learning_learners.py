"""Server and silo learners end to end on small synthetic images."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anchorage.aggregation import build_memory
from anchorage.data import ImageSet
from anchorage.errors import AnchorageError
from anchorage.learning import build_server_learner, build_silo_learner, train_on_anchors_alone
from anchorage.learning.weights import load
from anchorage.messages import Announcement, SideChannel, Task, TaskKind
from anchorage.methods import PRESETS, resolve
from anchorage.spec.method import MethodSpec, ResolvedMethod
from anchorage.spec.model import ModelSpec
from anchorage.spec.run import RunDescription
from anchorage.tensors.layout import Layout
from anchorage.tensors.model import ModelBytes, read_arrays

CLASSES = 3
MODEL = ModelSpec(name="SmallCnn", num_classes=CLASSES, image_size=8, channels=1, augmentation="Digits")


def _images(count: int, seed: int = 0, labelled: bool = True) -> ImageSet:
    """Images whose bright corner tells the class, with noise."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    pixels = rng.integers(0, 60, (count, 1, 8, 8), dtype=np.uint8)
    for row, label in enumerate(labels):
        y, x = divmod(int(label), 2)
        pixels[row, 0, 4 * y : 4 * y + 4, 4 * x : 4 * x + 4] += 150
    names = tuple(map(str, range(count)))
    classes = tuple(map(str, range(CLASSES)))
    given = labels.astype(np.int64) if labelled else np.full(count, -1, np.int64)
    return ImageSet(pixels, given, names, names, classes)


def _method(name: str, **slots: dict[str, Any]) -> ResolvedMethod:
    local = {"epochs": 1, "batchSize": 8, **slots.pop("local", {})}
    return resolve(MethodSpec.model_validate({"name": name, "local": local, **slots}))


@dataclass
class Party:
    """One silo's learner and what its last task gave."""

    method: ResolvedMethod
    images: ImageSet
    state: Path
    labels: str = "None"
    seed: int = 1
    silo: str = "north"
    initial: ModelBytes | None = None
    update: NDArray[np.uint8] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        anchors = _images(12, seed=9)
        self.server = build_server_learner(
            model=MODEL, method=self.method, seed=self.seed, anchors=anchors, test=_images(30, 8)
        )
        self.model = self.server.initialise() if self.initial is None else self.initial
        self.run = RunDescription(
            federation="f",
            seed=self.seed,
            model=MODEL,
            method=self.method,
            down=self.server.down.to_json(),
            up=self.server.up.to_json(),
            rounds=5,
            mode="Synchronous",
        )
        self.restart()

    def restart(self) -> None:
        """Make the learner anew, as a killed trainer is."""
        self.learner = build_silo_learner(
            run=self.run, silo=self.silo, labels=self.labels, images=self.images, state=self.state, device="cpu"
        )

    def task(self, round_number: int = 1, side: SideChannel | None = None) -> Task:
        memory = build_memory(self.method, CLASSES)
        remembered = memory.side_channel() if memory is not None else {}
        sent = {**self.server.side_channel(self.model, round_number), **remembered} if side is None else side
        return Task(f"{round_number}", TaskKind.TRAIN, round_number, self.model.manifest, sent)

    def train(self, round_number: int = 1, side: SideChannel | None = None) -> Announcement:
        self.steps: list[tuple[int, int]] = []
        self.update = None
        received = self.model.buffer()
        received.flags.writeable = False
        return self.learner.train(
            self.task(round_number, side), received, self._out, lambda done, total: self.steps.append((done, total))
        )

    def _out(self, nbytes: int) -> NDArray[np.uint8]:
        self.update = np.empty(nbytes, np.uint8)
        return self.update

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        return read_arrays(self.server.up, self.update)

    def digest(self, round_number: int = 1) -> str:
        update = self.train(round_number).update
        assert update is not None
        return update.digest


SUPERVISED = [
    _method(name)
    for name in (
        "FedAvg",
        "FedProx",
        "DVW",
        "FedAvgM",
        "FedAdagrad",
        "FedAdam",
        "FedYogi",
        "CBAFedLowerBound",
        "MOON",
        "MOONL2",
        "Supervised",
    )
]
CONSISTENT = [
    _method(name, pseudoLabels={"threshold": "0"})
    for name in ("FedAvgFixMatch", "FedProxFixMatch", "FedAvgUDA", "FedProxUDA")
]
ADAPTIVE = [_method("CBAFed", pseudoLabels={"threshold": "0.2"})]
SEMI = [_method("FedAvgSemi"), _method("SemiAnAgg"), *CONSISTENT, *ADAPTIVE]
SERVED = [_method(name, pseudoLabels={"threshold": "0"}) for name in ("SemiFL", "FedAvgFixMatchAlternate")]
ANCHOR = [
    _method("FedAnchor", pseudoLabels=pseudo, mixup=mixup, **other)
    for pseudo, mixup, other in [
        ({"threshold": "0"}, {}, {}),
        ({"threshold": "0"}, {"at": "None"}, {}),
        ({"threshold": "0"}, {"at": "Both", "redraw": "Epoch"}, {}),
        ({"threshold": "0", "views": 3}, {"at": "Server"}, {}),
        ({"threshold": "0", "anchors": "Raw"}, {}, {"serverTraining": {"contrastive": "Disabled"}}),
        ({"threshold": "0"}, {}, {"weighting": {"type": "SemiAnAgg"}}),
        ({"threshold": "0"}, {}, {"weighting": {"type": "DVW", "validationPercent": 20}}),
    ]
]
EVERY = (
    [(m, "All") for m in SUPERVISED + SEMI]
    + [(m, "None") for m in SEMI + SERVED + ANCHOR]
    + [(m, "Partial") for m in SEMI]
)


def _given(labels: str) -> ImageSet:
    images = _images(26)
    if labels == "Partial":
        known = np.where(np.arange(26) < 10, images.labels, -1)
        return ImageSet(images.images, known, images.ids, images.groups, images.classes)
    return images


@pytest.mark.parametrize(("method", "labels"), EVERY)
def test_every_method_trains_and_repeats_to_the_same_bytes(tmp_path, method, labels):
    first = Party(method, _given(labels), tmp_path / "a", labels)
    announcement = first.train()
    assert announcement.update is not None
    assert announcement.update.layout == first.server.up.digest
    assert ModelBytes.of(first.server.up, first.update).digest == announcement.update.digest
    assert first.steps[-1][0] == first.steps[-1][1] == len(first.steps) > 0
    assert announcement.samples["train"] > 0
    received = first.model.arrays()
    changed = [n for n, a in first.arrays().items() if not np.array_equal(a, received[n])]
    assert set(changed) == set(first.arrays()), (
        "every tensor that travels was trained"
    )  # METHODS.md section 12, number 9
    assert first.arrays()["encoder.norms.0.num_batches_tracked"].dtype == np.int64

    second = Party(method, _given(labels), tmp_path / "b", labels)
    other = Party(method, _given(labels), tmp_path / "c", labels, seed=2)
    other.train()  # other work in between changes nothing
    second.learner.evaluate(second.task(), second.model.buffer())
    assert second.digest() == announcement.update.digest
    first.restart()
    assert first.digest() == announcement.update.digest, "a repeated task gives the same bytes"


def test_silos_draw_differently(tmp_path):
    one, two = (Party(ANCHOR[0], _given("None"), tmp_path / s, silo=s) for s in ("a", "b"))
    assert one.digest() != two.digest()


def test_the_thread_count_of_the_caller_does_not_matter(tmp_path):
    import torch

    before = torch.get_num_threads()
    party = Party(ANCHOR[0], _given("None"), tmp_path / "a")
    expected = party.digest()
    torch.set_num_threads(2)
    try:
        assert party.digest() == expected
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(party.digest()))
        thread.start()
        thread.join()
        assert found == [expected]
    finally:
        torch.set_num_threads(before)


def test_what_is_announced(tmp_path):
    images = _given("Partial")
    party = Party(_method("SemiAnAgg"), images, tmp_path, "Partial")
    announcement = party.train()
    assert {k: announcement.samples[k] for k in ("train", "labelled", "unlabelled")} == {
        "train": 26, "labelled": 10, "unlabelled": 16,
    }  # fmt: skip
    similarity = announcement.side["similarity"]
    assert similarity.shape == (CLASSES,) and similarity.dtype == np.float64
    assert np.isnan(similarity).sum() < CLASSES or announcement.samples["selected"] == 0
    assert set(announcement.metrics) == {"loss", "acceptance", "seconds"}


def test_labelled_silos_say_nothing_of_similarity(tmp_path):
    announcement = Party(_method("SemiAnAgg"), _given("All"), tmp_path, "All").train()
    assert np.isnan(announcement.side["similarity"]).all()
    assert announcement.samples["selected"] == 0


def test_labels_of_a_silo_without_labels_are_not_looked_at(tmp_path):
    images = _given("None")
    bare = ImageSet(images.images, np.full(26, -1, np.int64), images.ids, images.groups, images.classes)
    shown, hidden = (Party(_method("SemiAnAgg"), i, tmp_path / n) for i, n in ((images, "a"), (bare, "b")))
    assert shown.digest() == hidden.digest()


def test_raw_anchors_and_prototypes_give_the_same_labels(tmp_path):
    counts = {}
    for anchors in ("Prototypes", "Raw"):
        method = _method("FedAnchor", pseudoLabels={"anchors": anchors, "threshold": "0.5"})
        party = Party(method, _given("None"), tmp_path / anchors)
        counts[anchors] = (party.train().samples["selected"], set(party.server.side_channel(party.model, 1)))
    assert counts["Raw"][0] == counts["Prototypes"][0]
    assert counts["Raw"][1] == {"anchors", "anchor_labels"} and counts["Prototypes"][1] == {"prototypes"}


def test_nothing_accepted_is_inactive(tmp_path):
    party = Party(_method("FedAnchor", pseudoLabels={"threshold": "1"}), _given("None"), tmp_path)
    announcement = party.train()
    assert announcement.update is None and party.update is None
    assert announcement.samples["selected"] == 0


def test_no_labels_and_no_pseudo_labels_is_inactive(tmp_path):
    assert Party(_method("FedAvg"), _given("None"), tmp_path).train().update is None


def test_one_image_cannot_be_a_batch_of_fedanchor(tmp_path):
    party = Party(ANCHOR[0], _images(1), tmp_path)
    assert party.train().update is None


def test_the_anchor_head_stays_at_the_server(tmp_path):
    party = Party(ANCHOR[0], _given("None"), tmp_path)
    heads = {t.name for t in party.server.down.tensors if t.name.startswith("anchor_head.")}
    assert len(heads) == 2
    assert heads.isdisjoint(t.name for t in party.server.up.tensors)
    party.train()
    network = party.learner._network
    assert all(p.grad is None for n, p in network.named_parameters() if n.startswith("anchor_head."))
    received = party.model.arrays()
    assert all(np.array_equal(network.state_dict()[n].numpy(), received[n]) for n in heads)


def test_without_contrast_and_anchors_there_is_no_anchor_head():
    server = build_server_learner(model=MODEL, method=_method("FedAvg"), seed=1, anchors=None, test=None)
    assert server.down == server.up
    assert server.evaluate(server.initialise(), 0).metrics == {}


def test_momentum_and_curriculum_persist(tmp_path):
    method = _method("SemiAnAgg")
    party = Party(method, _given("None"), tmp_path / "a")
    party.train(1)
    second = party.digest(2)
    party.restart()
    assert party.digest(2) == second, "round 2 again starts from what round 1 kept"
    fresh = Party(method, _given("None"), tmp_path / "b")
    assert fresh.digest(2) != second


def test_what_persists_outlives_an_extended_run(tmp_path):
    digests = []
    for rounds in (5, 50):
        party = Party(_method("SemiAnAgg"), _given("All"), tmp_path / str(rounds), "All")
        party.digest(1)
        party.run = party.run.model_copy(update={"rounds": rounds})
        party.restart()
        digests.append(party.digest(2))
    assert digests[0] == digests[1]


def test_momentum_that_is_reset_leaves_no_state(tmp_path):
    party = Party(ANCHOR[0], _given("None"), tmp_path)
    party.train(1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", [ANCHOR[0], SEMI[1]])
def test_pseudo_labels_come_from_eval_mode(tmp_path, method):
    party = Party(method, _given("None"), tmp_path)
    modes = []  # a frozen copy of the received model takes the hook along
    party.learner._network.encoder.register_forward_pre_hook(
        lambda module, _: modes.append((module.training, module.norms[0].weight.requires_grad))
    )
    party.train()
    assert not modes[0][0]
    assert (True, True) in modes
    assert (True, False) not in modes, "the frozen copy never sees batch statistics"


def test_wrong_random_anchor_is_refused(tmp_path):
    party = Party(_method("SemiAnAgg"), _given("None"), tmp_path)
    side = {"random_anchor": np.zeros(32, np.uint8)}
    with pytest.raises(AnchorageError, match="RandomAnchorDiffers"):
        party.train(1, side)


def test_missing_prototypes_are_refused(tmp_path):
    with pytest.raises(AnchorageError, match="SideChannelMissing"):
        Party(ANCHOR[0], _given("None"), tmp_path).train(1, {})


def test_a_loss_that_is_not_finite_is_refused(tmp_path):
    method = _method("FedAvg", local={"epochs": 3, "optimiser": {"learningRate": "999999999"}})
    party = Party(method, _given("All"), tmp_path, "All")
    with pytest.raises(AnchorageError, match="LossNotFinite"):
        party.train()


def test_a_model_of_another_shape_is_refused(tmp_path):
    party = Party(_method("FedAvg"), _given("All"), tmp_path, "All")
    layout = party.server.down
    with pytest.raises(AnchorageError, match="ModelMismatch"):
        load(party.learner._network, layout.select([t.name for t in layout.tensors][1:]), party.model.buffer())


def test_images_of_another_size_are_refused(tmp_path):
    images = _given("All")
    large = ImageSet(np.zeros((26, 1, 9, 9), np.uint8), images.labels, images.ids, images.groups, images.classes)
    with pytest.raises(AnchorageError, match="ModelMismatch"):
        Party(_method("FedAvg"), large, tmp_path, "All")


def test_a_class_without_anchors_is_refused():
    anchors = _images(12).select(np.flatnonzero(_images(12).labels != 1))
    with pytest.raises(AnchorageError, match="no anchor of class 1"):
        build_server_learner(model=MODEL, method=ANCHOR[0], seed=1, anchors=anchors, test=None)
    with pytest.raises(AnchorageError, match="AnchorsMissing"):
        build_server_learner(model=MODEL, method=ANCHOR[0], seed=1, anchors=None, test=None)


def test_an_unknown_device_is_refused(tmp_path):
    with pytest.raises(AnchorageError, match="DeviceUnavailable"):
        build_server_learner(model=MODEL, method=ANCHOR[0], seed=1, anchors=_images(6), test=None, device="abacus")


def test_weights_to_start_from(tmp_path):
    from safetensors.numpy import save_file

    method = _method("FedAvg")
    given = build_server_learner(model=MODEL, method=method, seed=5, anchors=None, test=None).initialise()
    path = tmp_path / "start.safetensors"
    save_file(given.arrays(), path)
    server = build_server_learner(model=MODEL, method=method, seed=6, anchors=None, test=None, initial=path)
    assert server.initialise().digest == given.digest
    path.write_bytes(b"not tensors")
    with pytest.raises(AnchorageError, match="ModelMismatch"):
        server.initialise()


def test_server_training_is_a_function_of_model_and_round():
    def server():
        return build_server_learner(model=MODEL, method=ANCHOR[0], seed=1, anchors=_images(12, 9), test=_images(30, 8))

    first, second = server(), server()
    start = first.initialise()
    assert second.initialise().digest == start.digest
    after, metrics = first.train(start, 1)
    first.train(after, 2)
    again, _ = second.train(start, 1)
    assert again.digest == after.digest != start.digest
    assert set(metrics) == {"server_loss", "contrastive_loss"}
    changed = {n for n, a in after.arrays().items() if not np.array_equal(a, start.arrays()[n])}
    assert {"anchor_head.weight", "classifier.weight"} <= changed


def test_the_report(tmp_path):
    server = build_server_learner(model=MODEL, method=ANCHOR[0], seed=1, anchors=_images(30, 9), test=_images(600, 8))
    report = server.evaluate(server.initialise(), 0)
    assert set(report.metrics) == {"accuracy", "balanced_accuracy", "macro_precision", "macro_auc", "loss"}
    assert report.confusion.sum() == 600 and report.confusion.dtype == np.int64
    assert np.trace(report.confusion) / 600 == report.metrics["accuracy"]
    assert report.embeddings.shape == (500, 2 + 128) and report.embeddings.dtype == np.float32


def test_anchors_alone():
    report = train_on_anchors_alone(
        model=MODEL, method=ANCHOR[0], seed=1, anchors=_images(30, 9), test=_images(60, 8), rounds=2
    )
    assert report.metrics["accuracy"] > 0.5


def test_scoring_on_true_labels(tmp_path):
    party = Party(_method("DVW", weighting={"validationPercent": 50}), _given("All"), tmp_path / "a", "All")
    announcement = party.train()
    task = Task("e", TaskKind.EVALUATE, 1, announcement.update)
    evaluation = party.learner.evaluate(task, party.update)
    assert evaluation.task == "e"
    assert evaluation.confusion.tolist() == announcement.side["validation"].tolist()
    assert evaluation.confusion[1] == 26 - announcement.samples["train"] == 14
    full = Party(_method("DVW", weighting={"metric": "MCC"}), _given("All"), tmp_path / "b", "All")
    assert full.train().side["validation"].shape == (CLASSES, CLASSES)


def test_scoring_on_accepted_pseudo_labels_of_the_round(tmp_path):
    party = Party(ANCHOR[-1], _given("None"), tmp_path)
    task = Task("e", TaskKind.EVALUATE, 1, party.model.manifest)
    assert party.learner.evaluate(task, party.model.buffer()).confusion.tolist() == [0, 0]
    party.train(1)
    scored = party.learner.evaluate(task, party.model.buffer()).confusion
    assert scored[1] == 5
    party.restart()
    assert party.learner.evaluate(task, party.model.buffer()).confusion.tolist() == scored.tolist()
    late = Task("e", TaskKind.EVALUATE, 2, party.model.manifest)
    assert party.learner.evaluate(late, party.model.buffer()).confusion.tolist() == [0, 0]


def test_evaluation_beside_training_changes_neither(tmp_path):
    party = Party(_method("DVW", local={"epochs": 4}), _given("All"), tmp_path / "a", "All")
    task = Task("e", TaskKind.EVALUATE, 1, party.model.manifest)
    alone, expected = party.digest(), party.learner.evaluate(task, party.model.buffer()).confusion.tolist()
    begun, scores = threading.Event(), []

    def score() -> None:
        begun.wait(30)
        scores.extend([party.learner.evaluate(task, party.model.buffer()).confusion.tolist() for _ in range(5)])

    thread = threading.Thread(target=score)
    thread.start()
    announcement = party.learner.train(party.task(), party.model.buffer(), party._out, lambda done, total: begun.set())
    thread.join()
    assert announcement.update.digest == alone
    assert scores == [expected] * 5


def test_presets_are_all_covered():
    assert set(PRESETS) == {m.name for m, _ in EVERY}


def test_layouts_travel_as_json(tmp_path):
    party = Party(ANCHOR[0], _given("None"), tmp_path)
    assert Layout.from_json(party.run.down).digest == party.model.manifest.layout
