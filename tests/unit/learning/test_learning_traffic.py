"""What travels in a round of ten participants with ResNet-18, against the known answer Y1 (in 32-bit numbers)."""

import numpy as np
import pytest
import torch
from learning_party import Party, given, method_of

from anchorage.api.model import ModelDescription
from anchorage.learning.learners import build_server_learner
from anchorage.pieces.pseudo_labels.anchor_similarity import class_prototypes
from anchorage.pieces.task.classification import Classification
from anchorage.transport.tensors.layout import Layout

MODEL = ModelDescription(network="ResNet18", task=Classification(classes=tuple("0123456789")), image_size=32)
SILOS, FLOAT = 10, 4


def floats(layout: Layout) -> int:
    """Bytes of the parameters and running statistics; the integer counters of batch normalisation are not in the count."""
    return sum(t.nbytes for t in layout.tensors if t.dtype == "F32")


def round_bytes(name: str) -> int:
    learner = build_server_learner(model=MODEL, method=method_of(name), seed=1)
    return SILOS * (floats(learner.down) + floats(learner.up))


@pytest.mark.known_answers
def test_y1_bytes_of_a_round(known, tmp_path):
    fedavg = round_bytes("FedAvg")
    raw = known.key("Y1_round_bytes", r"fedanchor_extra_down_S\d+")
    count = int(raw.rpartition("_S")[2])
    anchors = torch.from_numpy(np.random.default_rng(1).standard_normal((count, 128)))
    prototypes, _ = class_prototypes(anchors, torch.arange(count) % 10, 10)
    sent = {}
    for name in ("SemiAnAgg", "CBAFed"):
        party = Party(method_of(name), given("Partial"), tmp_path / name, "Partial")
        sent[name] = (
            sum(array.size for array in party.train().auxiliary_data.values()) / 3 * 10
        )  # the party has three classes
    scores = {}
    for metric in ("MicroF1", "MacroF1"):
        weighting = {"metric": metric, "validationPercent": 20}
        party = Party(method_of("DVW", weighting=weighting), given("All"), tmp_path / metric, "All")
        scores[metric] = party.train().auxiliary_data["validation"]
    assert scores["MacroF1"].shape == (3, 3)
    known.check(
        "Y1_round_bytes",
        {
            "fedavg_up_plus_down": fedavg,
            "moon_same": fedavg + SILOS * FLOAT * beside("MOON", tmp_path),
            "scaffold_double": round_bytes("SCAFFOLD"),
            raw: SILOS * FLOAT * anchors.numel(),
            "fedanchor_extra_down_prototypes": SILOS * FLOAT * prototypes.numel(),
            "dvw_sync_extra_down": SILOS * (SILOS - 1) * fedavg // (2 * SILOS),
            "semianagg_extra_up": SILOS * FLOAT * sent["SemiAnAgg"],
            "cbafed_extra_up": SILOS * FLOAT * sent["CBAFed"],
            "dvw_confusion_up": SILOS * (SILOS - 1) * scores["MacroF1"].itemsize * 10 * 10,
            "dvw_two_ints_up": SILOS * (SILOS - 1) * scores["MicroF1"].nbytes,
        },
    )


def beside(name: str, folder) -> int:
    """Numbers that travel beside the network in either direction."""
    party = Party(method_of(name), given("All"), folder / name, "All")
    down, up = party.task().auxiliary_data, party.train().auxiliary_data
    extra = set(party.server.down.by_name) ^ set(party.server.up.by_name)
    return sum(array.size for array in (*down.values(), *up.values())) + len(extra)
