"""MOON (methods reference, 6.3)."""

from anchorage.api.method import Local
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.regulariser.moon import Moon
from anchorage.pieces.weighting.sample_count import SampleCount

MOON = Preset(
    slots=slots(
        "MOON",
        regulariser=Moon(mu="5", temperature="0.5", previous_models=1),
        weighting=SampleCount(),
        local=Local(
            epochs=10, batch_size=64, optimiser=Sgd(learning_rate="0.01", momentum="0.9", weight_decay="0.00001")
        ),
    ),
    summary="FedAvg with a contrastive loss that keeps representations near the global model's and away from the silo's previous model's.",
    setting="labels at every silo that trains",
    labels=("All", "Partial"),
    protocols=("Synchronous", "Asynchronous"),
    reveals_to_server="the number of training images",
    reveals_to_silos="nothing beyond the global model",
    source="Li et al. 2021 (MOON), loss CE + mu l_con; methods reference, 6.3",
)
