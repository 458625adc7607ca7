"""CBAFed and its lower bound (methods reference, 6.11)."""

from anchorage.api.method import Local, UnlabelledWork
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.class_adaptive import ClassAdaptive
from anchorage.pieces.server_step.residual import Residual
from anchorage.pieces.weighting.sample_count import SampleCount
from anchorage.pieces.weighting.used_count import UsedCount

_LOCAL = Local(
    epochs=11,
    batch_size=64,
    optimiser=Sgd(learning_rate="0.03", momentum="0.9", weight_decay="0.0005", clip_norm="5", state="Persist"),
    unlabelled=UnlabelledWork(epochs=1, learning_rate="0.02"),
)

CBAFED = Preset(
    slots=slots(
        "CBAFed",
        pseudo_labels=ClassAdaptive(threshold="0.84", ceiling="0.95", rare_below="0.03"),
        weighting=UsedCount(),
        server_step=Residual(every=5, record_share="0.5"),
        local=_LOCAL,
    ),
    summary="Pseudo-labels above class thresholds that follow how often the federation used each class; rare classes also by second guess.",
    setting="labels at some silos, or partially at all",
    labels=("None", "All", "Partial"),
    reveals_to_server="the class histogram of the silo's labelled and accepted images",
    reveals_to_silos="the federation's class shares, by way of the thresholds",
    source="Li et al. 2023 (CBAFed), as read in its public code; methods reference, 6.11",
)

CBAFED_LOWER_BOUND = Preset(
    slots=slots(
        "CBAFedLowerBound",
        weighting=SampleCount(),
        server_step=Residual(every=5, record_share="0.8"),
        local=_LOCAL.model_copy(update={"epochs": 1, "unlabelled": UnlabelledWork()}),
    ),
    summary="FedAvg of the labelled silos with CBAFed's residual connection: only its first stage.",
    setting="labels at some silos; the others do not take part",
    labels=("None", "All", "Partial"),
    reveals_to_server="the number of training images",
    reveals_to_silos="nothing beyond the global model",
    source="Li et al. 2023 (CBAFed), stage 1; methods reference, 6.11",
)
