"""ProtoFSSL (methods reference, N6)."""

from anchorage.api.method import Local
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.optimiser.adamw import AdamW
from anchorage.pieces.pseudo_labels.prototypes import Prototypes
from anchorage.pieces.weighting.uniform import Uniform

PROTOFSSL = Preset(
    slots=slots(
        "ProtoFSSL",
        pseudo_labels=Prototypes(weight="0.3"),
        weighting=Uniform(),
        local=Local(epochs=2, batch_size=100, optimiser=AdamW(learning_rate="0.001", weight_decay="0")),
    ),
    summary="Silos classify by the distance to class means of features; other silos' class means label the images without a label.",
    setting="a few labels of most classes at every silo",
    labels=("None", "All", "Partial"),
    reveals_to_server="class means of each silo's features; of a class with one labelled image, that image's features",
    reveals_to_silos="class means of every single silo of the round before",
    source="ProtoFSSL, as read in its public code; methods reference, N6 (KAT-PF1)",
)
