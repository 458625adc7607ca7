"""FedPerl (methods reference, N6)."""

from anchorage.api.method import Local
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.optimiser.adamw import AdamW
from anchorage.pieces.pseudo_labels.committee import Committee
from anchorage.pieces.weighting.sample_count import SampleCount

FEDPERL = Preset(
    slots=slots(
        "FedPerl",
        pseudo_labels=Committee(threshold="0.6", peers=2, weight="0.5"),
        weighting=SampleCount(),
        local=Local(epochs=1, batch_size=16, optimiser=AdamW(learning_rate="0.00005", weight_decay="0")),
    ),
    summary="Silos learn labels that their own model and the mean model of the most similar silos predict together.",
    setting="labels partially at every silo",
    labels=("None", "All", "Partial"),
    reveals_to_server="every silo's individual model, kept from round to round, and what it scores on the server's validation images",
    reveals_to_silos="the mean of the most similar silos' individual models; with peers: 1, or a single other silo, one silo's own model",
    source="FedPerl, as read in its public code; methods reference, N6 (KAT-FP1, KAT-FP2)",
)
