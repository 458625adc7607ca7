"""A method: a preset's name and the slots that a user overrides (METHODS.md section 3).

Every slot's fields have the plain defaults; a preset (`anchorage.methods`) replaces the slots that define it, and what a
user sets in the document wins over both, field by field (`model_fields_set` tells what was set).
"""

from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from anchorage.api.base import NAMES_PATTERN, WORD_PATTERN, AboveZero, Document, Fraction, PositiveDecimal

MethodName = Annotated[str, StringConstraints(strict=True, pattern=WORD_PATTERN, max_length=63)]
"""A preset's name. `anchorage.methods.PRESETS` knows which ones exist; a package may add its own."""

Count = Annotated[int, Field(ge=1, le=1_000_000)]

NamePattern = Annotated[str, StringConstraints(strict=True, pattern=NAMES_PATTERN, max_length=63)]
"""Names of silos, with * for any characters and ? for one."""


class Sgd(Document):
    """SGD as the papers use it (METHODS.md section 5.3)."""

    learning_rate: PositiveDecimal = Field("0.03", description="Step size.")
    momentum: Fraction = Field("0.9", description="Momentum of SGD.")
    weight_decay: PositiveDecimal = Field("0.0005", description="Decay of every trained parameter.")
    clip_norm: PositiveDecimal = Field("0", description="Largest gradient norm; 0 does not clip.")
    nesterov: Literal["Enabled", "Disabled"] = Field("Disabled", description="Whether momentum looks ahead.")
    schedule: Literal["Constant", "Cosine", "WarmUpCosine"] = Field(
        "Constant", description="Cosine: the step size falls to 0 over the rounds; WarmUp: after it rose for 10 epochs."
    )


class Optimiser(Sgd):
    """SGD of a silo; the server's momentum starts anew in each round (METHODS.md section 1)."""

    state: Literal["Reset", "Persist"] = Field(
        "Reset", description="Whether momentum starts anew in each round or stays with the silo."
    )


class UnlabelledWork(Document):
    """What a silo without any label does otherwise than one with labels (METHODS.md section 5.3); absent: the same."""

    epochs: Annotated[int, Field(ge=1, le=1000)] | None = Field(None, description="Passes over its images per round.")
    learning_rate: PositiveDecimal | None = Field(None, description="Step size.")
    clip_norm: PositiveDecimal | None = Field(None, description="Largest gradient norm; 0 does not clip.")
    batch_size: Count | None = Field(None, description="Images per step.")


class ValidationCycle(Document):
    """Adaptive Metis: a silo trains until its validation loss stands still, or the others moved on (METHODS.md 6.14)."""

    plateau_percent: PositiveDecimal = Field("0", description="Improvement of the loss, in %, that still is a failure.")
    tombstones: Annotated[int, Field(ge=0, le=100)] = Field(4, description="Epochs that may fail per cycle.")
    max_epochs: Annotated[int, Field(ge=1, le=100)] = Field(32, description="Longest cycle, in epochs.")
    slow_silos: NamePattern | None = Field(None, description="Pattern of the slow silos' names, such as cpu-*.")
    slow_plateau_percent: PositiveDecimal = Field("1", description="plateauPercent of slow silos.")
    slow_tombstones: Annotated[int, Field(ge=0, le=100)] = Field(1, description="Tombstones of slow silos.")

    def of(self, silo: str) -> "ValidationCycle":
        """Return a silo's cycle: its plateau and tombstones are those of its group."""
        if self.slow_silos is None or not fnmatchcase(silo, self.slow_silos):
            return self
        return self.model_copy(
            update={"plateau_percent": self.slow_plateau_percent, "tombstones": self.slow_tombstones}
        )


class Local(Document):
    """Work of a silo in one round."""

    epochs: Annotated[int, Field(ge=1, le=1000)] = Field(5, description="Passes over the silo's images per round.")
    batch_size: Count = Field(10, description="Images per step.")
    optimiser: Optimiser = Field(Optimiser(), description="Optimiser of the silo.")
    start: Literal["Received", "Own"] = Field(
        "Received", description="Model that a silo goes on from: its own last one?"
    )
    cycle: ValidationCycle | None = Field(None, description="Train as long as it helps instead of `epochs`.")
    unlabelled: UnlabelledWork = Field(UnlabelledWork(), description="What a silo without any label does otherwise.")

    def of(self, *, labelled: bool) -> "Local":
        """Return the work of a silo that has labels, or has none; with a validation cycle `epochs` is its longest."""
        other = self.unlabelled
        if labelled:
            return self if self.cycle is None else self.model_copy(update={"epochs": self.cycle.max_epochs})
        changes = {"learning_rate": other.learning_rate, "clip_norm": other.clip_norm}
        given = {name: value for name, value in changes.items() if value is not None}
        optimiser = self.optimiser.model_copy(update=given)
        size = other.batch_size or self.batch_size
        return self.model_copy(
            update={"optimiser": optimiser, "epochs": other.epochs or self.epochs, "batch_size": size}
        )


