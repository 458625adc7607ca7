"""A method's smallest complete federation file, to start from."""

from typing import Any

import yaml

from anchorage.methods.preset import Preset

FEDERATION = "my-study"


def snippet(preset: Preset) -> str:
    """Return documents (YAML) that `fedctl validate` accepts: a federation and two silos, labelled as the method allows."""
    spec: dict[str, Any] = {
        "rounds": 100,
        "model": {"name": "ResNet18", "numClasses": 10, "imageSize": 32},
        "method": {"name": preset.name},
    }
    if "Synchronous" not in preset.protocols:
        spec["protocol"] = {"mode": preset.protocols[0]}
    if preset.slots.server_training.type != "None" or preset.slots.pseudo_labels.type == "AnchorSimilarity":
        spec["anchorData"] = {"format": "ImageFolder", "claimName": "anchors", "use": "All"}
    documents = [{"kind": "Federation", "metadata": {"name": FEDERATION}, "spec": spec}]
    for name, wanted in (("hospital-a", "All"), ("hospital-b", "None")):
        labels = wanted if wanted in preset.labels else preset.labels[0]
        silo = {"federation": FEDERATION, "labels": labels}
        documents.append({"kind": "Silo", "metadata": {"name": name}, "spec": silo})
    return yaml.safe_dump_all(documents, sort_keys=False)
