"""FedAvg with a consistency loss on unlabelled images: UDA and FixMatch (methods reference, 6.5), SAGE (N5)."""

from anchorage.api.method import Local
from anchorage.methods.preset import OF_FINDINGS, Preset, slots
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.fixmatch import FixMatch
from anchorage.pieces.pseudo_labels.per_finding import PerFinding
from anchorage.pieces.pseudo_labels.sage import Sage
from anchorage.pieces.pseudo_labels.uda import UDA
from anchorage.pieces.slots import PseudoLabels
from anchorage.pieces.weighting.sample_count import SampleCount


def _consistency(name: str, pseudo_labels: PseudoLabels, of_findings: PerFinding, summary: str) -> Preset:
    return Preset(
        slots=slots(name, pseudo_labels=pseudo_labels, weighting=SampleCount()),
        summary=summary,
        setting="labels partially at every silo, or at the server (serverTraining: anchors)",
        labels=("None", "All", "Partial"),
        reveals_to_server=f"the number of training images{OF_FINDINGS}",
        reveals_to_silos=f"nothing beyond the global model{OF_FINDINGS}",
        source=f"FedMatch slides, baseline {name}; methods reference, 6.5",
        by_task={"multiLabel": {"pseudo_labels": of_findings}},
    )


FEDAVG_FIXMATCH = _consistency(
    "FedAvgFixMatch",
    FixMatch(threshold="0.95"),
    PerFinding(),
    "FedAvg with FixMatch at the silos: confident predictions for weak views are learnt on strong views.",
)
FEDAVG_UDA = _consistency(
    "FedAvgUDA",
    UDA(threshold="0.8", temperature="0.4"),
    PerFinding(temperature="0.4"),
    "FedAvg with UDA at the silos: sharpened confident predictions for weak views are learnt on strong views.",
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
    source="SAGE, as read in its public code; methods reference, N5",
)
