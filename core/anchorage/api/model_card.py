"""``model-card.json``: what a finished run knows of its model, for people who decide on its use (as Markdown: `anchorage.api.card_text`).

What a training run cannot know, such as the intended use, is left for people to fill in.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from anchorage.api.base import Document
from anchorage.api.model import VolumeSpec
from anchorage.api.status import Timestamp

FORMAT: Final = "anchorage-model-card-1"
CARD = "model-card.json"
CARD_TEXT = "model-card.md"
EXAMPLES = "examples-{role}.png"
"""Picture of validation images with what is true and what a model predicts, beside the card, of tasks that draw one."""

_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Unit = Annotated[float, Field(ge=0, le=1)]
_Count = Annotated[int, Field(ge=0)]
Metrics = Mapping[str, _Finite]


class Interval(Document):
    """A figure with its interval."""

    value: _Finite = Field(description="On all images.")
    low: _Finite = Field(description="2.5th percentile of the resamples.")
    high: _Finite = Field(description="97.5th percentile of the resamples.")


class ClassScores(Document):
    """How well one class is told from all others; null where the images do not say."""

    name: str = Field(description="Name of the class.")
    images: _Count = Field(description="Images that are of it.")
    recall: _Unit | None = Field(description="Share of its images that were predicted as it (sensitivity).")
    specificity: _Unit | None = Field(description="Share of the other classes' images that were not predicted as it.")
    precision: _Unit | None = Field(description="Share of the images predicted as it that are of it.")
    auroc: Interval | None = Field(description="Area under the ROC curve, one class against the rest.")
    roc: Annotated[tuple[tuple[_Unit, _Unit], ...], Field(max_length=1000)] = Field(
        (), description="Points of that curve: 1 - specificity, recall; some of many, and none of many classes."
    )


class FindingScores(Document):
    """How well one finding is told, on the images of which it is known; null where the images do not say."""

    name: str = Field(description="Name of the finding.")
    positives: _Count = Field(description="Images that have it.")
    negatives: _Count = Field(description="Images that do not have it.")
    uncertain: _Count = Field(
        description="Images of which its label says that it is uncertain; they count in no score."
    )
    unknown: _Count = Field(description="Images of which nobody said; they count in no score.")
    auroc: Interval | None = Field(description="Area under the ROC curve.")
    average_precision: _Unit | None = Field(description="Area under precision by recall, in steps.")
    threshold: _Unit = Field(description="Probability from which on it is called present.")
    threshold_by: Literal["Validation", "Default"] = Field(
        description="What chose the threshold. Validation: the greatest sum of recall and specificity on the validation images. Default: "
        "nothing, because these do not have images with it and images without it."
    )
    recall: _Unit | None = Field(description="Share of the images with it that reach the threshold (sensitivity).")
    specificity: _Unit | None = Field(description="Share of the images without it that do not.")
    precision: _Unit | None = Field(description="Share of the images that reach the threshold that have it.")
    f1: _Unit | None = Field(description="Harmonic mean of recall and precision.")
    brier: _Unit | None = Field(description="Mean squared distance of its probability from 0 or 1: 0 is perfect.")
    calibration_error: _Unit | None = Field(description="Expected calibration error of its probability.")
    roc: Annotated[tuple[tuple[_Unit, _Unit], ...], Field(max_length=1000)] = Field(
        (), description="Points of the ROC curve: 1 - specificity, recall; some of many, and none of many findings."
    )


class ReliabilityBin(Document):
    """Images whose predicted class had a probability in one range."""

    low: _Unit = Field(description="Lower end of the range, outside it.")
    high: _Unit = Field(description="Upper end of the range, inside it.")
    images: _Count = Field(description="Images.")
    confidence: _Unit | None = Field(description="Their mean probability of the predicted class.")
    accuracy: _Unit | None = Field(description="Share that was predicted rightly.")


class Calibration(Document):
    """Whether probabilities are as often right as they say."""

    expected_error: _Unit = Field(description="Expected calibration error.")
    brier: Annotated[float, Field(ge=0, le=2)] = Field(
        description="Brier score: 0 is perfect, 2 the worst; of several findings per image, 1."
    )
    bins: tuple[ReliabilityBin, ...] = Field(description="Reliability table.")


class Concern(Document):
    """What is wrong with how a model does, in plain words."""

    kind: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z]*$", max_length=64)] = Field(
        description="What it is about, such as `OneClass`."
    )
    predicate: str = Field(
        description="What the model does, as it follows `the model`, on one line and without a full stop."
    )
    page: str = Field("", description="Where it stands what to do; empty where there is nothing to do.")


class Assessment(Document):
    """How one model did on labelled images."""

    part: Literal["test", "validation"] = Field(description="Which images.")
    images: Annotated[int, Field(ge=1)] = Field(description="How many.")
    metrics: Metrics = Field(
        description="The task's metrics; classification: of all classes together (methods reference, section 1)."
    )
    macro_auroc: Interval | None = Field(
        None, description="Mean of the areas of those classes, or findings, that have one."
    )
    intervals: Mapping[str, Interval] = Field({}, description="Further figures with their intervals, by name.")
    resamples: _Count = Field(
        0, description="Bootstrap resamples behind the intervals; 0: none, or too many images for any."
    )
    classes: tuple[ClassScores, ...] = Field(
        (), description="Classification: each class, in the order of the model's outputs."
    )
    findings: tuple[FindingScores, ...] = Field(
        (), description="Several findings per image: each, in the order of the model's outputs."
    )
    calibration: Calibration | None = Field(None, description="Calibration of probabilities.")
    counts: Mapping[str, tuple[tuple[_Count, ...], ...]] = Field(
        {},
        description="Tables of counts of images, by name. Classification: `confusion`, by true (row) and predicted class; left out of many classes.",
    )
    grid: Literal["File", "Network"] | None = Field(
        None,
        description="Masks: whether Dice and distances are on the grids of the images' files or, where the masks could not be read again, on the "
        "network's.",
    )
    concerns: tuple[Concern, ...] = Field(
        (), description="What the task finds wrong with the model, the gravest first."
    )


def thresholds_of(assessment: Assessment | None) -> dict[str, float]:
    """Return the threshold of each finding; empty for other tasks."""
    return (
        {finding_scores.name: finding_scores.threshold for finding_scores in assessment.findings}
        if assessment is not None
        else {}
    )


class TrainedModel(Document):
    """One of the models that the run left."""

    file: str = Field(description="Safetensors file beside the card.")
    digest: str = Field(description="BLAKE3 digest of its tensors.")
    round: _Count = Field(description="The round that it was committed in.")
    assessment: Assessment | None = Field(description="How it did; null where it was not scored at the server.")
    validation: Metrics | None = Field(
        None,
        description="Scores of its round by which the best one is chosen: on the validation images, else on the silos' own. "
        "Empty: that round was not scored; null: a card of before these were kept.",
    )


class DocumentDigest(Document):
    """A document that the run was made from."""

    kind: str = Field(description="Federation or Silo.")
    name: str = Field(description="Its name.")
    digest: str = Field(description="SHA-256 of the document as the run keeps it, in YAML.")


class ServerImages(Document):
    """Labelled images at the server."""

    part: str = Field(description="anchors, validation or test.")
    format: str = Field(description="Format of the images.")
    digest: str = Field(description="BLAKE3 digest of the images with their labels, keyed with the run's own key.")
    classes: Mapping[str, _Count] = Field(description="Images of each class.")
    unlabelled: _Count = Field(description="Images without a label.")


class SiloPart(Document):
    """A silo's part in the run."""

    name: str = Field(description="Name of the silo.")
    labels: str = Field(
        description="Which of its images are labelled, by its document or, in a cluster, as it said itself; empty where neither is here."
    )
    rounds: _Count = Field(description="Rounds in which its update counted.")
    weight: _Unit = Field(description="Mean weight of the updates that counted.")
    samples: Mapping[str, _Count] = Field(
        description="Images of its last update that counted, by use; where none did, of its last answer."
    )
    metrics: Metrics = Field(description="What it reported with its last update.")
    digest: str = Field(description="Keyed digest of its images; empty where it sent none.")
    failures: _Count = Field(description="Rounds in which it failed or was late.")
    last_weight: _Unit | None = Field(
        None, description="Weight of its last update that counted; null: a card of before it was kept."
    )
    missed: _Count | None = Field(
        None, description="Rounds that were committed without it though it was to take part; null where nobody knows."
    )


