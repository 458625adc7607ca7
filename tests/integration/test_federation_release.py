"""Agents that end their trainers between rounds: the same bytes as in one process, from what is kept in files alone."""

from pathlib import Path

import pytest
from federation_documents import digits_study
from federation_processes import Site

from anchorage.simulation.run import simulate

pytest.importorskip("sklearn")
RELEASED = "no task is at hand: the trainer process has ended"


@pytest.mark.parametrize("method", [{"name": "SCAFFOLD"}, {"encoding": {"topK": {}}}], ids=["variates", "losses"])
def test_what_a_silo_keeps_outlives_its_trainer(method: dict[str, object], tmp_path: Path) -> None:
    """SCAFFOLD's control variates, and what an encoding lost."""
    study = digits_study(tmp_path, "FedAvg", silos=2, rounds=2, slots=method)
    record, _ = simulate(study, tmp_path, tmp_path / "simulation")
    with Site(study) as site:
        server = site.server()
        released, steady = site.agent("a", release="BetweenRounds"), site.agent("b")
        site.finish(server, released, steady)
        assert site.digest() == record.digest
        assert sum(RELEASED in line for line in released.lines) == 1 + 2, (
            "after the images were read, and after each round"
        )
        assert not any(RELEASED in line for line in steady.lines)
