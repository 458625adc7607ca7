"""What a first study begins with, and why: network, warm-up, method and its settings, by labels, images and weights (docs/choosing-a-method.md)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import LABELS_MISSING
from anchorage.api.model import network_called
from anchorage.api.task import CLASSIFICATION

Labels = Literal["None", "All", "Partial"]
"""Which of a silo's images are labelled."""

SMALL_SIDE = 64
"""Largest side of images for the small network, in pixels: on a processor it ends within minutes."""
LEAST_MOON_SIDE = 16
"""Side below which `MoonCnn` cannot be built."""
ENCODER_SIDES = (64, 128)
"""Least and largest side for pretrained weights. Below, the first layer of some networks is another one, which their weights do not fit
(docs/networks.md); above, encoding thousands of images on a processor takes long."""
COMPONENTS = 256
"""Principal components that a classifier in closed form sees, of an encoder with more features."""
POOLED_BATCH = 32
"""Images of one step of all labelled silos together: averaging adds their batches up."""

_ROUNDS = (
    "Rounds, each a global model. The learning rate falls to 0 over them, so the last ones hardly differ: for a longer training "
    "raise them before the first start."
)
_SMALL_UNET = (
    "A small U-Net for a first run on a processor. For a result, with a GPU: network: monai/UNet and imageSize: 256 (docs/segmentation.md). Images "
    "are padded, so that nothing is cut off."
)
_SMALL_VOLUMES = "A small U-Net for a first run on a processor. With a GPU, network: monai/DynUNet and a larger patch can be tried (docs/volumes.md)."
_FEW_ROUNDS = (
    "Rounds, each a global model: few, of many steps each. The learning rate falls to 0 over them: for a longer training raise them before the "
    "first start."
)
_VOLUME_STEPS = (
    "As examples/hippocampus has it: 36 steps of two volumes a round, so 720 in all; patchesPerCase patches of each. There the first 100 to 200 "
    "steps found nothing but background: a shorter study measures nothing. The learning rate falls to 0 over the rounds (Cosine)."
)
_SMALL = (
    "A small network for a first run on a processor, without batch normalisation: its statistics differ between silos, and averaged "
    "they are what makes first models say one class to everything. For a result, with a GPU: network: ResNet18ImageNet, imageSize: 224 and "
    "method.batchNorm: {groupNorm: {}}; or pretrained weights (`fedctl weights pull`, docs/networks.md), which this file takes when it is "
    "written anew."
)
_ENCODER = (
    "Pretrained weights of the folder weights: the encoder stays as it is (Head), each image is encoded once, and a hidden layer and the "
    "classifier are trained, within seconds. trainable: All trains everything, for many labels and a GPU."
)
_FEATURES = (
    "Pretrained weights of the folder weights: the encoder stays as it is (Head) and encodes each image once. Nothing is trained: the classifier is "
    "computed from sums of features."
)
_COMPONENTS = (
    f"In the first round silos send sums over all their images, of which the server finds the {COMPONENTS} directions in which features vary most "
    "(principalComponents): a few labels have fewer numbers to learn, and silos send less. explained_variance below 0.8: take more."
)
_GUESS_ROUNDS = (
    "Rounds, each a new classifier, of seconds: the first after warmUp knows the labels alone, the others count images without labels as "
    "the classifier before guesses them."
)
_SHARES_HEAD = (
    "labels at the server only and an encoder that stays as it is. The classifier of the labels alone ended as high as a trained one or higher in "
    "trials. Images without labels count only where validation images (ten of each class, or more) show a gain: where silos have like shares of "
    "the classes there is little. Where records tell a silo's shares, write them into its classCounts: then it gains most. Without validation "
    "images fedctl init writes a method that trains"
)
_UNVALIDATED = (
    ". With --validation the file begins with SharesHead, which ended as high or higher in trials, in a fraction of the time, and needs validation "
    "images: write it anew once there are ten of each class"
)
_WARM_UP = (
    "Silos with labels train first, by themselves: pseudo-labels of a model that knows nothing are wrong, and one accepted one of many would "
    "count as much as all labels."
)
_SHORT = (
    "Rounds of five steps: averaging often wins several points over rounds of whole passes. AdamW's moments stay at the silo (Persist), "
    "and the learning rate falls to 0 over the rounds (Cosine). batchSize: 32 divided by the silos with labels, as averaging adds batches up."
)
_GUESSES = "The model's predictions of images without labels are learnt as soft labels where it is 95 % sure."
_SHARE = (
    "Silos without labels have a tenth of the weight: guesses can be wrong together, most of all where a site's images look different. "
    "Lower labelledShare (to 0.5) once the scores show that they help."
)
_ANCHORS = (
    "The server trains on its anchors: 1,000 steps before the first round, and one pass after each. Few labels need these many steps; "
    "raise them for more than a few hundred anchors."
)
_TENTH = (
    "Each round moves the model a tenth of the way to what the silos learnt of their guesses: these can be wrong together. "
    "Raise learningRate (to 1) once the scores show that they help."
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A field of the method, and why it is set."""

    field: str
    """Such as ``local``."""
    value: Any
    """As the document has it."""
    reason: str
    """A sentence or two."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Pretrained weights that lie below the data root."""

    network: str
    """As `spec.model.network` calls it."""
    name: str
    """As `spec.model.weights` does."""
    width: int | None = None
    """Number of features that its encoder gives for an image; None: unknown."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The parts of a federation file that decide how well its model learns."""

    rounds: int
    """Rounds in all."""
    rounds_reason: str
    """Why so many."""
    model: Mapping[str, Any]
    """Fields of `spec.model`, but for the images' size and channels."""
    model_reason: str
    """Why this network."""
    side: int
    """Side of an image in pixels; 0 where images are volumes."""
    warm_up: Sequence[Mapping[str, Any]]
    """Entries of `spec.warmUp`."""
    warm_up_reason: str
    """Why it warms up; empty without."""
    method: str
    """The preset."""
    method_reason: str
    """Why this one."""
    choices: Sequence[Choice]
    """Fields of `spec.method`."""


_BALANCED = Choice(
    "localLoss",
    {"balancedSoftmax": {"shares": "Federation"}},
    "Labels are learnt as if all classes were equally frequent; silos send how many images of each class they have. Without: {taskLoss: {}}.",
)
_TASK_LOSS = "The task's own loss."
_GROUP_NORM = Choice(
    "batchNorm",
    {"groupNorm": {}},
    "Group normalisation in the place of batch normalisation, whose averaged statistics make first models say one class to everything.",
)


def recipe_of(
    labels: Sequence[Labels],
    side: int,
    weights: Weights | None,
    task: str = "classification",
    *,
    validated: bool = False,
) -> Recipe:
    """Choose what a study begins with.

    Parameters
    ----------
    labels : sequence of str
        Labels of each silo; all None: the server's anchors are the only ones.
    side : int
        Usual shorter side of the images in pixels, a multiple of 8.
    weights : Weights or None
        Pretrained weights to start from.
    task : str
        Name of the task's piece.
    validated : bool
        Whether the server has validation images.

    Raises
    ------
    AnchorageError
        LABELS_MISSING: of another task than classification no silo has labels.
    """
    model, model_reason, side, norm = _network(side, weights, maps=task == "segmentation")
    labelled = sum(each != "None" for each in labels)
    batch = max(4, min(POOLED_BATCH, POOLED_BATCH // max(1, labelled)))
    rate = "0.001" if weights else "0.003"
    supervised = {"steps": 5, "batchSize": batch, "optimiser": _adamw(rate)}
    recipe = partial(
        Recipe,
        rounds=250,
        rounds_reason=_ROUNDS,
        model=model,
        model_reason=model_reason,
        side=side,
        warm_up=(),
        warm_up_reason="",
    )
    if task not in CLASSIFICATION:
        return recipe(
            method=_choose_supervised(labels, task),
            method_reason="learns from the images with labels alone; docs/methods/README.md says which methods learn from the others with this task",
            choices=[Choice("localLoss", {"taskLoss": {}}, _TASK_LOSS), Choice("local", supervised, _SHORT), *norm],
        )
    if labelled and all(each == "All" for each in labels):
        return recipe(
            method="FedAvg",
            method_reason="labels at every silo; where silos differ strongly compare FedProx, SCAFFOLD, MOON",
            choices=[_BALANCED, Choice("local", supervised, _SHORT), *norm],
        )
    if labelled:
        return _with_guesses(recipe, supervised, norm, weights)
    fits = weights is not None and not getattr(network_called(weights.network), "projects", False)
    if weights is not None and fits and validated:
        return _closed_form(weights, side)
    return _from_anchors(recipe, batch, rate, norm, weights, _UNVALIDATED * fits)


def _pseudo_labels(weights: Weights | None) -> Choice:
    uda = {"threshold": "0.95", "temperature": "1"} | ({"views": "Plain"} if weights else {})
    return Choice("pseudoLabels", {"uda": uda}, _GUESSES)


def _with_guesses(
    recipe: Callable[..., Recipe], supervised: Mapping[str, Any], norm: Sequence[Choice], weights: Weights | None
) -> Recipe:
    """Return the recipe of labels for a part of the silos' images."""
    first = [
        f"localLoss={_flow(_BALANCED.value)}",
        *(f"local.{name}={_flow(value)}" for name, value in supervised.items()),
        *(f"batchNorm={_flow(choice.value)}" for choice in norm),
    ]
    return recipe(
        warm_up=({"method": "LowerBound", "rounds": 60, "set": first},),
        warm_up_reason=_WARM_UP,
        method="FedAvgUDA",
        method_reason="labels for a part of the images; to compare: SemiAnAgg, FedAvgSemi, CBAFed, RSCFed",
        choices=[
            _BALANCED,
            _pseudo_labels(weights),
            Choice("weighting", {"fedAvgSemi": {"labelledShare": "0.9"}}, _SHARE),
            Choice("local", supervised, _SHORT),
            *norm,
        ],
    )


def _from_anchors(
    recipe: Callable[..., Recipe],
    batch: int,
    rate: str,
    norm: Sequence[Choice],
    weights: Weights | None,
    unvalidated: str,
) -> Recipe:
    """Return the recipe of labels at the server alone, where its network trains."""
    guesses = {"steps": 5, "batchSize": batch, "optimiser": _adamw("0.001")}
    anchors = {
        "pretrainSteps": 1000,
        "pretrainLearningRate": rate,
        "epochs": 1,
        "optimiser": {"adamW": {"learningRate": "0.001", "schedule": "Cosine"}},
    }
    return recipe(
        rounds=60,
        method="FedAvgFixMatchAlternate",
        method_reason="labels at the server only; to compare: FedAnchor, SemiFL" + unvalidated,
        choices=[
            *([_pseudo_labels(weights)] if weights else []),
            Choice("serverTraining", {"anchors": anchors}, _ANCHORS),
            Choice("local", guesses, _SHORT),
            Choice("serverStep", {"momentum": {"learningRate": "0.1", "momentum": "0"}}, _TENTH),
            *norm,
        ],
    )


def _closed_form(weights: Weights, side: int) -> Recipe:
    """Return the recipe of labels at the server and a frozen encoder, whose images have this side."""
    model: dict[str, Any] = {"network": weights.network, "weights": weights.name, "trainable": "Head"}
    narrow = (weights.width or 0) <= COMPONENTS  # or unknown: the classifier sees the features
    return Recipe(
        rounds=10 if narrow else 11,
        rounds_reason=_GUESS_ROUNDS,
        model=model if narrow else model | {"principalComponents": COMPONENTS},
        model_reason=_FEATURES,
        side=side,
        warm_up=() if narrow else ({"method": "PrincipalComponents", "rounds": 1},),
        warm_up_reason="" if narrow else _COMPONENTS,
        method="SharesHead",
        method_reason=_SHARES_HEAD,
        choices=(),
    )


def recipe_of_volumes(labels: Sequence[Labels]) -> Recipe:
    """Choose what a study of volumes with masks begins with; `labels` and errors as of `recipe_of`."""
    local = {"steps": 36, "batchSize": 2, "optimiser": {"adamW": {"learningRate": "0.003", "schedule": "Cosine"}}}
    method = _choose_supervised(labels, "segmentation")
    reasons = {
        "FedAvg": "masks at every silo; where silos differ strongly compare FedProx, SCAFFOLD",
        "LowerBound": "FedAvg of the volumes with masks alone; to compare once it finds something: FedAvgFixMatch, which learns the confident "
        "voxels of the others, too",
    }
    return Recipe(
        rounds=20,
        rounds_reason=_FEW_ROUNDS,
        model={"network": "SmallUNet"},
        model_reason=_SMALL_VOLUMES,
        side=0,
        warm_up=(),
        warm_up_reason="",
        method=method,
        method_reason=reasons[method],
        choices=[Choice("localLoss", {"taskLoss": {}}, _TASK_LOSS), Choice("local", local, _VOLUME_STEPS)],
    )


def _choose_supervised(labels: Sequence[Labels], task: str) -> str:
    if all(each == "None" for each in labels):
        message = f"fedctl init knows no method for the task {task} where no silo has labels"
        raise AnchorageError(LABELS_MISSING, f"{message}; use those of a silo with --silo NAME=DIR:labels")
    return "FedAvg" if all(each == "All" for each in labels) else "LowerBound"


def _network(side: int, weights: Weights | None, *, maps: bool) -> tuple[dict[str, Any], str, int, Sequence[Choice]]:
    """Return the fields of the model, why, the images' side, and what the method needs for the network's normalisation; `maps`: it segments."""
    if maps:
        return {"network": "SmallUNet"}, _SMALL_UNET, min(side, SMALL_SIDE), ()
    if weights is not None:
        fields: dict[str, Any] = {"network": weights.network, "weights": weights.name, "trainable": "Head"}
        network = network_called(weights.network)
        if not getattr(network, "projects", False):
            fields["hidden"] = 256  # where a projection head stands, no hidden layer can
        least, most = ENCODER_SIDES
        largest = max(least, min(side, most))
        fitting = (each for each in range(largest, least - 1, -8) if network.takes(each))
        return fields, _ENCODER, next(fitting, least), ()
    if side < LEAST_MOON_SIDE:
        return {"network": "SmallCnn"}, _SMALL, side, (_GROUP_NORM,)
    return {"network": "MoonCnn"}, _SMALL, min(side, SMALL_SIDE), ()


def _adamw(rate: str) -> dict[str, Any]:
    return {"adamW": {"learningRate": rate, "schedule": "Cosine", "state": "Persist"}}


def _flow(value: Any) -> str:
    """Write a value as an override has it."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_flow(item)}" for name, item in value.items()) + "}"
    return f'"{value}"' if isinstance(value, str) and value[:1].isdigit() else str(value)
