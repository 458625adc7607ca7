"""Frozen encoders: what trains, what stays as it is, and that every image is encoded once (`spec.model.trainable`)."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from learning_party import CLASSES, MODEL, Party, given, images_of, method_of

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import LEARNER_STATE_UNWRITABLE, NETWORK_UNUSABLE
from anchorage.learning.draws import Draws
from anchorage.learning.encoded_views import KEPT_VIEWS, EncodedViews, views_of
from anchorage.learning.kept_embeddings import KeptEmbeddings
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.learning.network import Network
from anchorage.learning.views import Views

HEAD = MODEL.model_copy(update={"trainable": "Head"})
LAST = MODEL.model_copy(update={"trainable": "encoder.*.3"})
CPU = torch.device("cpu")


def party(folder: Path, name: str = "FedAvg", model=HEAD, labels: str = "All", **slots) -> Party:
    return Party(method_of(name, **slots), images_of(26), folder, labels=labels, described=model)


def network(model, name: str = "FedAvg") -> Network:
    return build_model(model, TrainingMethod.of(method_of(name)), 1)


def test_head_trains_what_is_no_encoder() -> None:
    built = network(HEAD, "FedAnchor")
    assert {n.split(".")[0] for n, p in built.named_parameters() if p.requires_grad} == {"classifier", "anchor_head"}
    assert built.frozen == {name for name in built.state_dict() if name.startswith("encoder.")}
    assert not built.train().encoder.training and built.classifier.training
    assert built.smallest_batch(8) == 1, "no statistics of a batch are needed"


def test_a_hidden_layer_sees_scaled_embeddings_and_trains() -> None:
    built = network(HEAD.model_copy(update={"hidden": 5})).eval()
    trained = {n: tuple(p.shape) for n, p in built.named_parameters() if p.requires_grad}
    assert trained == {
        "projection.hidden.weight": (5, 128),
        "projection.hidden.bias": (5,),
        "classifier.weight": (CLASSES, 5),
        "classifier.bias": (CLASSES,),
    }
    images = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    z = built.encoder(images)
    scaled = (z - z.mean(1, keepdim=True)) / (z.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    rectified = (scaled @ built.projection.hidden.weight.T + built.projection.hidden.bias).clamp_min(0)
    torch.testing.assert_close(built(images), built.classifier(rectified))


def test_a_silo_s_hidden_layer_travels_and_its_encoder_does_not(tmp_path: Path) -> None:
    silo = party(tmp_path, "FedAvg", HEAD.model_copy(update={"hidden": 5}))
    silo.train()
    assert {t.name for t in silo.server.up.tensors} == {
        n for n, p in network(silo.described).named_parameters() if p.requires_grad
    }


def test_names_train_tensors_and_modules_of_the_encoder() -> None:
    built = network(LAST).train()
    trained = {n for n, p in built.named_parameters() if p.requires_grad}
    assert trained >= {"encoder.convolutions.3.weight", "encoder.norms.3.bias", "classifier.weight"}
    assert not any(".2." in name for name in trained)
    assert [layer.training for layer in built.encoder.norms] == [False, False, False, True]


def test_a_name_that_the_encoder_lacks_is_told_with_those_it_has() -> None:
    with pytest.raises(AnchorageError, match=r"encoder\.layer9.*encoder\.convolutions\.0") as caught:
        network(MODEL.model_copy(update={"trainable": "encoder.norms,encoder.layer9"}))
    assert caught.value.failure is NETWORK_UNUSABLE


@pytest.mark.parametrize("name", ["FedAvg", "FedProx", "SCAFFOLD", "MOON", "FedRoD", "LocalMix"])
@pytest.mark.parametrize("model", [HEAD, LAST])
def test_frozen_tensors_stay_and_are_in_no_update(name: str, model, tmp_path: Path) -> None:
    silo = party(tmp_path, name, model)
    before = {n: t.clone() for n, t in silo.learner._network.state_dict().items() if n in silo.learner._network.frozen}
    announcement = silo.train()
    after = silo.learner._network.state_dict()
    assert announcement.trained and before
    assert not before.keys() & silo.arrays().keys()
    assert all(torch.equal(after[n], silo_tensor) for n, silo_tensor in before.items())
    sent = silo.model.arrays()
    assert any(not np.array_equal(array, sent[n]) for n, array in silo.arrays().items())


def test_no_optimiser_state_is_kept_of_frozen_tensors(tmp_path: Path) -> None:
    silo = party(tmp_path, local={"optimiser": {"sgd": {"state": "Persist"}}})
    silo.train()
    state = silo.learner._state.before(2)
    assert {name for name in state if name.startswith("momentum/")} == {
        "momentum/classifier.weight",
        "momentum/classifier.bias",
    }
    assert set(silo.learner._networks.momentum) == set(silo.learner._network.classifier.parameters())


def test_each_image_is_encoded_once(tmp_path: Path) -> None:
    silo = party(tmp_path, local={"epochs": 3})
    calls: list[int] = []
    silo.learner._network.encoder.register_forward_hook(lambda *call: calls.append(len(call[2])))
    for number in (1, 2):
        assert silo.train(number).trained
    assert calls == [16, 16], "26 images, and what the last pass is filled up with"
    silo.restart()
    digest = silo.digest(2)
    silo.restart()
    assert silo.digest(2) == digest


def test_plain_views_of_pseudo_labels_encode_each_image_once_and_teach_what_counts_correct(tmp_path: Path) -> None:
    """Soft labels of an image that is learnt as it was labelled have no gradient, unless the silo's counts correct them."""
    uda = {"threshold": "0", "temperature": "1", "views": "Plain"}
    changes = []
    for counts in (None, (20, 5, 1)):
        images = replace(images_of(26, labelled=False), stated_counts=counts)
        method = method_of("FedAvgUDA", pseudoLabels=uda, local={"optimiser": {"sgd": {"learningRate": "0.1"}}})
        silo = Party(method, images, tmp_path / str(counts), described=HEAD)
        before = {n: p.detach().clone() for n, p in silo.learner._network.named_parameters()}
        assert silo.train().samples["selected"] == 26
        assert set(silo.learner._images.views._by_kind) == {"plain"}
        after = dict(silo.learner._network.named_parameters())
        changes.append(max((after[n] - before[n]).abs().max().item() for n in before))
    assert changes[0] < 1e-4 < 1e-2 < changes[1]


