"""A package of another author whose pieces make mistakes, and small federations with them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

MODULE = "acme_mistakes"
SOURCE = """
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from anchorage.api.piece import piece
from anchorage.engine.aggregation.mean import weighted_mean
from anchorage.engine.aggregation.server_step import StatelessStep
from anchorage.engine.aggregation.weigher import BaseWeigher
from anchorage.learning.round_part import RoundPart
from anchorage.pieces.pseudo_labels.fixed_labels import FixedLabels
from anchorage.pieces.slots import Aggregation, LocalLoss, Network, ServerStep, Weighting
from anchorage.transport.tensors.model import ModelBytes


class WrongWeigher(BaseWeigher):
    def __init__(self, weigh):
        self._weigh_all = weigh

    def _weigh(self, active, evaluations):
        return self._weigh_all(list(active))


@piece("acme.TooFewWeights")
class TooFewWeights(Weighting):
    def weigher(self, task):
        return WrongWeigher(lambda silos: dict.fromkeys(silos[:-1], 1.0))


@piece("acme.ListOfWeights")
class ListOfWeights(Weighting):
    def weigher(self, task):
        return WrongWeigher(lambda silos: [1.0 for _ in silos])


@piece("acme.NanWeights")
class NanWeights(Weighting):
    def weigher(self, task):
        return WrongWeigher(lambda silos: dict.fromkeys(silos, np.nan))


@piece("acme.RaisingWeights")
class RaisingWeights(Weighting):
    def weigher(self, task):
        return WrongWeigher(self.weigh)

    def weigh(self, silos):
        raise KeyError("similarity")


@piece("acme.LossPerImage")
class LossPerImage(LocalLoss):
    def loss(self, data, task):
        return lambda logits, labels: functional.cross_entropy(logits, labels, reduction="none")


@piece("acme.NanLoss")
class NanLoss(LocalLoss):
    def loss(self, data, task):
        calls = []

        def loss(logits, labels):
            calls.append(1)
            value = functional.cross_entropy(logits, labels)
            return value if len(calls) < 3 else value * float("nan")

        return loss


@piece("acme.RaisingLoss")
class RaisingLoss(LocalLoss):
    def loss(self, data, task):
        def loss(logits, labels):
            raise ValueError("no temperature for patient 17\\nand a second line")

        return loss


@piece("acme.Undeclared")
class Undeclared(LocalLoss):
    def loss(self, data, task):
        return functional.cross_entropy

    def begin(self, silo_round):
        return Announcing()


class Announcing(RoundPart):
    def auxiliary(self):
        return {"hardness": np.zeros(3)}


@piece("acme.NanMean")
class NanMean(Aggregation):
    def aggregate(self, updates, weights, layout, model):
        arrays = weighted_mean(updates, weights, layout).arrays()
        arrays["classifier.bias"][0] = np.nan
        return ModelBytes.from_arrays(layout, arrays)


@piece("acme.ArraysForModel")
class ArraysForModel(Aggregation):
    def aggregate(self, updates, weights, layout, model):
        return weighted_mean(updates, weights, layout).arrays()


@piece("acme.NanStep")
class NanStep(ServerStep):
    def step(self):
        return DividingStep()


class DividingStep(StatelessStep):
    def apply(self, previous, mean, round_number, share=1.0):
        arrays = mean.arrays()
        arrays["classifier.bias"][0] = np.inf
        return ModelBytes.from_arrays(mean.layout, arrays)


@piece("acme.NoClass")
class NoClass(FixedLabels):
    def label(self, silo_round, indices):
        count = len(indices)
        return torch.arange(count) + 3, torch.ones(count, dtype=torch.bool)


@piece("acme.LabelsAsFloats")
class LabelsAsFloats(FixedLabels):
    def label(self, silo_round, indices):
        count = len(indices)
        return torch.zeros(count), torch.ones(count, dtype=torch.bool)


@piece("acme.FlatMaps")
class FlatMaps(Network):
    def encoder(self, channels, side):
        return nn.Conv2d(channels, 4, 3)


@piece("acme.NoClue")
class NoClue(Network):
    def encoder(self, channels, side):
        return Raising()


class Raising(nn.Module):
    width = 4

    def forward(self, x):
        raise RuntimeError("shapes do not fit")
"""


def line_of(text: str) -> int:
    """Return the line of the module that begins with a text."""
    return 1 + next(number for number, line in enumerate(SOURCE.splitlines()) if line.strip().startswith(text))


def lay_out(folder: Path) -> None:
    """Lay the package out in a folder as `pip` would."""
    (folder / f"{MODULE}.py").write_text(SOURCE)
    metadata = folder / "acme_mistakes-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-mistakes\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(f"[anchorage.pieces]\nmistakes = {MODULE}\n")
    (metadata / "top_level.txt").write_text(f"{MODULE}\n")


def documents(method: Mapping[str, Any], labels: str = "All", network: str = "SmallCnn") -> str:
    """Return a federation of three silos of some twenty digits each; the third always has labels."""
    federation = {
        "kind": "Federation",
        "metadata": {"name": "mistaken"},
        "spec": {
            "rounds": 1,
            "task": {"classification": {"classes": [str(digit) for digit in range(10)]}},
            "model": {"network": network, "imageSize": 8, "channels": 1, "augmentation": "Digits"},
            "method": {"name": "FedAvg", "local": {"epochs": 1, "batchSize": 4}, **method},
            "protocol": {"minSilos": 3},
        },
    }
    silos = [
        {
            "kind": "Silo",
            "metadata": {"name": f"clinic-{number}"},
            "spec": {
                "federation": "mistaken",
                "labels": "All" if number == 2 else labels,
                "managed": {"data": _part(number)},
            },
        }
        for number in range(3)
    ]
    return yaml.safe_dump_all([federation, *silos])


def plugin(name: str) -> Mapping[str, Any]:
    """Return what a slot holds that is filled by a piece of the package."""
    return {"plugin": {"name": name, "options": {}}}


def _part(number: int) -> Mapping[str, Any]:
    return {"format": "Digits", "use": "Part", "partition": {"recipe": "Iid", "parts": 70, "part": number}}
