"""FedAnchor: labels at the server only (METHODS.md 6.8).

Its published variants are overrides of two slots: ``mixup.at`` (None, Client, Server, Both) and
``serverTraining.contrastive`` (Enabled, Disabled); the pseudo-label ensemble is ``pseudoLabels.views`` above 1. Another weighting
stands beside it as well: with SemiAnAgg the accepted images' features are compared with the random anchor encoder's, and
with DVW silos without labels score models against their validation split's accepted pseudo-labels of that round.
"""

from anchorage.methods.preset import Preset, SideChannel, slots
from anchorage.spec.method import Local, Mixup, Optimiser, PseudoLabels, ServerTraining, Weighting

FEDANCHOR = Preset(
    slots=slots(
        "FedAnchor",
        pseudo_labels=PseudoLabels(type="AnchorSimilarity", threshold="0.6", anchors="Prototypes"),
        mixup=Mixup(at="Client", alpha="0.75", weight="1"),
        server_training=ServerTraining(
            type="Anchors", pretrain_epochs=5, pretrain_learning_rate="0.05", contrastive="Enabled", temperature="0.5"
        ),
        weighting=Weighting(type="SampleCount"),
        local=Local(
            epochs=5, batch_size=10, optimiser=Optimiser(learning_rate="0.03", momentum="0.9", weight_decay="0.0005")
        ),
    ),
    summary="Silos label their images by similarity to the server's labelled anchors; the server trains on the anchors each round.",
    setting="labels at the server only (anchors)",
    labels=("None",),
    protocols=("Synchronous",),
    down=(
        SideChannel(
            "prototypes", "[C, 128] float32", "class means of the anchors' unit embeddings (anchors: Prototypes)"
        ),
        SideChannel("anchors", "[S, 128] float32", "every anchor's unit embedding (anchors: Raw)"),
        SideChannel("anchor_labels", "[S] int64", "the anchors' classes (anchors: Raw)"),
    ),
    up=(),
    reveals_to_server="the number of images, and whether any pseudo-label was accepted",
    reveals_to_silos="the anchors' embeddings (the server's data): class means by default, every embedding with anchors: Raw",
    source="FedAnchor, equations 1 to 9 and Algorithm 1; METHODS.md 6.8",
    results="METHODS.md 8.1 to 8.3",
    advice=(
        "For labels at the server alone. Silos compare their images with the server's labelled anchors in a space "
        "that the server trains for just that, and train on those that are close to one class. Every class needs "
        "anchors; their quality bounds everything, so choose them with care and by hand. The threshold decides "
        "how much is believed: watch `acceptance` in MLflow, and raise `pseudoLabels.threshold` where nearly "
        "everything is accepted. With `anchors: Prototypes` only class means leave the server, and labels are the "
        "same as with every embedding."
    ),
)