class Supervised(Document):
    """Loss on labelled images (slot 4)."""

    type: Literal["CrossEntropy", "BalancedSoftmax"] = Field("CrossEntropy", description="Loss on labelled images.")


class Heads(Document):
    """Classifiers beside the one that is tested (slot 3; METHODS.md 6.12)."""

    second: Literal["None", "Personal", "PersonalDual", "Balanced"] = Field(
        "None",
        description="Personal: kept at the silo (Dual: learns pseudo-labels, too). Balanced: the tested head, beside a plain one.",
    )


class SelfSupervised(Document):
    """What silos learn from images without any label (slot 5)."""

    type: Literal["None", "Byol", "Barlow", "Clusters"] = Field("None", description="Loss that takes no label.")
    scale: AboveZero = Field("0.01", description="Barlow: factor of the loss.")
    off_diagonal: PositiveDecimal = Field("0.0051", description="Barlow: factor of the redundancy term.")
    online_classifier: Literal["Enabled", "Disabled"] = Field(
        "Disabled", description="Barlow: whether labels train a classifier beside, on features that it does not change."
    )


class PseudoLabels(Document):
    """Who labels the unlabelled images, how often, and which labels are accepted (slot 6)."""

    type: Literal[
        "None",
        "AnchorSimilarity",
        "ReceivedModel",
        "FlexMatch",
        "FixMatch",
        "UDA",
        "ClassAdaptive",
        "Helpers",
        "MeanTeacher",
    ] = Field(
        "None",
        description="Source of pseudo-labels: once per round by AnchorSimilarity or the ReceivedModel, or for every batch.",
    )
    threshold: Fraction = Field(
        "0.6",
        description="Acceptance: score > threshold (AnchorSimilarity), else confidence >= threshold; ClassAdaptive: its base.",
    )
    ceiling: Fraction = Field("0.95", description="ClassAdaptive: largest threshold of a class.")
    rare_below: Fraction = Field("0.03", description="ClassAdaptive: share of the images, times C/10, of a rare class.")
    temperature: AboveZero = Field("0.4", description="UDA, MeanTeacher: temperature that sharpens the soft labels.")
    weight: PositiveDecimal = Field("0.02", description="MeanTeacher: factor of the squared error.")
    divisor: Literal["BatchSize", "Actual"] = Field("BatchSize", description="MeanTeacher: what divides a short batch.")
    adjustment: Literal["None", "Local", "Labelled"] = Field(
        "None",
        description="FixMatch with two heads: class shares, of the silo or of all labels, that labels make up for.",
    )
    anchors: Literal["Prototypes", "Raw"] = Field(
        "Prototypes", description="What travels down: class means of the anchors' embeddings, or every embedding."
    )
    views: Annotated[int, Field(ge=1, le=16)] = Field(
        1, description="AnchorSimilarity: weak views whose scores are averaged; 1 means the plain image."
    )
    flex_state: Literal["Persist", "Reset"] = Field(
        "Persist", description="FlexMatch: whether the class counters survive a round."
    )


class Decomposition(Document):
    """FedMatch's split of every weight into a supervised part sigma and a sparse unsupervised part psi (slot 3)."""

    type: Literal["None", "SigmaPsi"] = Field("None", description="Whether weights are sums of two parts.")
    helpers: Annotated[int, Field(ge=1, le=8)] = Field(2, description="Silos whose psi helps a silo label its images.")
    supervised_weight: PositiveDecimal = Field("10", description="Factor of the loss on labels.")
    consistency_weight: PositiveDecimal = Field("0.01", description="Factor of both consistency terms.")
    closeness: PositiveDecimal = Field("10", description="Factor of the squared distance of sigma and psi.")
    sparsity: PositiveDecimal = Field("0.0001", description="Factor of the sum of absolute values of psi.")
    smallest: PositiveDecimal = Field("0.000005", description="What of psi is not larger becomes 0.")
    smallest_change: PositiveDecimal = Field("0.00005", description="What of psi changed no more stays as received.")


