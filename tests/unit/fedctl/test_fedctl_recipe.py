"""What a first file begins with, by labels, images and weights, and what it keeps clear of."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from drawn_folders import fill
from typer.testing import CliRunner

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import LABELS_MISSING
from anchorage.api.federation import Federation
from anchorage.api.model import network_called
from anchorage.methods import validate_study
from anchorage.methods.pretrained import WeightsFolder
from fedctl.main import app
from fedctl.recipe import Choice, Labels, Recipe, Weights, recipe_of

LABELS: dict[str, Sequence[Labels]] = {
    "all": ("All", "All", "All"),
    "some": ("All", "None", "None"),
    "partial": ("Partial", "Partial"),
    "server": ("None", "None"),
}


def choice(recipe: Recipe, field: str) -> Choice:
    return next(each for each in recipe.choices if each.field == field)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("side", [8, 15, 16, 64])
def test_no_first_network_averages_batch_statistics(labels: Sequence[Labels], side: int) -> None:
    recipe = recipe_of(labels, side, None)
    normalised = [each.value for each in recipe.choices if each.field == "batchNorm"]
    assert (recipe.model["network"], normalised) == (
        ("SmallCnn", [{"groupNorm": {}}]) if side < 16 else ("MoonCnn", [])
    )
    stages = [override for stage in recipe.warm_up for override in stage["set"]]
    assert not stages or ("batchNorm={groupNorm: {}}" in stages) == (side < 16)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_every_choice_has_its_reason(labels: Sequence[Labels]) -> None:
    recipe = recipe_of(labels, 32, None)
    reasons = [
        recipe.rounds_reason,
        recipe.model_reason,
        recipe.method_reason,
        *(each.reason for each in recipe.choices),
    ]
    assert all(len(reason.split()) > 5 for reason in reasons)
    assert bool(recipe.warm_up) == bool(recipe.warm_up_reason)


@pytest.mark.parametrize(("labels", "method"), [("all", "FedAvg"), ("some", "LowerBound"), ("partial", "LowerBound")])
def test_another_task_learns_from_labels_by_its_own_loss(labels: str, method: str) -> None:
    recipe = recipe_of(LABELS[labels], 32, None, "acme.Regression")
    assert (recipe.method, choice(recipe, "localLoss").value, recipe.warm_up) == (method, {"taskLoss": {}}, ())
    assert {each.field for each in recipe.choices} == {"localLoss", "local"}


def test_another_task_without_labels_at_silos_has_no_recipe() -> None:
    with pytest.raises(AnchorageError, match="no method for the task acme.Regression") as raised:
        recipe_of(LABELS["server"], 32, None, "acme.Regression")
    assert raised.value.failure is LABELS_MISSING


@pytest.mark.parametrize(("silos", "size"), [(1, 32), (3, 10), (8, 4), (100, 4)])
def test_the_silos_batches_add_up_to_one(silos: int, size: int) -> None:
    local = choice(recipe_of(["All"] * silos, 32, None), "local").value
    assert (local["steps"], local["batchSize"]) == (5, size)


@pytest.mark.parametrize("labels", [LABELS["some"], LABELS["partial"]])
def test_guesses_begin_after_the_labels_and_count_a_tenth(labels: Sequence[Labels]) -> None:
    recipe = recipe_of(labels, 32, None)
    (stage,) = recipe.warm_up
    assert stage["method"] == "LowerBound" and 0 < stage["rounds"] < recipe.rounds / 2
    assert choice(recipe, "weighting").value == {"fedAvgSemi": {"labelledShare": "0.9"}}


def test_guesses_move_a_server_with_labels_by_a_tenth() -> None:
    step = choice(recipe_of(LABELS["server"], 32, None), "serverStep").value
    assert step == {"momentum": {"learningRate": "0.1", "momentum": "0"}}


@pytest.mark.parametrize(("side", "taken"), [(24, 64), (96, 96), (1000, 128)])
def test_pretrained_weights_are_begun_with(side: int, taken: int) -> None:
    recipe = recipe_of(LABELS["some"], side, Weights("torchvision/efficientnet_b0", "IMAGENET1K_V1"))
    assert recipe.side == taken
    assert recipe.model == {
        "network": "torchvision/efficientnet_b0",
        "weights": "IMAGENET1K_V1",
        "trainable": "Head",
        "hidden": 256,
    }


def test_images_have_a_side_that_the_weights_network_takes() -> None:
    transformer = network_called("torchvision/vit_b_16")
    assert not transformer.takes(72), "its patches of 16 pixels fill the image"
    assert recipe_of(LABELS["all"], 72, Weights(transformer.name + transformer.member, "mine")).side == 64


def test_a_network_with_a_projection_head_gets_no_hidden_layer() -> None:
    assert "hidden" not in recipe_of(LABELS["all"], 64, Weights("MoonCnn", "skin.v1")).model


@pytest.mark.parametrize("labelled", [0, 1, 2], ids=["server", "some", "all"])
@pytest.mark.parametrize("weights", [False, True], ids=["random weights", "stored weights"])
def test_init_writes_the_recipe_as_it_is(
    labelled: int, weights: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("server/anchors", "server/val", "a", "b"):
        fill(Path("data") / folder, ["x", "y"], side=80)
    if weights:
        Path("file").write_bytes(b"of another network")
        WeightsFolder(Path("data")).add(Path("file"), "torchvision/mobilenet_v3_small", "mine", "a file")
    silos = [f"--silo={name}=data/{name}" + ":labels" * (place < labelled) for place, name in enumerate("ab")]
    server = ["--anchors=data/server/anchors", "--validation=data/server/val"]
    result = CliRunner().invoke(app, ["init", "--out", "s.yaml", *server, *silos])
    assert result.exit_code == 0, result.output + repr(result.exception)
    federation: Federation = validate_study(Path("s.yaml")).federation
    labels: list[Labels] = ["All" if place < labelled else "None" for place in range(2)]
    start = Weights("torchvision/mobilenet_v3_small", "mine") if weights else None
    recipe, spec = recipe_of(labels, 80, start), federation.spec
    assert spec.model.network == recipe.model["network"] and spec.model.weights == recipe.model.get("weights")
    assert (spec.rounds, spec.method.name) == (recipe.rounds, recipe.method)
    document = spec.method.model_dump(by_alias=True, exclude_unset=True)
    assert set(document) == {"name", *(each.field for each in recipe.choices)}
    assert [stage.rounds for stage in spec.warm_up] == [stage["rounds"] for stage in recipe.warm_up]
    assert spec.evaluation is not None and (spec.evaluation.every_rounds, spec.evaluation.average_decay) == (5, "0.9")
    text = " ".join(line.strip().removeprefix("# ") for line in Path("s.yaml").read_text().splitlines())
    assert all(each.reason in text for each in recipe.choices) and recipe.model_reason in text
