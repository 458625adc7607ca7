"""imFed-Semi: few labels at the server, silos learn of their sub-banks (methods reference, N4)."""

from anchorage.api.method import Local
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.optimiser.adamw import AdamW
from anchorage.pieces.pseudo_labels.sub_banks import SubBanks
from anchorage.pieces.server_objective.smoothed_views import SmoothedViews
from anchorage.pieces.server_training.anchors import Anchors
from anchorage.pieces.weighting.uniform import Uniform

IMFEDSEMI = Preset(
    slots=slots(
        "ImFedSemi",
        pseudo_labels=SubBanks(),
        server_training=Anchors(
            pretrain_epochs=31,
            pretrain_learning_rate="0.0002",
            epochs=1,
            batch_size=24,
            objective=SmoothedViews(),
            optimiser=AdamW(learning_rate="0.0003", weight_decay="0.0005"),
        ),
        weighting=Uniform(),
        local=Local(epochs=1, batch_size=24, optimiser=AdamW(learning_rate="0.0002", weight_decay="0.0005")),
    ),
    summary="Silos sort images into sub-banks by the class first guessed, and train on confident images to tell the sub-banks apart.",
    setting="few labels, at the server only",
    labels=("None",),
    reveals_to_server="nothing beyond the update and the number of images",
    reveals_to_silos="nothing beyond the global model",
    source="Jiang et al. 2022 (imFed-Semi), as read in its public code, its banks by true labels left out; methods reference, N4",
)
