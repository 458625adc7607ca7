"""Federations whose encoder is frozen or trains in part: the same model in one process and over gRPC, and the frozen part travels once."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from federation_documents import digits_study
from federation_over_grpc import digest_over_grpc

from anchorage.api.mistakes import DocumentError
from anchorage.simulation.run import Simulation
from anchorage.transport.tensors.layout import Layout

SMALL = {"network": "SmallCnn", "imageSize": 8, "channels": 1, "augmentation": "Digits"}
HEAD = {"trainable": "Head"}
LORA = {**HEAD, "lora": {"rank": 2, "alpha": 4}}
CASES = [("FedAvg", HEAD), ("SemiAnAgg", HEAD), ("DVW", HEAD), ("FedAnchor", {"trainable": "encoder.*.3"})]
CASES += [("FedAvg", LORA), ("SemiAnAgg", LORA), ("FedAnchor", LORA)]


@pytest.mark.parametrize(("method", "trainable"), CASES)
def test_one_process_and_grpc_reach_the_same_model_and_frozen_tensors_travel_once(
    method: str, trainable: dict[str, Any], tmp_path: Path
) -> None:
    spec: dict[str, Any] = {"model": {**SMALL, **trainable}}
    study = digits_study(tmp_path / "alone", method, **spec)
    simulation = Simulation(study, study.file.parent, tmp_path / "simulation")
    record = simulation.play()
    down = Layout.from_json(simulation.run.down)
    rounds = [each for each in simulation.store.history() if each.round]
    # beside the first model: everything silos are sent is trainable, updates to score (DVW) included
    assert rounds[0].bytes_down - rounds[1].bytes_down == len(study.silos) * down.front > 0
    assert rounds[1].bytes_down <= 3 * len(study.silos) * down.trainable.nbytes
    assert all(each.bytes_up <= len(study.silos) * down.trainable.nbytes for each in rounds)
    over_grpc = digits_study(tmp_path / "grpc", method, **spec)
    assert digest_over_grpc(over_grpc, over_grpc.file.parent) == record.digest


@pytest.mark.parametrize("method", ["FedCLR", "FedMatch", "FedCon"])
def test_a_method_that_trains_the_encoder_is_refused_with_the_reason(method: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"model\.trainable freezes .*set All"):
        digits_study(tmp_path, method, model={**SMALL, "trainable": "Head"})


@pytest.mark.parametrize("trainable", ["head", "encoder", "classifier.weight", "encoder.a,,encoder.b"])
def test_a_word_that_means_nothing_is_refused(trainable: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="All, Head, or names such as"):
        digits_study(tmp_path, "FedAvg", model={**SMALL, "trainable": trainable})
