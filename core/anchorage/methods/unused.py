"""Fields that a user set and that the chosen type of their slot does not read."""

from collections.abc import Iterator, Mapping

from pydantic.alias_generators import to_camel

from anchorage.errors.documents import MEANINGLESS_OVERRIDE
from anchorage.spec.method import MethodSpec, ResolvedMethod
from anchorage.spec.mistakes import Mistake

_ANCHORS = ("Anchors",)
_MIXED = ("Client", "Server", "Both")

READ_BY: Mapping[str, Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "pseudo_labels": {
        "threshold": ("type", ("AnchorSimilarity", "FlexMatch")),
        "anchors": ("type", ("AnchorSimilarity",)),
        "views": ("type", ("AnchorSimilarity",)),
        "flex_state": ("type", ("FlexMatch",)),
    },
    "mixup": {"alpha": ("at", _MIXED), "weight": ("at", _MIXED), "redraw": ("at", _MIXED)},
    "regulariser": {"mu": ("type", ("Proximal",))},
    "server_training": {
        "pretrain_epochs": ("type", _ANCHORS),
        "pretrain_learning_rate": ("type", _ANCHORS),
        "epochs": ("type", _ANCHORS),
        "batch_size": ("type", _ANCHORS),
        "optimiser": ("type", _ANCHORS),
        "temperature": ("contrastive", ("On",)),
        "denominator": ("contrastive", ("On",)),
    },
    "weighting": {
        "order": ("type", ("SemiAnAgg",)),
        "labelled_share": ("type", ("FedAvgSemi", "SemiAnAgg")),
        "metric": ("type", ("DVW",)),
        "validation_percent": ("type", ("DVW",)),
    },
}
"""Slot, field: the field of the same slot that decides, and its values that read it."""


def unused_overrides(spec: MethodSpec, method: ResolvedMethod) -> Iterator[Mistake]:
    """Find the fields that a user set in vain."""
    for slot, readers in READ_BY.items():
        own = getattr(spec, slot)
        for field in () if own is None else sorted(own.model_fields_set & readers.keys()):
            switch, values = readers[field]
            state = getattr(getattr(method, slot), switch)
            if state not in values:
                path = ("spec", "method", to_camel(slot), to_camel(field))
                message = (
                    f"found a value that nothing reads: {to_camel(slot)}.{switch} is {state}, and only "
                    f"{' and '.join(values)} {'reads' if len(values) == 1 else 'read'} {to_camel(field)}; remove it"
                )
                yield Mistake(MEANINGLESS_OVERRIDE, path, message)
