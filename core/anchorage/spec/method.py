"""A method: a preset's name and the slots that a user overrides (METHODS.md section 3).

Every slot's fields have the plain defaults; a preset (`anchorage.methods`) replaces the slots that define it, and what a
user sets in the document wins over both, field by field (`model_fields_set` tells what was set).
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from anchorage.spec.base import WORD_PATTERN, AboveZero, Document, Fraction, PositiveDecimal

MethodName = Annotated[str, StringConstraints(strict=True, pattern=WORD_PATTERN, max_length=63)]
"""A preset's name. `anchorage.methods.PRESETS` knows which ones exist; a package may add its own."""

Count = Annotated[int, Field(ge=1, le=1_000_000)]


class Optimiser(Document):
    """SGD as the papers use it (METHODS.md section 5.3)."""

    learning_rate: PositiveDecimal = Field("0.03", description="Step size.")
    momentum: Fraction = Field("0.9", description="Momentum of SGD.")
    weight_decay: PositiveDecimal = Field("0.0005", description="Decay of every trained parameter.")
    clip_norm: PositiveDecimal = Field("0", description="Largest gradient norm; 0 does not clip.")
    state: Literal["Reset", "Persist"] = Field(
        "Reset", description="Whether momentum starts anew in each round or stays with the silo."
    )


class UnlabelledWork(Document):
    """What a silo without any label does otherwise than one with labels (METHODS.md section 5.3); absent: the same."""

    epochs: Annotated[int, Field(ge=1, le=1000)] | None = Field(None, description="Passes over its images per round.")
    learning_rate: PositiveDecimal | None = Field(None, description="Step size.")
    clip_norm: PositiveDecimal | None = Field(None, description="Largest gradient norm; 0 does not clip.")


class Local(Document):
    """Work of a silo in one round."""

    epochs: Annotated[int, Field(ge=1, le=1000)] = Field(5, description="Passes over the silo's images per round.")
    batch_size: Count = Field(10, description="Images per step.")
    optimiser: Optimiser = Field(Optimiser(), description="Optimiser of the silo.")
    unlabelled: UnlabelledWork = Field(UnlabelledWork(), description="What a silo without any label does otherwise.")

    def of(self, *, labelled: bool) -> "Local":
        """Return the work of a silo that has labels, or has none."""
        other = self.unlabelled
        if labelled:
            return self
        changes = {"learning_rate": other.learning_rate, "clip_norm": other.clip_norm}
        given = {name: value for name, value in changes.items() if value is not None}
        optimiser = self.optimiser.model_copy(update=given)
        return self.model_copy(update={"optimiser": optimiser, "epochs": other.epochs or self.epochs})


class Supervised(Document):
    """Loss on labelled images (slot 4)."""

    type: Literal["CrossEntropy", "BalancedSoftmax"] = Field("CrossEntropy", description="Loss on labelled images.")


class PseudoLabels(Document):
    """Who labels the unlabelled images, how often, and which labels are accepted (slot 6)."""

    type: Literal["None", "AnchorSimilarity", "ReceivedModel", "FlexMatch", "FixMatch", "UDA", "ClassAdaptive"] = Field(
        "None",
        description="Source of pseudo-labels: once per round by AnchorSimilarity or the ReceivedModel, or for every batch.",
    )
    threshold: Fraction = Field(
        "0.6",
        description="Acceptance: score > threshold (AnchorSimilarity), else confidence >= threshold; ClassAdaptive: its base.",
    )
    ceiling: Fraction = Field("0.95", description="ClassAdaptive: largest threshold of a class.")
    rare_below: Fraction = Field("0.03", description="ClassAdaptive: share of the images, times C/10, of a rare class.")
    temperature: AboveZero = Field("0.4", description="UDA: temperature that sharpens the soft labels.")
    anchors: Literal["Prototypes", "Raw"] = Field(
        "Prototypes", description="What travels down: class means of the anchors' embeddings, or every embedding."
    )
    views: Annotated[int, Field(ge=1, le=16)] = Field(
        1, description="AnchorSimilarity: weak views whose scores are averaged; 1 means the plain image."
    )
    flex_state: Literal["Persist", "Reset"] = Field(
        "Persist", description="FlexMatch: whether the class counters survive a round."
    )


class Mixup(Document):
    """Where the fix/mix pair of losses is used (slots 5 and 8; L_fix + weight * L_mix)."""

    at: Literal["None", "Client", "Server", "Both"] = Field("None", description="Where mixed images are trained on.")
    alpha: AboveZero = Field("0.75", description="Parameter of Beta(alpha, alpha).")
    weight: PositiveDecimal = Field("1", description="Factor of the mixed loss.")
    redraw: Literal["Round", "Epoch"] = Field("Round", description="How often the mix set is drawn anew.")


