"""Federations for the tests: scikit-learn's digits, which need no claim, over plain averaging."""

from typing import Any

API = "anchorage.dev/v1alpha1"
STUDY = "study"
IMAGES = {"format": "Digits", "testPercent": 20, "anchors": 80}


def federation(rounds: int = 3, *, epochs: int = 1, min_silos: int = 2, **spec: Any) -> dict[str, Any]:
    """
    Return the Federation `study`.

    Parameters
    ----------
    epochs
        Local epochs in a round: 40 make a round of several seconds, in which a test can do damage.
    **spec
        Further fields of the spec, or others in place of those here.
    """
    protocol = {"minSilos": min_silos, "roundDeadlineSeconds": 300, "idleTimeoutSeconds": 10}
    fields = {
        "rounds": rounds,
        "task": {"classification": {"classes": list("0123456789")}},
        "model": {"network": "SmallCnn", "imageSize": 8, "channels": 1, "augmentation": "Digits"},
        "method": {"name": "FedAvg", "local": {"epochs": epochs, "batchSize": 32}},
        "protocol": protocol,
        **spec,
    }
    return {"apiVersion": API, "kind": "Federation", "metadata": {"name": STUDY}, "spec": fields}


def managed_silo(name: str, part: int, **managed: Any) -> dict[str, Any]:
    """Return a Silo whose agent runs in the same cluster, with one of four parts of the digits."""
    data = {**IMAGES, "use": "Part", "partition": {"recipe": "Iid", "parts": 4, "part": part}}
    return silo(name, managed={"data": data, **managed})


def silo(name: str, **spec: Any) -> dict[str, Any]:
    """Return a Silo with all its images labelled; a remote one unless `managed` is among the fields."""
    fields = {"federation": STUDY, "labels": "All", **spec}
    return {"apiVersion": API, "kind": "Silo", "metadata": {"name": name}, "spec": fields}


def two_silos() -> list[dict[str, Any]]:
    """Return the Silos `silo-a` and `silo-b`."""
    return [managed_silo("silo-a", 0), managed_silo("silo-b", 1)]