class Mixup(Document):
    """Where the fix/mix pair of losses is used (slots 5 and 8; L_fix + weight * L_mix)."""

    at: Literal["None", "Client", "Server", "Both"] = Field("None", description="Where mixed images are trained on.")
    alpha: AboveZero = Field("0.75", description="Parameter of Beta(alpha, alpha).")
    weight: PositiveDecimal = Field("1", description="Factor of the mixed loss.")
    redraw: Literal["Round", "Epoch"] = Field("Round", description="How often the mix set is drawn anew.")


class InputMixing(Document):
    """Images that labelled images are mixed with (slot 8, MAFL)."""

    type: Literal["None", "Local", "Naive", "FedMix", "Global"] = Field(
        "None", description="Others of the batch, means of all silos' images, or the silos' raw images (Global)."
    )
    share: Fraction = Field("0.05", description="Weight lambda of the foreign image.")
    group_size: Annotated[int, Field(ge=2, le=1_000_000)] = Field(5, description="Images per mean that leaves a silo.")


class Regulariser(Document):
    """Pull towards the received model (slot 7)."""

    type: Literal["None", "Proximal", "Moon", "FeatureDistance", "ControlVariates"] = Field(
        "None",
        description="Pull on the weights (Proximal), on their gradients, or on representations behind a projection head.",
    )
    mu: PositiveDecimal = Field("0.01", description="Factor of the term; Proximal: of half the squared distance.")
    temperature: AboveZero = Field("0.5", description="Moon: temperature of the contrast.")
    previous_models: Annotated[int, Field(ge=1, le=8)] = Field(
        1, description="Moon: how many of its own last models a silo is pushed away from."
    )


class ServerTraining(Document):
    """What the server trains on its anchors after aggregation (slot 9)."""

    type: Literal["None", "Anchors"] = Field("None", description="Whether the server trains.")
    consistency: Literal["Enabled", "Disabled"] = Field(
        "Disabled", description="FedCon: two views that must agree, ramped up over 100 rounds."
    )
    pretrain_epochs: Annotated[int, Field(ge=0, le=10_000)] = Field(
        5, description="Cross-entropy epochs on the anchors before round 1."
    )
    pretrain_learning_rate: PositiveDecimal = Field("0.05", description="Step size before round 1.")
    epochs: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="Epochs of each server loss per round.")
    batch_size: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Anchors per step; 0 means 10 up to 250 anchors, else 250."
    )
    views: Literal["Strong", "Weak"] = Field("Strong", description="Augmentation of the cross-entropy epochs.")
    contrastive: Literal["Enabled", "Disabled"] = Field(
        "Disabled", description="Whether the label contrastive epoch follows."
    )
    temperature: AboveZero = Field("0.5", description="Temperature of the contrastive loss.")
    denominator: Literal["AllNegatives", "Bounded"] = Field(
        "AllNegatives", description="Bounded also counts the positives in the denominator."
    )
    optimiser: Sgd = Field(Sgd(), description="Optimiser of the server.")


class Weighting(Document):
    """How much each update counts (slot 10)."""

    type: Literal[
        "Uniform",
        "SampleCount",
        "SelectedCount",
        "UsedCount",
        "FedAvgSemi",
        "SemiAnAgg",
        "StepCount",
        "DVW",
        "SubConsensus",
    ] = Field("SampleCount", description="Rule for the weights.")
    order: Literal["Paper", "Code"] = Field(
        "Paper", description="SemiAnAgg: 1 - w before normalising (paper) or after (published code)."
    )
    anchor_seed: Annotated[int, Field(ge=1, le=99)] = Field(1, description="SemiAnAgg: number of the random anchor.")
    minimum_per_class: Count = Field(
        1, description="SemiAnAgg: confident images without which a silo reports a class as absent."
    )
    labelled_share: Fraction = Field(
        "0.5", description="FedAvgSemi, SemiAnAgg: total weight of the labelled half (lambda 1)."
    )
    metric: Literal["MicroF1", "MacroF1", "BalancedAccuracy", "GeometricMean", "MCC"] = Field(
        "MicroF1", description="DVW: score of a model on the silos' validation splits."
    )
    validation_percent: Annotated[int, Field(ge=1, le=50)] = Field(
        5, description="DVW: share of each silo's images kept for validation."
    )
    sharpening: AboveZero = Field("1", description="DVW: power of the score (kappa); larger sets good models apart.")
    groups: Annotated[int, Field(ge=1, le=100)] = Field(3, description="SubConsensus: groups drawn per round.")
    group_size: Count = Field(5, description="SubConsensus: silos per group.")
    labelled_factor: AboveZero = Field("6", description="SubConsensus: factor of a silo with labels.")
    scale: PositiveDecimal = Field("10000", description="SubConsensus: beta of a group without labels.")
    labelled_scale: PositiveDecimal = Field("100", description="SubConsensus: beta of a group with labels.")
    distance: Literal["Parameters", "All"] = Field("Parameters", description="SubConsensus: over which tensors.")


