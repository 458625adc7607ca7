"""FedAvg and FedProx with a consistency loss on unlabelled images: UDA and FixMatch (methods reference, 6.5), SAGE (N5)."""

from anchorage.api.method import Local
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.fixmatch import FixMatch
from anchorage.pieces.pseudo_labels.sage import Sage
from anchorage.pieces.pseudo_labels.uda import UDA
from anchorage.pieces.regulariser.proximal import Proximal
from anchorage.pieces.slots import PseudoLabels, Regulariser
from anchorage.pieces.weighting.sample_count import SampleCount

_FIXMATCH = FixMatch(threshold="0.95")
_UDA = UDA(threshold="0.8", temperature="0.4")
_PULL = Proximal(mu="0.01")


def _consistency(name: str, pseudo_labels: PseudoLabels, summary: str, pull: Regulariser | None = None) -> Preset:
    return Preset(
        slots=slots(name, pseudo_labels=pseudo_labels, regulariser=pull, weighting=SampleCount()),
        summary=summary,
        setting="labels partially at every silo, or at the server (serverTraining: anchors)",
        labels=("None", "All", "Partial"),
        reveals_to_server="the number of training images",
        reveals_to_silos="nothing beyond the global model",
        source=f"FedMatch slides, baseline {name}; methods reference, 6.5",
    )


FEDAVG_FIXMATCH = _consistency(
    "FedAvgFixMatch",
    _FIXMATCH,
    "FedAvg with FixMatch at the silos: confident predictions for weak views are learnt on strong views.",
)
FEDPROX_FIXMATCH = _consistency(
    "FedProxFixMatch", _FIXMATCH, "FedAvgFixMatch with FedProx's penalty on the distance to the received model.", _PULL
)
FEDAVG_UDA = _consistency(
    "FedAvgUDA",
    _UDA,
    "FedAvg with UDA at the silos: sharpened confident predictions for weak views are learnt on strong views.",
)
FEDPROX_UDA = _consistency(
    "FedProxUDA", _UDA, "FedAvgUDA with FedProx's penalty on the distance to the received model.", _PULL
)

SAGE = Preset(
    slots=slots(
        "SAGE",
        pseudo_labels=Sage(threshold="0.95"),
        weighting=SampleCount(),
        local=Local(
            epochs=5, batch_size=128, optimiser=Sgd(learning_rate="0.1", momentum="0.9", weight_decay="0.0001")
        ),
    ),
    summary="Silos learn labels of their own model, mixed with the received model's where the two differ in confidence.",
    setting="labels partially at every silo",
    labels=("None", "All", "Partial"),
    reveals_to_server="the number of training images",
    reveals_to_silos="nothing beyond the global model",
    source="SAGE, as read in its public code; newer methods reference, N5",
)
