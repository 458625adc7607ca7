"""FedAnchor: labels at the server only (methods reference, 6.8).

Another weighting stands beside it as well: with SemiAnAgg the accepted images' features are compared with the random anchor encoder's, and
with DVW silos without labels score models against their validation split's accepted pseudo-labels of that round.
"""

from anchorage.api.method import Local
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.mixup.client import ClientMixup
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.anchor_similarity import AnchorSimilarity
from anchorage.pieces.server_objective.label_contrastive import LabelContrastive
from anchorage.pieces.server_training.anchors import Anchors
from anchorage.pieces.weighting.sample_count import SampleCount

FEDANCHOR = Preset(
    slots=slots(
        "FedAnchor",
        pseudo_labels=AnchorSimilarity(threshold="0.6", anchors="Prototypes"),
        mixup=ClientMixup(alpha="0.75", weight="1"),
        server_training=Anchors(
            pretrain_epochs=5, pretrain_learning_rate="0.05", objective=LabelContrastive(temperature="0.5")
        ),
        weighting=SampleCount(),
        local=Local(
            epochs=5, batch_size=10, optimiser=Sgd(learning_rate="0.03", momentum="0.9", weight_decay="0.0005")
        ),
    ),
    summary="Silos label their images by similarity to the server's labelled anchors; the server trains on the anchors each round.",
    setting="labels at the server only (anchors)",
    labels=("None",),
    reveals_to_server="the number of images, and whether any pseudo-label was accepted",
    reveals_to_silos="the anchors' embeddings (the server's data): class means by default, every embedding with anchors: Raw",
    source="FedAnchor, equations 1 to 9 and Algorithm 1; methods reference, 6.8",
)
