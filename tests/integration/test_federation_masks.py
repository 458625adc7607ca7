"""Masks of pictures and of volumes give the same model over gRPC as in simulation, whoever answers first.

With DVW by Dice, whose silos send sums that are no whole numbers.
"""

from pathlib import Path

import drawn_volumes
import pytest
from drawn_masks import write_study
from federation_over_grpc import digest_over_grpc

from anchorage.methods import validate_study

pytest.importorskip("torch")

from anchorage.simulation.run import simulate


def test_masks_have_the_same_bytes_over_grpc(tmp_path: Path) -> None:
    method = {"name": "DVW", "weighting": {"dvw": {"validationPercent": 30}}}
    scored = {"siloPercent": 20, "validation": {"format": "ImageFolder", "claimName": "server"}}
    study = validate_study(write_study(tmp_path, method, silos=3, evaluation=scored))
    record, _ = simulate(study, tmp_path / "data", tmp_path / "state")
    assert {silo.state for silo in record.silos} == {"Counted"} and len({silo.weight for silo in record.silos}) > 1
    assert digest_over_grpc(study, tmp_path / "sockets", tmp_path / "data") == record.digest


def test_volumes_have_the_same_bytes_over_grpc(tmp_path: Path) -> None:
    method = {"name": "FedAvg", "local": {"epochs": 1, "batchSize": 2}}
    scored = {"siloPercent": 50, "validation": {"format": "ImageFolder", "claimName": "server"}}
    study = validate_study(drawn_volumes.write_study(tmp_path, method, silos=3, evaluation=scored))
    record, _ = simulate(study, tmp_path / "data", tmp_path / "state")
    assert {silo.state for silo in record.silos} == {"Counted"}
    assert digest_over_grpc(study, tmp_path / "sockets", tmp_path / "data") == record.digest
