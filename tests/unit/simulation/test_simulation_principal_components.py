"""Principal components that a first stage finds, played from documents."""

import json
from pathlib import Path

import numpy as np
import pytest

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import MOMENTS_UNUSABLE
from anchorage.api.mistakes import DocumentError
from anchorage.methods import validate_study

pytest.importorskip("torch")
pytest.importorskip("sklearn")

import torch
from safetensors.numpy import save_file

from anchorage.learning.heads import PrincipalComponents
from anchorage.simulation.run import Simulation

POOL = {"format": "Digits", "testPercent": 40, "anchors": 40}
STAGE = {"method": "PrincipalComponents", "rounds": 1}


def documents(
    *,
    method="MomentsHead",
    rate=None,
    components=16,
    warm_up=(STAGE,),
    parts=2,
    recipe="Iid",
    rounds=3,
    anchors=True,
    labels="All All All",
    stated=0,
    **model,
):
    """Write a federation of digits with a frozen encoder, and its silos."""
    spec = {
        "rounds": rounds,
        "task": {"classification": {"classes": list("0123456789")}},
        "model": {"network": "SmallCnn", "imageSize": 8, "channels": 1, "augmentation": "Digits"}
        | {"trainable": "Head", "principalComponents": components}
        | model,
        "method": {"name": method} | ({"local": {"optimiser": {"sgd": {"learningRate": rate}}}} if rate else {}),
        "evaluation": {"validation": POOL | {"use": "Test"}},
        **({"anchorData": POOL | {"use": "Anchors"}} if anchors else {}),
        **({"warmUp": list(warm_up)} if warm_up else {}),
    }
    written = [{"kind": "Federation", "metadata": {"name": "parts"}, "spec": spec}]
    for part in range(parts):
        data = POOL | {"use": "Part", "partition": {"recipe": recipe, "parts": parts, "part": part}}
        if recipe == "PerClass":
            data["partition"] |= {"alpha": "0.3"}
        if stated:
            data["classCounts"] = dict.fromkeys("0123456789", stated)
        silo = {"federation": "parts", "labels": labels.split()[part], "managed": {"data": data}}
        written.append({"kind": "Silo", "metadata": {"name": "abcdef"[part]}, "spec": silo})
    return "\n---\n".join(json.dumps(document) for document in written)


def played(folder: Path, name="state", **options):
    file = folder / f"{name}.yaml"
    file.write_text(documents(**options))
    simulation = Simulation(validate_study(file), folder, folder / name)
    return simulation, simulation.play()


def model_of(simulation):
    return simulation.store.latest().model.arrays()


