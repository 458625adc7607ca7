"""Sites whose masks lack a class that is in their images: they say so, and neither loss nor score takes it for background."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from drawn_masks import write_coloured
from drawn_volumes import write_pairs
from learning_party import Party
from PIL import Image

from anchorage.api.errors.data import BAD_IMAGES
from anchorage.api.mistakes import DocumentError
from anchorage.methods import validate_study

pytest.importorskip("torch")

import torch

from anchorage.api.data import SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.learning.data import ImageSet, read
from anchorage.learning.device import calculation, to_device
from anchorage.learning.draws import Draws
from anchorage.learning.learners import build_server_learner
from anchorage.learning.method import TrainingMethod
from anchorage.learning.model_hooks import augmentation_of
from anchorage.learning.models import build_model
from anchorage.learning.server_learner import TorchServerLearner
from anchorage.learning.views import epoch_batches
from anchorage.methods.resolution import resolve
from anchorage.pieces.task.segmentation import Segmentation
from anchorage.simulation.run import simulate
from anchorage.transport.messages import Task, TaskKind

CLASSES = ["background", "red", "blue"]
MODEL = ModelDescription(network="SmallUNet", task=Segmentation(classes=tuple(CLASSES)), image_size=16)
ALONE = {"site-0": ["blue"], "site-1": ["red"]}
"""The class that nobody drew at each site."""


def write_study(
    folder: Path,
    unannotated: dict[str, list[str]],
    *,
    method: dict[str, Any] | None = None,
    rounds: int = 2,
    count: int = 6,
    **spec: Any,
) -> Path:
    """Write a federation over red and blue discs, of which each site draws one colour, and its images into `data`."""
    data = folder / "data"
    for seed, (name, drawn) in enumerate({"server": (1, 2), "site-0": (1,), "site-1": (2,)}.items()):
        write_coloured(data / name, count, seed, drawn=drawn)

    def section(name: str) -> dict[str, Any]:
        fields = {"unannotated": unannotated[name]} if name in unannotated else {}
        return {"format": "ImageFolder", "claimName": name, **fields}

    local = {"epochs": 1, "batchSize": 4, "optimiser": {"sgd": {"learningRate": "0.05"}}}
    federation = {
        "kind": "Federation",
        "metadata": {"name": "discs"},
        "spec": {
            "rounds": rounds,
            "task": {"segmentation": {"classes": CLASSES}},
            "model": {"network": "SmallUNet", "imageSize": 16},
            "method": {"name": "FedAvg", "local": local, **(method or {})},
            "evaluation": {"validation": section("server")},
            **spec,
        },
    }
    sites = [
        {
            "kind": "Silo",
            "metadata": {"name": name},
            "spec": {"federation": "discs", "labels": "All", "managed": {"data": section(name)}},
        }
        for name in ("site-0", "site-1")
    ]
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump_all([federation, *sites]))
    return file


def test_sites_that_draw_another_class_each_teach_both(tmp_path: Path) -> None:
    dice = {}
    for name, unannotated in (("told", ALONE), ("absent", {})):
        local = {"epochs": 2, "batchSize": 4, "optimiser": {"sgd": {"learningRate": "0.05"}}}
        (tmp_path / name).mkdir()
        file = write_study(tmp_path / name, unannotated, rounds=8, count=12, seed=2, method={"local": local})
        record, _ = simulate(validate_study(file), tmp_path / name / "data", tmp_path / name / "run")
        dice[name] = record.metrics["dice"]
    assert dice["told"] > 0.7  # the mean of both colours, so that neither is missing
    assert dice["told"] > dice["absent"] + 0.3


def images_of(folder: Path, *unannotated: str, drawn: tuple[int, ...] = (1,), count: int = 6) -> ImageSet:
    """Draw and read images of a site."""
    write_coloured(folder / "site", count, 7, drawn=drawn)
    section = SiloData(format="ImageFolder", claim_name="site", unannotated=unannotated)
    return read(section, folder, MODEL, 1)[0]


class Site(Party):
    """A silo that is scored on half of its images, beside a server without any."""

    def made_server(self) -> TorchServerLearner:
        return build_server_learner(model=self.described, method=self.method, seed=self.seed)

    def restart(self) -> None:
        self.run = self.run.model_copy(update={"silo_percent": 50})
        super().restart()

    def scored(self) -> dict[str, list[Any]]:
        task = Task("1.score", TaskKind.EVALUATE, 1, self.model.manifest, held_out=True)
        tally = self.learner.evaluate(task, self.model.buffer()).tally
        return {name: array.tolist() for name, array in tally.items()}


def test_a_silo_says_nothing_of_a_class_that_it_does_not_annotate(tmp_path: Path) -> None:
    method = resolve(MethodSpec.model_validate({"name": "FedAvg", "local": {"epochs": 1, "batchSize": 4}}))
    results = {}
    for name, unannotated in (("told", ["blue"]), ("absent", [])):
        images = images_of(tmp_path / name, *unannotated)
        site = Site(method, images, tmp_path / f"{name}-state", labels="All", described=MODEL)
        results[name] = site.scored()
        count = results[name]["images"]
        counted = np.sum([results[name][each] for each in ("cases", "empty_right", "empty_wrong")], 0)
        assert counted.tolist() == ([count, 0] if unannotated else [count, count])
        assert ("unannotated" in site.learner._images.arrays()) == bool(unannotated)
    assert results["told"]["cases"][0] == results["absent"]["cases"][0] > 0
    assert results["told"]["pixels"][1] == [0, 0, 0] and results["absent"]["pixels"][1][1] > 0


def test_a_silo_alone_is_central_training_with_the_marginal_loss(tmp_path: Path) -> None:
    optimiser = {"sgd": {"learningRate": "0.05", "momentum": "0", "weightDecay": "0"}}
    method = {"local": {"epochs": 1, "batchSize": 4, "optimiser": optimiser}}
    file = write_study(tmp_path, ALONE, method=method, rounds=1)
    file.write_text("---".join(file.read_text().split("---")[:2]))  # the federation, and site-0
    study = validate_study(file)
    _, store = simulate(study, tmp_path / "data", tmp_path / "run")
    trained = store.latest().model.arrays()

    spec = study.federation.spec
    training = TrainingMethod.of(resolve(spec.method))
    images, _ = read(study.silos[0].spec.managed.data, tmp_path / "data", MODEL, spec.seed)
    network = to_device(build_model(MODEL, training, spec.seed), torch.device("cpu"))
    steps = torch.optim.SGD(network.parameters(), lr=0.05)
    loss = MODEL.task.partly_annotated((2,)).loss
    with calculation():
        draws = Draws(spec.seed, 1, "site-0")
        batches = list(epoch_batches(draws.numpy("batches"), len(images), 4, 1))
        every = np.concatenate(batches)  # the product views several batches at once, too
        pixels, masks = torch.from_numpy(images.images[every]), torch.from_numpy(images.labels[every])
        views_shown, known = augmentation_of("Natural").with_masks(
            pixels, masks, draws.torch("augmentation"), strong=False
        )
        for rows in np.split(np.arange(len(every)), [4]):
            steps.zero_grad()
            loss(network.train()(views_shown[rows]), known[rows]).backward()
            steps.step()
    for name, tensor in network.state_dict().items():
        assert np.array_equal(tensor.numpy(), trained[name]), name


def test_anchors_do_not_push_an_unannotated_class_below_the_background(tmp_path: Path) -> None:
    method = {"name": "FedAvg", "serverTraining": {"anchors": {"pretrainEpochs": 10}}}
    everything = images_of(tmp_path / "all", drawn=(1, 2))
    blue = torch.from_numpy(everything.labels == 2)
    share = {}
    for name, unannotated in (("told", ["blue"]), ("absent", [])):
        anchors = images_of(tmp_path / name, *unannotated)
        learner = build_server_learner(
            model=MODEL, method=resolve(MethodSpec.model_validate(method)), seed=1, anchors=anchors
        )
        learner.initialise()
        network = learner._network.eval()
        with torch.no_grad():
            probabilities = network(augmentation_of("Natural").plain(torch.from_numpy(everything.images))).softmax(1)
        share[name] = float((probabilities[:, 2] / (probabilities[:, 0] + probabilities[:, 2]))[blue].mean())
    assert share["absent"] < 0.1 and share["told"] > 0.25  # before training 0.43


def test_the_server_scores_what_its_masks_annotate(tmp_path: Path) -> None:
    validation = images_of(tmp_path, "blue")
    method = resolve(MethodSpec.model_validate({"name": "FedAvg"}))
    learner = build_server_learner(model=MODEL, method=method, seed=1, validation=validation, test=validation)
    model = learner.initialise()
    report, assessed = learner.evaluate(model, 0), learner.assess(model, 0)
    assert report.tally["cases"][1] == report.tally["empty_wrong"][1] == report.tally["empty_right"][1] == 0
    assert report.tally["cases"][0] == 4 and np.isfinite(report.metrics["dice"]) and assessed is not None
    assert assessed.counts.keys() == {"cases/red"} and np.isfinite(report.embeddings).all()
    views = learner._scored["validation"].views
    with torch.no_grad():
        logits = learner._scores._scorer(views.plain(torch.arange(len(validation)))).double()
    merged = MODEL.task.partly_annotated((2,)).loss(logits, torch.from_numpy(validation.labels))
    assert report.metrics["loss"] == pytest.approx(float(merged), abs=1e-9)
    assert report.metrics["loss"] < float(MODEL.task.loss(logits, torch.from_numpy(validation.labels))) - 0.1


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["green"], "green"),
        (["background"], '"background" is the background, which every mask has'),
        (["red", "blue"], "found every class of the foreground, so that masks would teach nothing"),
    ],
)
@pytest.mark.parametrize(
    ("site", "path"),
    [("site-1", "spec.managed.data.unannotated"), ("server", "spec.evaluation.validation.unannotated")],
)
def test_names_that_cannot_be_unannotated_are_refused_before_the_run(
    site: str, path: str, names: list[str], words: str, tmp_path: Path
) -> None:
    with pytest.raises(DocumentError) as raised:
        validate_study(write_study(tmp_path, {site: names}))
    assert words in str(raised.value) and path in str(raised.value)


def test_other_tasks_have_no_unannotated_classes(tmp_path: Path) -> None:
    task, model = {"classification": {"classes": CLASSES}}, {"network": "SmallCnn", "imageSize": 16}
    with pytest.raises(DocumentError, match="labels of the task classification are no masks"):
        validate_study(write_study(tmp_path, {"site-0": ["blue"]}, task=task, model=model))


def test_a_mask_with_an_unannotated_class_stops_the_run(tmp_path: Path) -> None:
    file = write_study(tmp_path, ALONE)
    mask = np.zeros((16, 16), np.uint8)
    mask[0] = 2
    Image.fromarray(mask).save(tmp_path / "data" / "site-0" / "masks" / "000.png")
    with pytest.raises(
        AnchorageError, match=r"the values 2 \(16 pixels\) are of classes that unannotated names"
    ) as raised:
        simulate(validate_study(file), tmp_path / "data", tmp_path / "run")
    assert raised.value.failure is BAD_IMAGES


def test_images_without_masks_learn_every_class(tmp_path: Path) -> None:
    method = {"name": "FedAvgFixMatch", "pseudoLabels": {"fixMatch": {"threshold": "0.34"}}}
    file = write_study(tmp_path, ALONE, method=method)
    documents = list(yaml.safe_load_all(file.read_text()))
    for silo in documents[1:]:
        silo["spec"]["labels"] = "Partial"
    file.write_text(yaml.safe_dump_all(documents))
    for name in ALONE:
        for row in range(3, 6):
            (tmp_path / "data" / name / "masks" / f"{row:03d}.png").unlink()
    record, _ = simulate(validate_study(file), tmp_path / "data", tmp_path / "run")
    assert all(silo.samples["selected"] == 3 for silo in record.silos) and np.isfinite(record.metrics["loss"])


def test_volumes_of_sites_that_draw_another_class_each(tmp_path: Path) -> None:
    pytest.importorskip("nibabel")
    volume = {"spacing": ["1", "1", "1"], "patch": [8, 8, 8]}
    model = {"network": "SmallUNet", "channels": 1, "volume": volume, "intensity": {"zScore": {}}}
    file = write_study(tmp_path, ALONE, rounds=1, model=model, evaluation={"siloPercent": 50})
    for seed, (name, values) in enumerate({"site-0": (0, 1, 0), "site-1": (0, 0, 2)}.items()):
        for folder in ("images", "masks"):
            for picture in (tmp_path / "data" / name / folder).iterdir():
                picture.unlink()
        write_pairs(tmp_path / "data" / name, 4, seed=seed, values=values)
    study = validate_study(file)
    record, _ = simulate(study, tmp_path / "data", tmp_path / "run")
    assert all(silo.samples["labelled"] == 2 for silo in record.silos) and np.isfinite(record.metrics["pooled_dice"])
    described = ModelDescription(**study.federation.spec.model.model_dump(), task=MODEL.task)
    images, _ = read(study.silos[0].spec.managed.data, tmp_path / "data", described, 1)
    assert images.unannotated == (2,)
    learner = build_server_learner(
        model=described, method=resolve(study.federation.spec.method), seed=1, validation=images
    )
    report = learner.evaluate(learner.initialise(), 0)
    assert report.tally["cases"].tolist() == [4, 0] and report.tally["pixels"][1].tolist() == [0, 0, 0]
    write_pairs(tmp_path / "data" / "site-0", 4)
    with pytest.raises(AnchorageError, match="are of classes that unannotated names") as raised:
        read(study.silos[0].spec.managed.data, tmp_path / "data", described, 1)
    assert raised.value.failure is BAD_IMAGES
