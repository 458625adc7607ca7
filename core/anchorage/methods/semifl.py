"""SemiFL and the other baselines of FedAnchor with labels at the server (methods reference, 6.7)."""

from anchorage.api.method import Local
from anchorage.methods.preset import OF_FINDINGS, Preset, slots
from anchorage.pieces.batch_norm.static import Static
from anchorage.pieces.mixup.client import ClientMixup
from anchorage.pieces.mixup.none import NoMixup
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.fixmatch import FixMatch
from anchorage.pieces.pseudo_labels.per_finding import PerFinding
from anchorage.pieces.pseudo_labels.received_model import ReceivedModel
from anchorage.pieces.server_step.momentum import Momentum
from anchorage.pieces.server_training.anchors import Anchors
from anchorage.pieces.weighting.sample_count import SampleCount
from anchorage.pieces.weighting.uniform import Uniform

_SERVER = Sgd(learning_rate="0.03", momentum="0.9", weight_decay="0.0005")
_SILO = Sgd(learning_rate="0.03", momentum="0.9", weight_decay="0.0005")
_SEMIFL = {"clip_norm": "1", "nesterov": "Enabled", "schedule": "Cosine"}
_ALTERNATE = Anchors(pretrain_epochs=5, pretrain_learning_rate="0.05", optimiser=_SERVER)
_LOCAL = Local(epochs=5, batch_size=10, optimiser=_SILO)

SEMIFL = Preset(
    slots=slots(
        "SemiFL",
        pseudo_labels=ReceivedModel(threshold="0.95"),
        mixup=ClientMixup(alpha="0.75", weight="1", redraw="Epoch"),
        server_training=_ALTERNATE.model_copy(
            update={"epochs": 5, "optimiser": _SERVER.model_copy(update=_SEMIFL), "views": "Weak"}
        ),
        weighting=Uniform(),
        batch_norm=Static(),
        server_step=Momentum(learning_rate="1", momentum="0.5"),
        local=_LOCAL.model_copy(update={"optimiser": _SILO.model_copy(update=_SEMIFL)}),
    ),
    summary="Silos label their images once per round with the received model; the server trains on its labelled images.",
    setting="labels at the server only",
    labels=("None",),
    reveals_to_server="whether any image was labelled with confidence",
    reveals_to_silos=f"nothing beyond the global model{OF_FINDINGS}",
    source="Diao et al. 2022 (SemiFL), as read in its public code; methods reference, 6.7",
    by_task={
        "multiLabel": {"pseudo_labels": PerFinding(labelled_by="Received"), "mixup": NoMixup()},
        "segmentation": {"mixup": NoMixup()},
    },
)

FIXMATCH_ALTERNATE = Preset(
    slots=slots(
        "FedAvgFixMatchAlternate",
        pseudo_labels=FixMatch(threshold="0.95"),
        server_training=_ALTERNATE,
        weighting=SampleCount(),
        local=_LOCAL,
    ),
    summary="FixMatch at the silos, cross entropy on the anchors at the server after each round.",
    setting="labels at the server only (anchors)",
    labels=("None",),
    reveals_to_server="the number of images",
    reveals_to_silos=f"nothing beyond the global model{OF_FINDINGS}",
    source="FedAnchor, baseline FedAvg+FixMatch; methods reference, 6.7",
    by_task={"multiLabel": {"pseudo_labels": PerFinding()}},
)

SUPERVISED = Preset(
    slots=slots("Supervised", server_training=_ALTERNATE, weighting=SampleCount(), local=_LOCAL),
    summary="Upper bound for labels at the server: every silo has labels, too, and the server trains on its anchors.",
    setting="labels at every silo and at the server",
    labels=("All",),
    reveals_to_server="the number of training images",
    reveals_to_silos="nothing beyond the global model",
    source="FedAnchor (preprint), baseline Supervised; methods reference, 6.7",
)