@pytest.mark.parametrize(("count", "width"), [(3, 5), (5, 5), (1, 4)])
def test_components_are_those_of_a_singular_value_decomposition(count, width) -> None:
    drawn = np.random.default_rng(count)
    features = drawn.normal(size=(60, width)) @ drawn.normal(size=(width, width)) + drawn.normal(size=width)
    components = PrincipalComponents(width, count)
    explained = components.find(*map(torch.from_numpy, (features.mean(0), np.cov(features.T))))
    centred = features - features.mean(0)
    _, sizes, rows = np.linalg.svd(centred)
    np.testing.assert_allclose(np.abs(np.sum(components.weight.numpy() * rows[:count], axis=1)), 1, rtol=1e-5)
    assert explained == pytest.approx((sizes[:count] ** 2).sum() / (sizes**2).sum())
    axes = components(torch.from_numpy(features).float()).numpy()
    np.testing.assert_allclose(axes.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(axes.var(0, ddof=1), sizes[:count] ** 2 / 59, rtol=1e-4)
    assert (components.weight.gather(1, components.weight.abs().argmax(1, keepdim=True)) > 0).all()


def test_all_components_make_the_classifier_of_the_features_themselves(tmp_path: Path) -> None:
    _, plain = played(tmp_path, "plain", components=None, warm_up=())
    width = model_of(played(tmp_path, "some")[0])["projection.weight"].shape[1]
    _, rotated = played(tmp_path, "rotated", components=width)
    assert rotated.metrics["accuracy"] == pytest.approx(plain.metrics["accuracy"], abs=0.002)


def test_later_rounds_send_the_moments_of_the_components_alone(tmp_path: Path) -> None:
    simulation, last = played(tmp_path, components=16)
    assert last.bytes_up == 2 * 8 * (11 + 11 * 16 + 16 * 17 // 2)
    first = simulation.store.history()[1]
    assert first.bytes_up > last.bytes_up and first.metrics["explained_variance"] > 0.5
    assert last.metrics["accuracy"] > 0.6  # chance is 0.1
    components = model_of(simulation)["projection.weight"]
    np.testing.assert_allclose(components @ components.T, np.eye(16), atol=1e-5)


def test_the_division_of_the_images_does_not_matter(tmp_path: Path) -> None:
    one, three = (model_of(played(tmp_path, f"of{n}", parts=n, recipe=r)[0]) for n, r in ((1, "Iid"), (3, "PerClass")))
    np.testing.assert_allclose(one["projection.weight"], three["projection.weight"], atol=1e-4)


@pytest.mark.parametrize("method", ["SharesHead", "FedAvg"])
def test_methods_of_guesses_and_of_training_go_on_with_the_components(tmp_path: Path, method) -> None:
    simulation, last = played(tmp_path, method=method, rounds=4)
    assert last.metrics["accuracy"] > 0.5
    assert model_of(simulation)["classifier.weight"].shape == (10, 16)


@pytest.mark.parametrize("components", [None, 16])
def test_an_encoder_that_trains_later_is_frozen_in_stages_where_no_silo_trains(tmp_path: Path, components) -> None:
    """It travels once, and images are encoded once; then all of it trains, from that classifier."""
    stages = [STAGE] if components else []
    options = {"components": components, "warm_up": [*stages, {"method": "MomentsHead", "rounds": 3}]}
    ends = 3 + len(stages)
    simulation, _ = played(tmp_path, method="FedAvg", rate="0.000001", trainable="All", rounds=ends + 1, **options)
    history = simulation.store.history()
    encoder_nbytes = sum(a.nbytes for n, a in model_of(simulation).items() if n.startswith("encoder."))
    assert history[ends].bytes_down < encoder_nbytes < history[ends + 1].bytes_down
    still, last = played(tmp_path, "still", method="MomentsHead", rounds=ends, **(options | {"warm_up": stages}))
    assert history[ends].metrics == last.metrics
    first, trained = model_of(still), model_of(simulation)
    assert all((first[name] != array).any() for name, array in trained.items() if name.startswith("encoder.conv"))
    assert history[ends + 1].metrics["accuracy"] > 0.5


def test_an_encoder_that_a_stage_trained_is_frozen_where_no_silo_trains(tmp_path: Path) -> None:
    stage = {"method": "FedBYOL", "rounds": 1}
    simulation, last = played(tmp_path, trainable="All", components=None, warm_up=(stage,))
    before, _ = played(tmp_path, "before", trainable="All", components=None, warm_up=(), method="FedBYOL", rounds=1)
    pretrained, model = model_of(before), model_of(simulation)
    for name, array in model.items():
        if name.startswith("encoder."):
            np.testing.assert_array_equal(array, pretrained[name], name)
    encoder_nbytes = sum(a.nbytes for n, a in model.items() if n.startswith("encoder."))
    assert last.bytes_down < encoder_nbytes < simulation.store.history()[1].bytes_down
    assert last.metrics["accuracy"] > 0.5  # chance is 0.1


def test_nobody_guesses_by_the_classifier_that_no_label_made(tmp_path: Path) -> None:
    """The stage before found components and no classifier."""
    options = {"method": "MomentsHead", "labels": "All None", "stated": 40}
    first, second = (played(tmp_path, f"of{rounds}", rounds=rounds, **options)[1] for rounds in (2, 3))
    assert [[silo.samples["unlabelled"] > 0 for silo in each.silos] for each in (first, second)] == [
        [False, False],
        [False, True],
    ]


def test_a_silo_of_few_images_sends_none(tmp_path: Path) -> None:
    stage = STAGE | {"set": ["serverTraining.principalComponents.minimumCount=10000"]}
    with pytest.raises(AnchorageError, match="have no components") as raised:
        played(tmp_path, warm_up=(stage,), anchors=False)
    assert raised.value.failure is MOMENTS_UNUSABLE


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"warm_up": ()}, "which nothing finds"),
        ({"components": None}, "but a model without"),
        ({"hidden": 8}, "which stands in their place"),
        ({"method": "PrincipalComponents", "warm_up": ()}, "make no classifier"),
        ({"method": "MOON"}, "projection head in their place"),
        ({"warm_up": ({"method": "MomentsHead", "rounds": 1}, STAGE)}, "which nothing finds"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, options, expected) -> None:
    file = tmp_path / "refused.yaml"
    file.write_text(documents(**options))
    with pytest.raises(DocumentError, match=expected):
        validate_study(file)


@pytest.mark.parametrize("complete", [True, False])
def test_a_run_that_begins_with_another_s_model_has_its_components(tmp_path: Path, complete) -> None:
    model = model_of(played(tmp_path, "first")[0])
    encoder_arrays = {
        n: a for n, a in model.items() if n.startswith("encoder.") or (complete and not n.startswith("beside."))
    }
    save_file(encoder_arrays, tmp_path / "initial.safetensors")
    options = {"warm_up": (), "rounds": 1, "initial": "initial.safetensors"}
    if complete:
        second_model = model_of(played(tmp_path, "again", **options)[0])
        np.testing.assert_array_equal(second_model["projection.weight"], model["projection.weight"])
    else:
        with pytest.raises(AnchorageError, match="it has no principal components"):
            played(tmp_path, "again", **options)
