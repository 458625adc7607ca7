"""Every method, over gRPC and in simulation: the same documents and seed end with the same model."""

from pathlib import Path

import pytest
from federation_documents import ASYNCHRONOUS, METHODS, digits_study
from federation_over_grpc import digest_over_grpc

from anchorage.methods import PRESETS
from anchorage.simulation.run import simulate

pytest.importorskip("sklearn")


def test_every_method_is_tried() -> None:
    assert {spec["name"] for spec, _ in [*METHODS.values(), *ASYNCHRONOUS.values()]} == set(PRESETS)


@pytest.mark.parametrize("method", METHODS)
def test_the_link_changes_nothing(method: str, tmp_path: Path) -> None:
    study = digits_study(tmp_path, method)
    record, _ = simulate(study, tmp_path, tmp_path / "simulation")
    assert digest_over_grpc(study, tmp_path) == record.digest


@pytest.mark.parametrize("method", ASYNCHRONOUS)
def test_what_has_no_rounds_reaches_its_last_commit(method: str, tmp_path: Path) -> None:
    study = digits_study(tmp_path, method, rounds=4)
    assert len(digest_over_grpc(study, tmp_path)) == 64
