"""A method's smallest complete federation file, to start from."""

from typing import Any

import yaml

from anchorage.api.fact import Fact
from anchorage.methods.preset import Preset

FEDERATION = "my-study"
HEAD = "# Plays as it is, on scikit-learn's digits; put your model and your images in\n# their place (docs/data.md).\n"
_LINE = 66
"""A line ends at the first word beyond."""


def snippet(preset: Preset) -> str:
    """Return documents (YAML) that `fedctl simulate` and `fedctl run` play: a federation and two silos, labelled as the method allows."""
    slots = preset.slots
    facts = slots.facts()  # without labels, a classifier for the test is trained on anchors
    anchors = bool(facts & {Fact.SERVER_TRAINING, Fact.LABELS_FROM_ANCHORS, Fact.SELF_SUPERVISION})
    pool = {"format": "Digits", "testPercent": 20, "validationPercent": 10} | ({"anchors": 80} if anchors else {})
    spec: dict[str, Any] = {
        "rounds": 5,
        "task": {"classification": {"classes": list("0123456789")}},
        "model": {"network": "SmallCnn", "imageSize": 8, "channels": 1, "augmentation": "Digits"},
        "method": {"name": preset.name},
    }
    if Fact.PRINCIPAL_COMPONENTS in facts:  # a first stage, which makes no classifier
        spec["model"] |= {"trainable": "Head", "principalComponents": 16}
        spec |= {"warmUp": [{"method": preset.name, "rounds": 1}], "method": {"name": "SharesHead"}}
    if "Synchronous" not in preset.protocols:
        spec["protocol"] = {"mode": preset.protocols[0]}
    if anchors:
        spec["anchorData"] = {**pool, "use": "Anchors"}
    spec["evaluation"] = {"validation": {**pool, "use": "Validation"}, "test": {**pool, "use": "Test"}}
    documents = [{"kind": "Federation", "metadata": {"name": FEDERATION}, "spec": spec}]
    for part, (name, labels) in enumerate(zip(("hospital-a", "hospital-b"), _labels(preset), strict=True)):
        data: dict[str, Any] = {**pool, "use": "Part", "partition": {"recipe": "Iid", "parts": 2, "part": part}}
        if labels == "Partial":
            data["labelledPercent"] = 20
        silo = {"federation": FEDERATION, "labels": labels, "managed": {"data": data}}
        documents.append({"kind": "Silo", "metadata": {"name": name}, "spec": silo})
    return HEAD + yaml.safe_dump_all(documents, sort_keys=False, default_flow_style=None, width=_LINE)


def _labels(preset: Preset) -> tuple[str, str]:
    """Return which images of two silos are labelled in the method's own setting."""
    if "some silos" in preset.setting:
        return "All", "None"
    if preset.setting == "no labels":
        return "None", "None"
    labels = "Partial" if {"None", "Partial"} <= set(preset.labels) else preset.labels[0]
    return labels, labels
