"""What a first file begins with, by labels, images and weights, and what it keeps clear of."""

from collections.abc import Sequence
from dataclasses import replace
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
from fedctl.pretrained import encoder_width
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


@pytest.mark.parametrize("weights", [None, Weights("torchvision/mobilenet_v3_small", "mine", 1024)])
@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_every_choice_has_its_reason(labels: Sequence[Labels], weights: Weights | None) -> None:
    recipe = recipe_of(labels, 32, weights, validated=True)
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


@pytest.mark.parametrize(("side", "expected_side"), [(24, 64), (96, 96), (1000, 128)])
def test_pretrained_weights_are_begun_with(side: int, expected_side: int) -> None:
    recipe = recipe_of(LABELS["some"], side, Weights("torchvision/efficientnet_b0", "IMAGENET1K_V1"))
    assert recipe.side == expected_side
    assert recipe.model == {
        "network": "torchvision/efficientnet_b0",
        "weights": "IMAGENET1K_V1",
        "trainable": "Head",
        "hidden": 256,
    }


ENCODER = Weights("torchvision/mobilenet_v3_small", "mine", 1024)


def test_few_labels_at_the_server_and_an_encoder_begin_with_a_classifier_of_components() -> None:
    recipe = recipe_of(LABELS["server"], 96, ENCODER, validated=True)
    assert (recipe.method, recipe.rounds, recipe.choices, recipe.side) == ("SharesHead", 11, (), 96)
    assert recipe.warm_up == ({"method": "PrincipalComponents", "rounds": 1},)
    assert recipe.model["principalComponents"] == 256 and "hidden" not in recipe.model


@pytest.mark.parametrize("width", [192, 256, None])
def test_an_encoder_of_few_or_unknown_features_has_no_components(width: int | None) -> None:
    recipe = recipe_of(LABELS["server"], 96, replace(ENCODER, width=width), validated=True)
    assert (recipe.method, recipe.rounds, recipe.warm_up) == ("SharesHead", 10, ())
    assert "principalComponents" not in recipe.model and not recipe.warm_up_reason


@pytest.mark.parametrize(
    ("labels", "weights", "validated", "method"),
    [
        ("server", ENCODER, False, "FedAvgFixMatchAlternate"),
        ("server", None, True, "FedAvgFixMatchAlternate"),
        ("server", Weights("MoonCnn", "skin.v1", 84), True, "FedAvgFixMatchAlternate"),
        ("some", ENCODER, True, "FedAvgUDA"),
        ("partial", ENCODER, True, "FedAvgUDA"),
        ("all", ENCODER, True, "FedAvg"),
    ],
    ids=["no validation", "no encoder", "projection head", "some silos", "partial", "all silos"],
)
def test_other_studies_train(labels: str, weights: Weights | None, validated: bool, method: str) -> None:
    recipe = recipe_of(LABELS[labels], 96, weights, validated=validated)
    assert recipe.method == method
    assert ("--validation" in recipe.method_reason) == (labels == "server" and weights == ENCODER)


def test_several_findings_have_no_classifier_of_sums() -> None:
    assert recipe_of(["All", "None"], 96, ENCODER, "multiLabel", validated=True).method == "LowerBound"


def test_the_features_of_an_encoder_are_counted_without_its_weights() -> None:
    assert encoder_width("torchvision/mobilenet_v3_small") == 1024
    assert encoder_width("ResNet18") == 512


@pytest.mark.parametrize("network", ["torchvision/regnet_y_128gf", "timm/nonsense"], ids=["not on meta", "no such"])
def test_the_features_of_an_encoder_that_cannot_be_built_are_unknown(network: str) -> None:
    assert encoder_width(network) is None


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
    recipe, spec = recipe_of(labels, 80, ENCODER if weights else None, validated=True), federation.spec
    assert spec.model.network == recipe.model["network"] and spec.model.weights == recipe.model.get("weights")
    assert (spec.rounds, spec.method.name) == (recipe.rounds, recipe.method)
    assert spec.model.principal_components == recipe.model.get("principalComponents")
    document = spec.method.model_dump(by_alias=True, exclude_unset=True)
    assert set(document) == {"name", *(each.field for each in recipe.choices)}
    assert [stage.rounds for stage in spec.warm_up] == [stage["rounds"] for stage in recipe.warm_up]
    decay = None if recipe.method == "SharesHead" else "0.9"
    assert spec.evaluation is not None and (spec.evaluation.every_rounds, spec.evaluation.average_decay) == (5, decay)
    text = " ".join(line.strip().removeprefix("# ") for line in Path("s.yaml").read_text().splitlines())
    reasons = [recipe.method_reason, recipe.rounds_reason, recipe.model_reason, recipe.warm_up_reason]
    assert all(reason in text for reason in (*reasons, *(each.reason for each in recipe.choices)))
