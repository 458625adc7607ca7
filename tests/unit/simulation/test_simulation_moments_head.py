"""The moments head played from its documents: one round in which nobody trains."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import MOMENTS_UNUSABLE
from anchorage.api.errors.transfer import OUT_OF_BOUNDS
from anchorage.api.mistakes import DocumentError
from anchorage.methods import validate_study
from anchorage.methods.cautions import idle_silos
from anchorage.methods.composition import parts_of

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from anchorage.engine.aggregation import UnusableUpdate
from anchorage.learning.data import read
from anchorage.learning.learners import build_server_learner
from anchorage.learning.stepping import trial
from anchorage.pieces.server_training.moments import ClassMoments
from anchorage.pieces.server_training.recipes import SEVERAL
from anchorage.simulation.run import Simulation
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from fedctl.plan_words import leaving

POOL = {"format": "Digits", "testPercent": 40, "anchors": 40}
CLASSES = list("0123456789")


def documents(
    *,
    moments=None,
    labels="All All",
    anchors=False,
    parts=2,
    method=None,
    recipe="Iid",
    warm_up=(),
    rounds=1,
    counts=None,
    validated=True,
    trainable="All",
    initial=None,
):
    """Write a federation of digits and its silos."""
    method_fields = {"name": "MomentsHead", "serverTraining": {"moments": moments or {}}} if method is None else method
    spec = {
        "rounds": rounds,
        "task": {"classification": {"classes": CLASSES}},
        "model": {"network": "SmallCnn", "imageSize": 8, "channels": 1, "augmentation": "Digits"}
        | {"trainable": trainable}
        | ({"initial": initial} if initial else {}),
        "method": method_fields,
        **({"evaluation": {"validation": POOL | {"use": "Test"}}} if validated else {}),
        **({"anchorData": POOL | {"use": "Anchors"}} if anchors else {}),
        **({"warmUp": list(warm_up)} if warm_up else {}),
    }
    written = [{"kind": "Federation", "metadata": {"name": "head"}, "spec": spec}]
    for part, kind in enumerate(labels.split()):
        data = POOL | {"use": "Part", "partition": {"recipe": recipe, "parts": parts, "part": part}}
        if recipe == "PerClass":
            data["partition"] |= {"alpha": "0.3"}
        if recipe == "ClassQuota":
            data["partition"] |= {"classesPerPart": "6"}
        if counts and kind == "None":
            data["classCounts"] = counts
        silo = {"federation": "head", "labels": kind, "managed": {"data": data}}
        written.append({"kind": "Silo", "metadata": {"name": "abcdef"[part]}, "spec": silo})
    return "\n---\n".join(json.dumps(document) for document in written)


def played(folder: Path, **options):
    file = folder / "head.yaml"
    file.write_text(documents(**options))
    simulation = Simulation(validate_study(file), folder, folder / f"state-{abs(hash(str(options)))}")
    return simulation, simulation.play()


def classifier(simulation):
    return {n: a for n, a in simulation.store.latest().model.arrays().items() if n.startswith("classifier.")}


@pytest.mark.parametrize("head", ["Lda", "NaiveBayes", "Qda", "Ridge", "Total"])
def test_every_head_learns_in_one_round(tmp_path: Path, head) -> None:
    _, last = played(tmp_path, moments={"head": head})
    assert last.metrics["accuracy"] > 0.7  # chance is 0.1
    assert [silo.state for silo in last.silos] == ["Counted"] * 2


def test_only_moments_travel_up_and_none_goes_further(tmp_path: Path) -> None:
    simulation, last = played(tmp_path)
    width = classifier(simulation)["classifier.weight"].shape[1]
    numbers = 11 + 11 * width + width * (width + 1) // 2
    assert last.bytes_up == 2 * 8 * numbers
    model = simulation.store.latest().model
    assert all(not array.any() for name, array in model.arrays().items() if name.startswith("beside."))
    assert not any(name.startswith("beside.") for name in model.of_network().arrays())


def test_the_division_of_the_images_does_not_matter(tmp_path: Path) -> None:
    results = [
        classifier(played(tmp_path, recipe=recipe, labels=labels, parts=parts, moments={"minimumCount": 1})[0])
        for recipe, labels, parts in (("Iid", "All", 1), ("Iid", "All All All", 3), ("PerClass", "All All All", 3))
    ]
    for other in results[1:]:
        for name, array in results[0].items():
            np.testing.assert_allclose(other[name], array, rtol=1e-3, atol=1e-3)


def test_labels_at_the_server_alone_with_the_covariance_of_all(tmp_path: Path) -> None:
    options = {"labels": "None None", "anchors": True, "moments": {"head": "Total", "prior": "Uniform"}}
    _, last = played(tmp_path, **options)
    assert last.metrics["accuracy"] > 0.4  # of 40 labels
    assert [silo.samples["labelled"] for silo in last.silos] == [0, 0]
    assert all(silo.samples["unlabelled"] > 400 for silo in last.silos)


def test_images_without_a_label_count_as_guessed_where_a_silo_states_its_class_counts(tmp_path: Path) -> None:
    """Round 1 has the labels alone. From round 2 on a silo says how often each class is, and guesses which images these are."""
    alone, with_guesses, only_ones = (
        played(tmp_path, labels="All None", rounds=2, counts=counts)[1]
        for counts in (None, dict.fromkeys(CLASSES, 50), {"1": 500})
    )
    assert [silo.samples["labelled"] > 400 for silo in alone.silos if silo.name == "a"] == [True]
    assert {silo.name: silo.samples["unlabelled"] for silo in with_guesses.silos}["b"] > 400
    assert {silo.name: silo.metrics["pseudo_label_accuracy"] for silo in with_guesses.silos if silo.name == "b"}[
        "b"
    ] > 0.7
    assert with_guesses.metrics["accuracy"] > 0.7  # chance is 0.1
    assert alone.metrics["accuracy"] != with_guesses.metrics["accuracy"] > only_ones.metrics["accuracy"]


def with_stated_counts(file: Path, study: str) -> Path:
    """Write a study in which every silo without labels states how many images of each class it holds."""
    file.write_text(study)
    validated, written = validate_study(file), [json.loads(document) for document in study.split("\n---\n")]
    model = validated.federation.spec.model_description
    for silo, document in zip(validated.silos, written[1:], strict=True):
        data = silo.spec.managed.data
        labels = read(data, file.parent, model, validated.federation.spec.seed)[0].labels
        if silo.spec.labels == "None":
            counts = dict(zip(CLASSES, np.bincount(labels, minlength=10).tolist(), strict=True))
            document["spec"]["managed"]["data"]["classCounts"] = counts
    file.write_text("\n---\n".join(json.dumps(document) for document in written))
    return file


@pytest.mark.parametrize("guesses", ["Stated", "Auto"])
def test_a_class_without_labels_is_learnt_of_what_silos_state(tmp_path: Path, guesses) -> None:
    """The labelled silo has six of the ten classes; the others have other ones, and say how many of each."""
    moments = {"guesses": guesses, "prior": "Uniform", "firstShrinkage": "0.9", "shrinkage": "0.1", "counting": "Soft"}
    options = {"labels": "All None None None None", "parts": 5, "recipe": "ClassQuota", "moments": moments}
    file = with_stated_counts(tmp_path / "head.yaml", documents(rounds=8, **options))
    simulation = Simulation(validate_study(file), tmp_path, tmp_path / "state")
    last = simulation.play()
    first = simulation.store.history()[1]
    assert (first.metrics["absent_classes"], last.metrics["absent_classes"]) == (4, 0)
    assert first.metrics["balanced_accuracy"] <= 0.6 < 0.7 < last.metrics["balanced_accuracy"]


@pytest.mark.parametrize("trainable", ["All", "Head"])
@pytest.mark.parametrize("guesses", ["Estimated", "Stated", "Measured"])
def test_labels_at_the_server_alone_learn_from_guesses(tmp_path: Path, guesses, trainable) -> None:
    counts = dict.fromkeys(CLASSES, 50) if guesses == "Stated" else None
    moments = {
        "guesses": guesses,
        "prior": "Uniform",
        "firstShrinkage": "0.9",
        "shrinkage": "0.1",
        "counting": "Soft",
        "temperature": "2",
    }
    options = {"labels": "None None", "anchors": True, "moments": moments, "counts": counts, "trainable": trainable}
    first, last = (played(tmp_path, rounds=rounds, **options)[1] for rounds in (1, 5))
    assert last.metrics["balanced_accuracy"] > first.metrics["balanced_accuracy"] + 0.02
    assert [silo.samples["labelled"] for silo in last.silos] == [0, 0]
    assert all(silo.metrics["acceptance"] == 1 and silo.metrics["pseudo_label_accuracy"] > 0.7 for silo in last.silos)


def test_the_preset_compares_what_silos_counted_and_takes_the_best(tmp_path: Path) -> None:
    method = {"name": "SharesHead"}
    options = {"labels": "None None", "anchors": True, "method": method, "recipe": "PerClass"}
    _, first = played(tmp_path, rounds=1, **options)
    compared = {name: value for name, value in first.metrics.items() if name.startswith("guesses_")}
    assert len(compared) == 11 and compared["guesses_chosen"] == 0
    assert all(silo.metrics["acceptance"] == 0 for silo in first.silos)
    simulation, last = played(tmp_path, rounds=5, **options)
    accuracies = [last.metrics[f"guesses_{recipe.name}"] for recipe in SEVERAL]
    chosen = int(last.metrics["guesses_chosen"])
    assert chosen > 0 and accuracies[chosen] == max(accuracies) > accuracies[0]
    assert accuracies[0] == compared["guesses_labels"]  # labels alone stay what they were
    assert last.metrics["balanced_accuracy"] == pytest.approx(max(accuracies), abs=1e-6)
    assert all(silo.metrics["pseudo_label_accuracy"] > 0.6 for silo in last.silos)
    assert simulation.store.latest().model.arrays()["guessers.chosen"].tolist() == [chosen]


def write_weights(file: Path, offset: float, **options) -> None:
    """Write initial weights of an encoder whose features are an offset and 1e-10 times what random weights make of an image."""
    file.with_suffix(".yaml").write_text(documents(**options))
    spec = validate_study(file.with_suffix(".yaml")).federation.spec
    (part,) = parts_of(spec)
    learner = build_server_learner(model=spec.model_description, method=part.method, seed=1)
    arrays = {name: array.copy() for name, array in learner.initialise().of_network().arrays().items()}
    arrays["encoder.norms.3.weight"] *= 1e-10
    arrays["encoder.norms.3.bias"] += offset
    save_file(arrays, file)


def test_the_score_that_chooses_is_that_of_the_model_however_small_its_features_are(tmp_path: Path) -> None:
    options = {"labels": "None None", "anchors": True, "method": {"name": "SharesHead"}, "trainable": "Head"}
    write_weights(tmp_path / "small.safetensors", 0.0, **options)
    simulation, last = played(tmp_path, rounds=3, initial="small.safetensors", **options)
    for record in simulation.store.history()[1:]:
        recipe = SEVERAL[int(record.metrics["guesses_chosen"])]
        chosen = record.metrics[f"guesses_{recipe.name}"]
        assert record.metrics["balanced_accuracy"] == pytest.approx(chosen, abs=1e-9)
    assert last.metrics["balanced_accuracy"] > 0.5  # chance is 0.1


@pytest.mark.parametrize(
    "method",
    ["FedBYOL", "MomentsHead", {"name": "SharesHead", "serverTraining": {"moments": {"guesses": "Estimated"}}}],
)
def test_a_run_may_begin_with_the_model_of_another_method(tmp_path: Path, method) -> None:
    """Which has no classifiers to guess by, or those of other ways to count."""
    common = {"labels": "None None", "anchors": True, "trainable": "Head"}
    before = common | {"FedBYOL": {"trainable": "All"}, "MomentsHead": {"labels": "All All"}}.get(str(method), {})
    simulation, _ = played(tmp_path, method={"name": method} if isinstance(method, str) else method, **before)
    model = simulation.store.latest().model.of_network()
    save_file(model.arrays(), tmp_path / "start.safetensors")
    simulation, last = played(tmp_path, rounds=2, initial="start.safetensors", method={"name": "SharesHead"}, **common)
    assert last.metrics["balanced_accuracy"] > 0.5  # chance is 0.1
    for name, array in simulation.store.latest().model.arrays().items():
        if name.startswith("encoder."):
            np.testing.assert_array_equal(array, model.arrays()[name])


@pytest.mark.parametrize("method", ["SharesHead", "MomentsHead"])
def test_features_that_differ_by_rounding_alone_are_refused(tmp_path: Path, method) -> None:
    options = {"labels": "All All", "anchors": True, "method": {"name": method}, "trainable": "Head"}
    write_weights(tmp_path / "alike.safetensors", 1.0, **options)
    with pytest.raises(AnchorageError, match="the same of every image but for rounding") as refused:
        played(tmp_path, initial="alike.safetensors", **options)
    assert refused.value.failure is MOMENTS_UNUSABLE


def test_without_unlabelled_images_every_recipe_counts_the_labels(tmp_path: Path) -> None:
    options = {"labels": "All All", "moments": {"guesses": "Auto"}}  # one shrinkage for all
    _, last = played(tmp_path, rounds=2, **options)
    assert len({last.metrics[f"guesses_{recipe.name}"] for recipe in SEVERAL}) == 1
    assert last.metrics["guesses_chosen"] == 0


def test_few_images_of_a_class_stay_at_the_silo(tmp_path: Path) -> None:
    _, last = played(tmp_path, moments={"minimumCount": 50})
    withheld = {silo.name: silo.metrics["withheld_classes"] for silo in last.silos}
    assert 0 < sum(withheld.values()) < 20
    assert all(silo.samples["labelled"] < 500 for silo in last.silos if withheld[silo.name])


def test_a_later_stage_begins_with_the_classifier(tmp_path: Path) -> None:
    stage = {"method": "MomentsHead", "rounds": 1}
    then = {
        "name": "FedAvg",
        "batchNorm": {"frozen": {}},
        "local": {"epochs": 1, "optimiser": {"sgd": {"learningRate": "0.00001"}}},
    }
    accuracies = [
        played(tmp_path, method=then, warm_up=[{**stage, "set": [f"serverTraining.moments.head={head}"]}], rounds=2)[
            1
        ].metrics["accuracy"]
        for head in ("Lda", "Qda")
    ]
    assert accuracies[0] > 0.75  # hardly trained further
    assert accuracies[1] < 0.5  # a quadratic classifier is none of FedAvg's: it begins from random weights


def test_a_stage_may_make_the_classifier_of_the_servers_labels_alone(tmp_path: Path) -> None:
    stage = {"method": "MomentsHead", "rounds": 1, "set": ["serverTraining.moments.shrinkage=0.5"]}
    then = {
        "name": "SemiFL",
        "mixup": {"none": {}},
        "local": {"epochs": 1, "optimiser": {"sgd": {"learningRate": "0.00001"}}},
        "serverTraining": {
            "anchors": {"pretrainEpochs": 0, "epochs": 1, "optimiser": {"sgd": {"learningRate": "0.00001"}}}
        },
    }
    fields = {"labels": "None None", "anchors": True, "rounds": 2}
    frozen = then | {"batchNorm": {"frozen": {}}}
    simulation, last = played(tmp_path, warm_up=[stage], method=frozen, **fields)
    assert last.metrics["accuracy"] > 0.4  # of 40 labels, hardly trained further
    assert last.metrics["accuracy"] > played(tmp_path, method=then, **fields)[1].metrics["accuracy"] + 0.2
    assert [silo.samples["train"] for silo in simulation.store.history()[1].silos] == [0, 0]


def test_a_silo_whose_counts_are_none_is_named() -> None:
    piece = ClassMoments()
    layout = Layout.of([("beside.moments.counts", "F64", (3,)), ("beside.moments.sums", "F64", (3, 2))])

    def update(counts):
        return ModelBytes.from_arrays(
            layout, {"beside.moments.counts": np.array(counts), "beside.moments.sums": np.ones((3, 2))}
        )

    def said(labelled):
        return Announcement("1.train", {"labelled": labelled, "unlabelled": 0}, {}, {}, None)

    sound = update([2.0, 3.0, 0.0])
    total = piece.refine(sound, [sound, sound], [0.5, 0.5], [said(5), said(5)])
    np.testing.assert_array_equal(total.arrays()["beside.moments.counts"], [4, 6, 0])
    for counts in ([1.5, 3.5, 0.0], [-1.0, 6.0, 0.0], [2.0, 4.0, 0.0], [2.0, 2.0, 1.0]):
        with pytest.raises(UnusableUpdate, match="does not count the 5 images") as caught:
            piece.refine(sound, [sound, update(counts)], [0.5, 0.5], [said(5), said(5)])
        assert (caught.value.index, caught.value.failure) == (1, OUT_OF_BOUNDS)


@pytest.mark.parametrize(
    ("options", "field", "expected"),
    [
        ({"labels": "None None"}, "serverTraining.moments.head", "labels nowhere"),
        ({"labels": "None None", "anchors": True}, "serverTraining.moments.guesses", "set Estimated or Auto"),
        ({"moments": {"guesses": "Estimated", "head": "Ridge"}}, "serverTraining.moments.guesses", "set head: Lda"),
        (
            {"moments": {"guesses": "Auto"}, "validated": False},
            "serverTraining.moments.guesses",
            "needs validation images",
        ),
        ({"method": {"name": "MomentsHead", "local": {"epochs": 1}}}, "spec.method.local", "no silo trains"),
        (
            {"method": {"name": "MomentsHead", "batchNorm": {"recalibrate": {}}}, "anchors": True},
            "batchNorm",
            "features",
        ),
        ({"method": {"name": "MomentsHead", "pseudoLabels": {"fixMatch": {}}}}, "pseudoLabels", "no silo trains"),
        ({"method": {"name": "MomentsHead", "selfSupervised": {"byol": {}}}}, "selfSupervised", "no silo trains"),
    ],
)
def test_what_has_no_meaning_is_refused(tmp_path: Path, options, field, expected) -> None:
    (tmp_path / "head.yaml").write_text(documents(**options))
    with pytest.raises(DocumentError) as refused:
        validate_study(tmp_path / "head.yaml")
    assert any(field in ".".join(map(str, m.path)) and expected in m.message for m in refused.value.mistakes)


@pytest.mark.parametrize(
    ("counts", "moments", "idle"),
    [
        (None, {}, ("b",)),
        (dict.fromkeys(CLASSES, 50), {}, ()),
        (dict.fromkeys(CLASSES, 50), {"guesses": "None"}, ("b",)),
        (None, {"guesses": "Estimated"}, ()),
    ],
)
def test_a_silo_is_called_idle_where_its_images_do_not_count(tmp_path: Path, counts, moments, idle) -> None:
    (tmp_path / "head.yaml").write_text(documents(labels="All None", counts=counts, moments=moments))
    study = validate_study(tmp_path / "head.yaml")
    assert idle_silos(study.federation, study.silos) == idle


def test_a_trial_without_silos_sums_keeps_the_classifier(tmp_path: Path) -> None:
    (tmp_path / "head.yaml").write_text(documents())
    spec = validate_study(tmp_path / "head.yaml").federation.spec
    (part,) = parts_of(spec)
    learner = build_server_learner(model=spec.model_description, method=part.method, seed=1)
    model = learner.initialise()
    with trial(1.0):
        classifier, metrics = learner.train(model, 1)
    assert (classifier.digest, metrics) == (model.digest, {})
    with pytest.raises(AnchorageError, match="ANC-1311") as refused:
        learner.train(model, 1)
    assert refused.value.failure is MOMENTS_UNUSABLE


@pytest.mark.parametrize("head", ["Lda", "Total"])
def test_a_plan_says_what_a_silo_without_labels_tells(tmp_path: Path, head) -> None:
    (tmp_path / "head.yaml").write_text(documents(moments={"head": head}, labels="All None"))
    description = leaving(validate_study(tmp_path / "head.yaml"), 1000)
    assert not any("weights" in sentence for sentences in description.values() for sentence in sentences)
    assert any("beside.moments.sums" in sentence for sentence in description["a"])
    assert any("beside.moments.sums" in sentence for sentence in description["b"]) == (head == "Total")
