"""(FL)^2: few labels at the server (methods reference, N2)."""

from anchorage.api.method import Local
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.batch_norm.static import Static
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.client_adaptive import ClientAdaptive
from anchorage.pieces.server_step.momentum import Momentum
from anchorage.pieces.server_training.anchors import Anchors
from anchorage.pieces.weighting.learning_status import LearningStatus

_SGD = Sgd(learning_rate="0.03", momentum="0.9", weight_decay="0.0005", nesterov="Enabled", clip_norm="1")

FL2 = Preset(
    slots=slots(
        "FL2",
        pseudo_labels=ClientAdaptive(threshold="0.95", radius="0.1"),
        server_training=Anchors(
            pretrain_epochs=50, pretrain_learning_rate="0.03", epochs=5, batch_size=10, views="Weak", optimiser=_SGD
        ),
        weighting=LearningStatus(),
        batch_norm=Static(),
        server_step=Momentum(learning_rate="1", momentum="0.5"),
        local=Local(epochs=5, batch_size=32, optimiser=_SGD),
    ),
    summary="Silos accept labels above thresholds of each silo and class, and train for outputs that withstand a perturbation of the weights.",
    setting="few labels, at the server only",
    labels=("None",),
    reveals_to_server="the mean confidence of the received model on a silo's images: how familiar they are",
    reveals_to_silos="nothing beyond the global model",
    source="Lee et al. 2024 ((FL)^2), equations and Algorithm 1, schedule of its public code; methods reference, N2",
)