class Regulariser(Document):
    """Pull towards the received model (slot 7)."""

    type: Literal["None", "Proximal", "Moon", "FeatureDistance"] = Field(
        "None", description="Kind of pull: on the weights (Proximal), or on representations behind a projection head."
    )
    mu: PositiveDecimal = Field("0.01", description="Factor of the term; Proximal: of half the squared distance.")
    temperature: AboveZero = Field("0.5", description="Moon: temperature of the contrast.")
    previous_models: Annotated[int, Field(ge=1, le=8)] = Field(
        1, description="Moon: how many of its own last models a silo is pushed away from."
    )


class ServerTraining(Document):
    """What the server trains on its anchors after aggregation (slot 9)."""

    type: Literal["None", "Anchors"] = Field("None", description="Whether the server trains.")
    pretrain_epochs: Annotated[int, Field(ge=0, le=10_000)] = Field(
        5, description="Cross-entropy epochs on the anchors before round 1."
    )
    pretrain_learning_rate: PositiveDecimal = Field("0.05", description="Step size before round 1.")
    epochs: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="Epochs of each server loss per round.")
    batch_size: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Anchors per step; 0 means 10 up to 250 anchors, else 250."
    )
    contrastive: Literal["Enabled", "Disabled"] = Field(
        "Disabled", description="Whether the label contrastive epoch follows."
    )
    temperature: AboveZero = Field("0.5", description="Temperature of the contrastive loss.")
    denominator: Literal["AllNegatives", "Bounded"] = Field(
        "AllNegatives", description="Bounded also counts the positives in the denominator."
    )
    optimiser: Optimiser = Field(Optimiser(), description="Optimiser of the server.")


class Weighting(Document):
    """How much each update counts (slot 10)."""

    type: Literal["Uniform", "SampleCount", "SelectedCount", "UsedCount", "FedAvgSemi", "SemiAnAgg", "DVW"] = Field(
        "SampleCount", description="Rule for the weights."
    )
    order: Literal["Paper", "Code"] = Field(
        "Paper", description="SemiAnAgg: 1 - w before normalising (paper) or after (published code)."
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


class ServerStep(Document):
    """What the server does with the mean of the updates (slot 11)."""

    type: Literal["Replace", "Momentum", "Adagrad", "Adam", "Yogi", "Residual"] = Field(
        "Replace", description="Take the mean, step towards it, or mix it with a record every few rounds."
    )
    learning_rate: AboveZero = Field("0.1", description="Momentum, Adagrad, Adam, Yogi: step size at the server.")
    momentum: Fraction = Field("0.9", description="Momentum: beta; Adagrad, Adam, Yogi: beta 1.")
    second_momentum: Fraction = Field("0.99", description="Adam, Yogi: beta 2.")
    tau: AboveZero = Field("0.001", description="Adagrad, Adam, Yogi: what is added to the root.")
    every: Annotated[int, Field(ge=1, le=10_000)] = Field(5, description="Residual: rounds between two mixtures.")
    record_share: Fraction = Field("0.5", description="Residual: weight of the record in the mixture.")


class MethodSpec(Document):
    """A preset and its overrides."""

    name: MethodName = Field(description="The preset that fills every slot.")
    supervised: Supervised | None = Field(None, description="Loss on labelled images.")
    pseudo_labels: PseudoLabels | None = Field(None, description="Labels for unlabelled images.")
    mixup: Mixup | None = Field(None, description="Mixed images.")
    regulariser: Regulariser | None = Field(None, description="Pull towards the received model.")
    server_training: ServerTraining | None = Field(None, description="Training at the server.")
    weighting: Weighting | None = Field(None, description="Weights of the updates.")
    server_step: ServerStep | None = Field(None, description="What becomes of the mean of the updates.")
    local: Local | None = Field(None, description="Work of a silo per round.")


class ResolvedMethod(Document):
    """A method with every slot filled; `anchorage.methods.resolve` makes it."""

    name: MethodName = Field(description="The preset it came from.")
    supervised: Supervised = Field(description="Loss on labelled images.")
    pseudo_labels: PseudoLabels = Field(description="Labels for unlabelled images.")
    mixup: Mixup = Field(description="Mixed images.")
    regulariser: Regulariser = Field(description="Pull towards the received model.")
    server_training: ServerTraining = Field(description="Training at the server.")
    weighting: Weighting = Field(description="Weights of the updates.")
    server_step: ServerStep = Field(ServerStep(), description="What becomes of the mean of the updates.")
    local: Local = Field(description="Work of a silo per round.")