class Sent(Document):
    """An array that travelled beside the models."""

    name: str = Field(description="Name of the array.")
    shape: str = Field(description="Shape and type.")
    meaning: str = Field(description="What it is.")


class Traffic(Document):
    """What left the hospitals, and what they were sent."""

    bytes_up: _Count = Field(description="Model bytes from silos to the server.")
    bytes_down: _Count = Field(description="Model bytes from the server to silos.")
    up: tuple[Sent, ...] = Field(description="Arrays beside each update.")
    down: tuple[Sent, ...] = Field(description="Arrays beside each model.")


class ModelCard(Document):
    """Everything of the card."""

    format: Literal["anchorage-model-card-1"] = Field(FORMAT, description="Format of this file.")
    anchorage: str = Field(description="Version of Anchorage that trained the model.")
    federation: str = Field(description="Name of the federation.")
    intended_use: str = Field("", description="What the model is for, by whom and on whom; for people to fill in.")
    task: str = Field(description="Prediction task.")
    outputs: tuple[str, ...] = Field(
        (), description="Names of the model's outputs; empty: a card of before they were kept."
    )
    network: str = Field(description="Architecture.")
    image_size: int = Field(description="Pixels of a side; of volumes voxels of a patch's longest side.")
    volume: VolumeSpec | None = Field(None, description="Spacing and patches of volumes; absent: images are flat.")
    channels: int = Field(description="1 grey, 3 RGB.")
    initial: str = Field(description="Weights to start from, with source and digest; empty: random ones.")
    method: str = Field(description="Name of the method.")
    source: str = Field(description="Where the method is from.")
    warm_up: tuple[str, ...] = Field(description="Methods of the stages before it.")
    seed: int = Field(description="Seed of the run.")
    mode: str = Field(description="Synchronous or Asynchronous.")
    rounds: _Count = Field(description="Committed rounds.")
    begun: Timestamp = Field(description="Commit of the model before any training.")
    ended: Timestamp = Field(description="Commit of the last round.")
    seconds: Annotated[float, Field(ge=0)] = Field(description="Time between the two, with pauses.")
    documents: tuple[DocumentDigest, ...] = Field(description="What the run was made from.")
    images: tuple[ServerImages, ...] = Field(description="Labelled images at the server.")
    silos: tuple[SiloPart, ...] = Field(description="Every silo that took part.")
    traffic: Traffic = Field(description="What left the hospitals.")
    final: TrainedModel = Field(description="Model of the last round.")
    best: TrainedModel = Field(description="Model with the best validation score; the last without validation images.")
    labels_alone: Metrics | None = Field(
        None,
        description="The same network trained on the labels alone, on the images of `final`: on the server's labelled images, or, where the "
        "server does not train, by the silos with labels without the images that have none.",
    )
    sites_alone: Mapping[str, Metrics] | None = Field(
        None, description="The same network trained at one silo alone, by its name, on the images of `final`."
    )
    supervised_bound: Metrics | None = Field(
        None, description="Another run or simulation that had every label, on the images of `final`."
    )
    simulated: bool = Field(
        False,
        description="Whether the silos were parts of one process, so that no hospital took part and nothing travelled.",
    )
    measurable: Literal["Anchors", "Sites", "Nothing"] | None = Field(
        None,
        description="What `fedctl run` trains without the federation, to compare with: on the server's anchors alone, at each labelled silo alone, "
        "or nothing; null: a card of before it was kept.",
    )
    unlabelled: Literal["Unused", "PseudoLabelled", "Used"] | None = Field(
        None,
        description="What the method makes of images without labels: nothing, pseudo-labels, or something else; null: a card of before it was kept.",
    )
    labelled_share: _Unit | None = Field(
        None,
        description="Weight that labelled images have together in each round, where the method divides it into a part for them and one for "
        "images without labels; null where it does not.",
    )
    scored_patients: _Count | None = Field(
        None,
        description="Patients or lesions that the tables of the scored images name, which silos compare with their own; null where nobody knows.",
    )
    chosen_from: Mapping[str, _Unit] | None = Field(
        None,
        description="Balanced accuracies on the validation images of the classifiers that the last round chose from, by how they counted images "
        "without labels; null where there was no choice.",
    )
    chosen: str | None = Field(None, description="Which of them the last model has.")
    limits: tuple[str, ...] = Field(description="Known limits, a sentence each.")
