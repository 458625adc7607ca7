"""What the fields of a method's slots depend on (METHODS.md section 3)."""

from collections.abc import Mapping

_ANCHORS = ("Anchors",)
_MIXED = ("Client", "Server", "Both")
_ADAPTIVE = ("Adagrad", "Adam", "Yogi")

READ_BY: Mapping[str, Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "pseudo_labels": {
        "threshold": (
            "type",
            ("AnchorSimilarity", "ReceivedModel", "FlexMatch", "FixMatch", "UDA", "ClassAdaptive", "Helpers"),
        ),
        "ceiling": ("type", ("ClassAdaptive",)),
        "rare_below": ("type", ("ClassAdaptive",)),
        "temperature": ("type", ("UDA", "MeanTeacher")),
        "weight": ("type", ("MeanTeacher",)),
        "divisor": ("type", ("MeanTeacher",)),
        "adjustment": ("type", ("FixMatch",)),
        "anchors": ("type", ("AnchorSimilarity",)),
        "views": ("type", ("AnchorSimilarity",)),
        "flex_state": ("type", ("FlexMatch",)),
    },
    "decomposition": {
        "helpers": ("type", ("SigmaPsi",)),
        "supervised_weight": ("type", ("SigmaPsi",)),
        "consistency_weight": ("type", ("SigmaPsi",)),
        "closeness": ("type", ("SigmaPsi",)),
        "sparsity": ("type", ("SigmaPsi",)),
        "smallest": ("type", ("SigmaPsi",)),
        "smallest_change": ("type", ("SigmaPsi",)),
    },
    "self_supervised": {
        "scale": ("type", ("Barlow",)),
        "off_diagonal": ("type", ("Barlow",)),
        "online_classifier": ("type", ("Barlow",)),
    },
    "mixup": {"alpha": ("at", _MIXED), "weight": ("at", _MIXED), "redraw": ("at", _MIXED)},
    "input_mixing": {
        "share": ("type", ("Local", "Naive", "FedMix", "Global")),
        "group_size": ("type", ("Naive", "FedMix")),
    },
    "regulariser": {
        "mu": ("type", ("Proximal", "Moon", "FeatureDistance")),
        "temperature": ("type", ("Moon",)),
        "previous_models": ("type", ("Moon",)),
    },
    "server_training": {
        "pretrain_epochs": ("type", _ANCHORS),
        "pretrain_learning_rate": ("type", _ANCHORS),
        "epochs": ("type", _ANCHORS),
        "batch_size": ("type", _ANCHORS),
        "optimiser": ("type", _ANCHORS),
        "views": ("type", _ANCHORS),
        "consistency": ("type", _ANCHORS),
        "temperature": ("contrastive", ("Enabled",)),
        "denominator": ("contrastive", ("Enabled",)),
    },
    "server_step": {
        "learning_rate": ("type", ("Momentum", *_ADAPTIVE, "ControlVariates")),
        "momentum": ("type", ("Momentum", *_ADAPTIVE)),
        "second_momentum": ("type", ("Adam", "Yogi")),
        "tau": ("type", _ADAPTIVE),
        "every": ("type", ("Residual",)),
        "record_share": ("type", ("Residual",)),
        "alpha": ("type", ("Mix",)),
        "staleness": ("type", ("Mix",)),
        "falloff": ("staleness", ("Polynomial", "Hinge")),
        "grace": ("staleness", ("Hinge",)),
    },
    "weighting": {
        "order": ("type", ("SemiAnAgg",)),
        "anchor_seed": ("type", ("SemiAnAgg",)),
        "minimum_per_class": ("type", ("SemiAnAgg",)),
        "groups": ("type", ("SubConsensus",)),
        "group_size": ("type", ("SubConsensus",)),
        "labelled_factor": ("type", ("SubConsensus",)),
        "scale": ("type", ("SubConsensus",)),
        "labelled_scale": ("type", ("SubConsensus",)),
        "distance": ("type", ("SubConsensus",)),
        "labelled_share": ("type", ("FedAvgSemi", "SemiAnAgg")),
        "metric": ("type", ("DVW",)),
        "validation_percent": ("type", ("DVW",)),
        "sharpening": ("type", ("DVW",)),
    },
}
"""Slot, field: the field of the same slot that decides, and its values that read it."""