@pytest.mark.parametrize(
    ("name", "labels", "accepting"),
    [
        ("FedAvgFixMatch", "Partial", {"threshold": "0"}),
        ("SAGE", "Partial", {"threshold": "0"}),
        ("FedPerl", "Partial", {"threshold": "0"}),
        ("SSILCDM", "Partial", {"threshold": "0"}),
        ("SemiFLNoMixup", "None", {"threshold": "0"}),
        ("FL2", "None", {}),
        ("ImFedSemi", "None", {"lowest": "0"}),
        ("FedCoPLBudget", "None", {}),
        ("CBAFed", "Partial", {"threshold": "0"}),
    ],
)
def test_plain_views_of_every_pseudo_labeller_encode_each_image_once(
    name: str, labels: str, accepting: dict[str, str], tmp_path: Path
) -> None:
    kinds = []
    for views in ("Augmented", "Plain"):
        slots = {"pseudoLabels": {"views": views, **accepting}}
        silo = Party(method_of(name, **slots), given(labels), tmp_path / views, labels=labels, described=HEAD)
        assert silo.train().samples["selected"]
        kinds.append(set(silo.learner._images.views._by_kind))
    assert kinds[0] - {"plain"} and kinds[1] == {"plain"}


def test_another_encoder_encodes_anew(tmp_path: Path) -> None:
    silo = party(tmp_path)
    silo.train()
    before = silo.learner._images.views.plain(torch.arange(26))
    other = party(tmp_path / "other", model=HEAD)
    silo.model = other.model.__class__.from_arrays(
        silo.model.layout,
        {n: a if a.dtype == np.int64 else a * np.float32(1.25) for n, a in silo.model.arrays().items()},
    )
    silo.train(2)
    assert not torch.equal(before, silo.learner._images.views.plain(torch.arange(26)))


def test_views_are_embeddings_of_views_that_were_drawn_once() -> None:
    built, pixels = network(HEAD).eval(), images_of(9).images
    views = views_of(pixels, HEAD, TrainingMethod.of(method_of("FedAvgFixMatch")), CPU, Draws(1, silo="a"))
    assert isinstance(views, EncodedViews)
    views.encoded_by(built)
    every, draws = torch.arange(9), torch.Generator().manual_seed(1)
    plain = Views(pixels, views._augmentation, CPU).plain(every)
    with torch.no_grad():
        assert torch.equal(views.plain(every), built.encoder(plain))
        assert torch.equal(built(views.plain(every)), built(plain)), "a network takes embeddings in the place of images"
    assert torch.equal(views.learnt(every, draws), views.plain(every))
    for drawn in (views.weak, views.strong):
        crops = torch.stack([drawn(every, draws) for _ in range(60)])
        assert {len(crops[:, image].unique(dim=0)) for image in range(9)} <= set(range(2, KEPT_VIEWS + 1))
        assert not torch.equal(crops[0], views.plain(every))
        alone = drawn(torch.tensor([4, 4]), draws)
        assert all((crops[:, 4] == row).all(1).any() for row in alone)


