"""FedCon (methods reference, 6.7)."""

from anchorage.api.method import Local
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.self_supervised.byol import Byol
from anchorage.pieces.server_objective.two_views import TwoViews
from anchorage.pieces.server_training.anchors import Anchors
from anchorage.pieces.weighting.uniform import Uniform

FEDCON = Preset(
    slots=slots(
        "FedCon",
        self_supervised=Byol(),
        server_training=Anchors(
            objective=TwoViews(),
            pretrain_epochs=1,
            pretrain_learning_rate="0.03",
            optimiser=Sgd(learning_rate="0.03", momentum="0.9", weight_decay="0.0005"),
        ),
        weighting=Uniform(),
        local=Local(
            epochs=5, batch_size=10, optimiser=Sgd(learning_rate="0.03", momentum="0.9", weight_decay="0.0005")
        ),
    ),
    summary="Silos train the encoder to give two views of an image similar features; the server trains encoder and classifier on its labels.",
    setting="labels at the server only",
    labels=("None",),
    reveals_to_server="nothing beyond the encoder's weights, and the number of images",
    reveals_to_silos="nothing beyond the global model",
    source="Long et al. 2021 (FedCon), the method that its public code intends; methods reference, 6.7",
)