class BatchNorm(Document):
    """What becomes of batch normalisation when updates are averaged (slot 3; METHODS.md section 1, rule 5)."""

    policy: Literal["Average", "Pooled", "Recalibrate", "Local", "Static"] = Field(
        "Average",
        description="Pooled: variance of all data; Local: stays at the silo, and is counted on the anchors to score; others: counted on them.",
    )


class ServerStep(Document):
    """What the server does with the mean of the updates (slot 11)."""

    type: Literal["Replace", "Momentum", "Adagrad", "Adam", "Yogi", "Residual", "Mix", "Keep", "ControlVariates"] = (
        Field(
            "Replace",
            description="Take the mean, step towards it, mix it with a record or with the model before it, or keep the model.",
        )
    )
    learning_rate: AboveZero = Field("0.1", description="Every step towards the mean: its size at the server.")
    momentum: Fraction = Field("0.9", description="Momentum: beta; Adagrad, Adam, Yogi: beta 1.")
    second_momentum: Fraction = Field("0.99", description="Adam, Yogi: beta 2.")
    tau: AboveZero = Field("0.001", description="Adagrad, Adam, Yogi: what is added to the root.")
    every: Annotated[int, Field(ge=1, le=10_000)] = Field(5, description="Residual: rounds between two mixtures.")
    record_share: Fraction = Field("0.5", description="Residual: weight of the record in the mixture.")
    alpha: Fraction = Field("0.6", description="Mix: weight of a fresh update in the new model, above 0.")
    staleness: Literal["Constant", "Polynomial", "Hinge"] = Field(
        "Constant", description="Mix: how the weight falls with the models made since the silo's download."
    )
    falloff: AboveZero = Field("0.5", description="Polynomial: exponent a; Hinge: slope a.")
    grace: Annotated[int, Field(ge=0, le=1_000_000)] = Field(4, description="Hinge: models b without any discount.")


class MethodSpec(Document):
    """A preset and its overrides."""

    name: MethodName = Field(description="The preset that fills every slot.")
    supervised: Supervised | None = Field(None, description="Loss on labelled images.")
    heads: Heads | None = Field(None, description="A second classifier.")
    self_supervised: SelfSupervised | None = Field(None, description="Loss without labels.")
    pseudo_labels: PseudoLabels | None = Field(None, description="Labels for unlabelled images.")
    decomposition: Decomposition | None = Field(None, description="Split of the weights into two parts.")
    mixup: Mixup | None = Field(None, description="Mixed images.")
    input_mixing: InputMixing | None = Field(None, description="Labelled images mixed with others.")
    regulariser: Regulariser | None = Field(None, description="Pull towards the received model.")
    server_training: ServerTraining | None = Field(None, description="Training at the server.")
    weighting: Weighting | None = Field(None, description="Weights of the updates.")
    batch_norm: BatchNorm | None = Field(None, description="Batch normalisation between silos.")
    server_step: ServerStep | None = Field(None, description="What becomes of the mean of the updates.")
    local: Local | None = Field(None, description="Work of a silo per round.")


class ResolvedMethod(Document):
    """A method with every slot filled; `anchorage.methods.resolve` makes it."""

    name: MethodName = Field(description="The preset it came from.")
    supervised: Supervised = Field(description="Loss on labelled images.")
    heads: Heads = Field(Heads(), description="A second classifier.")
    self_supervised: SelfSupervised = Field(SelfSupervised(), description="Loss without labels.")
    pseudo_labels: PseudoLabels = Field(description="Labels for unlabelled images.")
    decomposition: Decomposition = Field(Decomposition(), description="Split of the weights into two parts.")
    mixup: Mixup = Field(description="Mixed images.")
    input_mixing: InputMixing = Field(InputMixing(), description="Labelled images mixed with others.")
    regulariser: Regulariser = Field(description="Pull towards the received model.")
    server_training: ServerTraining = Field(description="Training at the server.")
    weighting: Weighting = Field(description="Weights of the updates.")
    batch_norm: BatchNorm = Field(BatchNorm(), description="Batch normalisation between silos.")
    server_step: ServerStep = Field(ServerStep(), description="What becomes of the mean of the updates.")
    local: Local = Field(description="Work of a silo per round.")
