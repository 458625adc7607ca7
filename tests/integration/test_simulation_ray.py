"""A simulation on a real Ray cluster of this machine; tests/unit/simulation has the same with actors of one process."""

from pathlib import Path

import pytest
from federation_documents import digits_study

from anchorage.simulation.run import Simulation, simulate

pytest.importorskip("ray", reason="Ray is not installed: pip install 'anchorage[ray]'")


@pytest.mark.filterwarnings("default")  # Ray's own
def test_a_ray_cluster_reaches_the_model_of_one_process(tmp_path: Path) -> None:
    study = digits_study(tmp_path, "FedAnchor", silos=3)
    alone, _ = simulate(study, tmp_path, tmp_path / "alone")
    assert Simulation(study, tmp_path, tmp_path / "spread", ray="local").play().digest == alone.digest