@pytest.mark.parametrize(("name", "model"), [("SemiFL", HEAD), ("LocalMix", HEAD), ("FedAvg", LAST), ("FedAvg", MODEL)])
def test_images_that_are_mixed_or_that_an_encoder_still_learns_from_are_seen_anew(name: str, model) -> None:
    views = views_of(images_of(9).images, model, TrainingMethod.of(method_of(name)), CPU, Draws(1))
    assert type(views) is Views


@pytest.mark.parametrize("name", ["FedAnchor", "FedAnchorNoMixup", "SemiFL", "SemiFLNoMixup"])
def test_the_server_trains_heads_alone(name: str, tmp_path: Path) -> None:
    silo = party(tmp_path, name, labels="None")
    model, _ = silo.server.train(silo.model, 1)
    assert model.manifest.fixed == silo.model.manifest.fixed and model.digest != silo.model.digest
    assert silo.server.evaluate(model, 1).metrics.keys() == silo.server.evaluate(silo.model, 0).metrics.keys()


def test_a_server_that_starts_again_makes_the_same_model(tmp_path: Path) -> None:
    silo = party(tmp_path, "FedAnchorNoMixup", labels="None")
    first, _ = silo.server.train(silo.model, 1)
    auxiliary = silo.server.auxiliary_data(first, 2)
    recomputed = party(tmp_path / "again", "FedAnchorNoMixup", labels="None")
    recomputed.server = recomputed.made_server()
    assert recomputed.server.auxiliary_data(first, 2)["prototypes"].tobytes() == auxiliary["prototypes"].tobytes()
    assert recomputed.server.train(first, 2)[0].digest == silo.server.train(first, 2)[0].digest


def test_an_update_is_scored_with_the_frozen_encoder_also_after_a_restart(tmp_path: Path) -> None:
    from anchorage.transport.messages import Task, TaskKind
    from anchorage.transport.tensors.joined import behind_front
    from anchorage.transport.tensors.model import ModelBytes

    silo = party(tmp_path, "DVW", weighting={"validationPercent": 20})
    silo.train()
    source = behind_front(ModelBytes.of(silo.server.up, silo.update), silo.server.up, silo.model)
    task = Task("1.evaluate", TaskKind.EVALUATE, 1, source.manifest)
    content = np.frombuffer(b"".join(source.chunk(i) for i in range(source.manifest.count)), np.uint8)
    score = silo.learner.evaluate(task, content).tally["validation"]
    silo.restart()
    np.testing.assert_array_equal(silo.learner.evaluate(task, content).tally["validation"], score)


def encoded(
    folder: Path | None, kind: str = "plain", *, built=None, pixels=None, seed: int = 1, silo: str = "a", model=HEAD
) -> tuple[torch.Tensor, int]:
    """Return embeddings as a run of its own has them, and how many times the encoder was asked for up to 16."""
    calls: list[int] = []
    built = (built or network(model)).eval()
    hook = built.encoder.register_forward_hook(lambda *call: calls.append(len(call[2])))
    pixels = images_of(9).images if pixels is None else pixels
    method = TrainingMethod.of(method_of("FedAvgFixMatch"))
    views = views_of(pixels, model, method, CPU, Draws(seed, silo=silo), folder)
    views.encoded_by(built)
    every, draws = torch.arange(len(pixels)), torch.Generator().manual_seed(1)
    views_found = views.plain(every) if kind == "plain" else views.weak(every, draws)
    hook.remove()
    assert set(calls) <= {16}
    return views_found, len(calls)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.numpy().tobytes() == other.numpy().tobytes()


