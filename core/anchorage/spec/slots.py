"""What the fields of a method's slots depend on (METHODS.md section 3)."""

from collections.abc import Mapping

_ANCHORS = ("Anchors",)
_MIXED = ("Client", "Server", "Both")
_ADAPTIVE = ("Adagrad", "Adam", "Yogi")

READ_BY: Mapping[str, Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "pseudo_labels": {
        "threshold": ("type", ("AnchorSimilarity", "ReceivedModel", "FlexMatch", "FixMatch", "UDA", "ClassAdaptive")),
        "ceiling": ("type", ("ClassAdaptive",)),
        "rare_below": ("type", ("ClassAdaptive",)),
        "temperature": ("type", ("UDA",)),
        "anchors": ("type", ("AnchorSimilarity",)),
        "views": ("type", ("AnchorSimilarity",)),
        "flex_state": ("type", ("FlexMatch",)),
    },
    "mixup": {"alpha": ("at", _MIXED), "weight": ("at", _MIXED), "redraw": ("at", _MIXED)},
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
        "temperature": ("contrastive", ("Enabled",)),
        "denominator": ("contrastive", ("Enabled",)),
    },
    "server_step": {
        "learning_rate": ("type", ("Momentum", *_ADAPTIVE)),
        "momentum": ("type", ("Momentum", *_ADAPTIVE)),
        "second_momentum": ("type", ("Adam", "Yogi")),
        "tau": ("type", _ADAPTIVE),
        "every": ("type", ("Residual",)),
        "record_share": ("type", ("Residual",)),
    },
    "weighting": {
        "order": ("type", ("SemiAnAgg",)),
        "labelled_share": ("type", ("FedAvgSemi", "SemiAnAgg")),
        "metric": ("type", ("DVW",)),
        "validation_percent": ("type", ("DVW",)),
    },
}
"""Slot, field: the field of the same slot that decides, and its values that read it."""
