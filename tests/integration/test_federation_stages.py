"""A warm-up of other methods: the same model from processes as in one process, killed in any stage or not."""

from pathlib import Path

import numpy as np
import pytest
from federation_documents import digits_study
from federation_processes import SIGKILLED, Site

from anchorage.api.files import Study
from anchorage.engine.events import RoundCommitted, RunEvent
from anchorage.simulation.run import Simulation, simulate

pytest.importorskip("sklearn")

WARM_UP = [
    {"method": "FedBarlow", "rounds": 1, "set": ["local.batchSize=32", "selfSupervised.barlow.scale=0.1"]},
    {"method": "FedCLR", "rounds": 1, "set": ["local.batchSize=16", "local.optimiser.sgd.learningRate=0.01"]},
]
"""Projector and no classifier, both, and then neither projector nor a model that all silos trained."""


def staged_study(folder: Path, silos: int = 3) -> Study:
    return digits_study(folder, "SemiAnAgg", rounds=3, silos=silos, warmUp=WARM_UP)


def test_silos_without_labels_do_not_dilute_the_online_classifier(tmp_path: Path) -> None:
    models = []
    for silos in (1, 3):
        study = digits_study(tmp_path / str(silos), "FedCLR", rounds=1, silos=silos)
        _, store = simulate(study, tmp_path, tmp_path / str(silos) / "simulation")
        checkpoint = store.latest()
        assert checkpoint is not None
        models.append(checkpoint.model.arrays())
    alone, together = models
    np.testing.assert_array_equal(together["classifier.weight"], alone["classifier.weight"])
    assert not np.array_equal(together["projector.layers.0.weight"], alone["projector.layers.0.weight"])


class KilledError(Exception):
    """Stands for the end of the process."""


class _Killer:
    def __init__(self, after: int) -> None:
        self._after = after

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, RoundCommitted) and event.record.round == self._after:
            raise KilledError


@pytest.mark.parametrize("warmed_up", [True, False], ids=["stages", "a learner that remembers"])
def test_a_process_that_ends_after_any_round_is_gone_on_from(tmp_path: Path, warmed_up: bool) -> None:
    study = staged_study(tmp_path) if warmed_up else digits_study(tmp_path, "FedCon", rounds=3, silos=1)
    record, store = simulate(study, tmp_path, tmp_path / "whole")
    for after in range(3):
        with pytest.raises(KilledError):
            Simulation(study, tmp_path, tmp_path / "cut", resume=True).play(_Killer(after))
    resumed = Simulation(study, tmp_path, tmp_path / "cut", resume=True)
    assert resumed.play().digest == record.digest
    assert [r.digest for r in resumed.store.history()] == [r.digest for r in store.history()]


def test_processes_killed_between_two_stages_reach_the_model_of_one_process(tmp_path: Path) -> None:
    """The server dies after the last round of a stage, a silo's trainer in the next one, which it began itself."""
    with Site(staged_study(tmp_path, silos=2)) as site:
        server = site.server("committed", 1, "SIGKILL")
        first = site.agent("a", "trained", 2, "SIGKILL")
        second = site.agent("b")
        assert server.end() == SIGKILLED
        server = site.server()
        site.finish(server, first, second)
        assert any("process was lost" in line for line in first.lines)
        record, store = simulate(site.study, tmp_path, tmp_path / "simulation")
        assert site.digest() == record.digest
    scored = ["accuracy" in committed.metrics for committed in store.history()]
    assert scored == [False, False, True, True], "nobody trains a classifier in FedBarlow's stage"
