"""A warm-up of other methods: one run over gRPC as in one process, killed in any stage or not."""

from pathlib import Path
from typing import Any

import pytest
from federation_documents import digits_study
from federation_over_grpc import digest_over_grpc

from anchorage.rounds.interfaces import RoundRecord
from anchorage.rounds.observer import Observers
from anchorage.simulation.run import Simulation, simulate
from anchorage.spec.files import Study

pytest.importorskip("sklearn")

WARM_UP = [{"method": "FedBarlow", "rounds": 1}, {"method": "FedCLR", "rounds": 1}]
"""Projector and no classifier, both, and then neither projector nor a model that all silos trained."""


def staged_study(folder: Path) -> Study:
    return digits_study(folder, "SemiAnAgg", rounds=3, warmUp=WARM_UP)


def test_the_link_changes_nothing(tmp_path: Path) -> None:
    study = staged_study(tmp_path)
    record, store = simulate(study, tmp_path, tmp_path / "simulation")
    assert record.round == 3
    assert digest_over_grpc(study, tmp_path) == record.digest
    scored = ["accuracy" in committed.metrics for committed in store.history()]
    assert scored == [False, False, True, True], "nobody trains a classifier in FedBarlow's stage"


class KilledError(Exception):
    """Stands for the end of the process."""


class _Killer(Observers):
    def __init__(self, after: int) -> None:
        super().__init__()
        self._after = after

    def committed(self, record: RoundRecord, *others: Any) -> None:
        if record.round == self._after:
            raise KilledError


def test_a_process_that_ends_after_any_round_is_gone_on_from(tmp_path: Path) -> None:
    study = staged_study(tmp_path)
    record, store = simulate(study, tmp_path, tmp_path / "whole")
    for after in range(3):
        with pytest.raises(KilledError):
            Simulation(study, tmp_path, tmp_path / "cut", resume=True).play(_Killer(after))
    again = Simulation(study, tmp_path, tmp_path / "cut", resume=True)
    assert again.play().digest == record.digest
    assert [r.digest for r in again.store.history()] == [r.digest for r in store.history()]