@pytest.mark.parametrize(("kind", "views"), [("plain", 1), ("weak", KEPT_VIEWS)])
def test_what_another_run_encoded_is_not_encoded_again(kind: str, views: int, tmp_path: Path) -> None:
    first, count = encoded(tmp_path, kind)
    assert count == views and same_bits(first, encoded(None, kind)[0])
    recomputed, count = encoded(tmp_path, kind)
    assert count == 0 and same_bits(recomputed, first)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    for damaged in (content[:-40], b"", b"no database", content[:4096] + bytes(len(content) - 4096)):
        file.write_bytes(damaged)
        recomputed, count = encoded(tmp_path, kind)
        assert 0 < count <= views and same_bits(recomputed, first)
        assert encoded(tmp_path, kind)[1] == 0
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_another_draw_of_labels_or_silos_encodes_only_what_no_party_had(tmp_path: Path) -> None:
    pixels = images_of(60).images
    alone = encoded(None, pixels=pixels)[0]
    assert encoded(tmp_path, pixels=pixels[:40])[1] == 3
    order = np.random.default_rng(1).permutation(40)
    for silo, part in (("b", order[:7]), ("", order[7:])):
        embeddings, count = encoded(tmp_path, pixels=pixels[part], silo=silo, seed=5)
        assert count == 0 and same_bits(embeddings, alone[part])
    mixed = np.arange(60)[::-1]
    embeddings, count = encoded(tmp_path, pixels=pixels[mixed])
    assert count == 2 and same_bits(embeddings, alone[mixed.copy()]), "20 images were in no part before"


@pytest.mark.parametrize("name", ["SmallCnn", "ResNet9", "timm/resnet18", "timm/vit_tiny_patch16_224"])
def test_an_embedding_does_not_depend_on_what_is_encoded_with_it(name: str) -> None:
    if name.startswith("timm/"):
        pytest.importorskip("timm")
    model = HEAD.model_copy(update={"network": name, "image_size": 32, "channels": 3})
    pixels = np.random.default_rng(1).integers(0, 256, (37, 3, 32, 32), np.uint8)
    embeddings, order = encoded(None, pixels=pixels, model=model)[0], np.random.default_rng(2).permutation(37)
    for part in (order[:1], order[1:12], order[12:]):
        assert same_bits(encoded(None, pixels=pixels[part], model=model)[0], embeddings[part])


def test_a_damaged_embedding_is_made_again(tmp_path: Path) -> None:
    first, _ = encoded(tmp_path)
    (file,) = tmp_path.iterdir()
    with sqlite3.connect(file) as database:
        assert database.execute("update embeddings set embedding = zeroblob(length(embedding))").rowcount == 9
    database.close()
    recomputed, count = encoded(tmp_path)
    assert count == 1 and same_bits(recomputed, first) and encoded(tmp_path)[1] == 0


NAMES = [bytes([number]) for number in range(6)]


def rows(positions: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(positions).float()[:, None].repeat(1, 3)


def kept(folder: Path, made) -> torch.Tensor:
    return KeptEmbeddings(folder).of(torch.nn.Identity(), 3, CPU, {}, NAMES, made)


def test_two_processes_may_encode_the_same_images_and_the_file_may_go_meanwhile(tmp_path: Path) -> None:

    def other(positions: np.ndarray):
        for batch in np.array_split(positions, 3):
            yield rows(batch)

    def made(positions: np.ndarray):
        yield rows(positions[:2])
        assert same_bits(kept(tmp_path, other), rows(np.arange(6)))
        yield rows(positions[2:4])
        for file in tmp_path.glob("*.sqlite"):
            file.unlink()
        yield rows(positions[4:])

    assert same_bits(kept(tmp_path, made), rows(np.arange(6)))


def test_what_was_encoded_before_a_process_ended_is_kept(tmp_path: Path) -> None:
    def ended(positions: np.ndarray):
        yield rows(positions[:4])
        raise KeyboardInterrupt

    asked: list[list[int]] = []

    def rest(positions: np.ndarray):
        asked.append(positions.tolist())
        yield rows(positions)

    with pytest.raises(KeyboardInterrupt):
        kept(tmp_path, ended)
    assert same_bits(kept(tmp_path, rest), rows(np.arange(6))) and asked == [[4, 5]]
    assert len(list(tmp_path.iterdir())) == 1


def test_other_weights_images_or_draws_are_encoded(tmp_path: Path) -> None:
    encoded(tmp_path, "plain")
    encoded(tmp_path, "weak")
    other = network(HEAD)
    with torch.no_grad():
        next(other.encoder.parameters()).mul_(1.5)
    assert encoded(tmp_path, "plain", built=other)[1] == 1
    assert encoded(tmp_path, "plain", pixels=255 - images_of(9).images)[1] == 1
    assert encoded(tmp_path, "plain", seed=2)[1] == 0, "plain images have no draws"
    assert encoded(tmp_path, "weak", seed=2)[1] == KEPT_VIEWS
    assert encoded(tmp_path, "weak", silo="b")[1] == KEPT_VIEWS


def test_embeddings_that_cannot_be_kept_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AnchorageError, match="embeddings cannot be kept") as caught:
        encoded(tmp_path / "file", "plain")
    assert caught.value.failure is LEARNER_STATE_UNWRITABLE
