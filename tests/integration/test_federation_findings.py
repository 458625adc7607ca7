"""Several findings per image give the same model over gRPC as in simulation, and silos score it."""

from pathlib import Path

import pytest
from drawn_findings import documents, draw_site, section, write
from federation_over_grpc import digest_over_grpc

from anchorage.methods import validate_study

pytest.importorskip("torch")

from anchorage.simulation.run import simulate


@pytest.mark.parametrize("name", ["FedAvg", "FedAvgFixMatch", "DVW"])
def test_findings_have_the_same_bytes_over_grpc(name: str, tmp_path: Path) -> None:
    draw_site(tmp_path / "site-a", 24, 1)
    draw_site(tmp_path / "site-b", 24, 2, ("Mass", "Effusion"), unlabelled=8)
    draw_site(tmp_path / "check", 24, 4)
    method = {"name": name, "local": {"epochs": 1, "batchSize": 8}}
    scored = {"siloPercent": 20, "validation": section("check")}
    study = validate_study(
        write(
            tmp_path,
            documents(method, labels=("All", "Partial"), claims=("site-a", "site-b"), rounds=3, evaluation=scored),
        )
    )
    record, _ = simulate(study, tmp_path, tmp_path / "state")
    assert digest_over_grpc(study, tmp_path) == record.digest
