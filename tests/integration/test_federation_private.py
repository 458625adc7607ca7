"""Rounds with noise at the server: what they tell, and that a server that was killed gives the same model again."""

from pathlib import Path

import pytest
from federation_documents import null_study

from anchorage.api.files import Study
from anchorage.engine.events import RoundCommitted, RunEvent, tell_all
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.store import MemoryStore, SpareUpdates
from anchorage.simulation.run import Rounds
from anchorage.transport.messages import Profile
from anchorage_server.learner import FileModel
from anchorage_silo.null_learner import NullLearner

dp_accounting = pytest.importorskip("dp_accounting")

PRIVATE = {
    "name": "FedAvg",
    "weighting": {"uniform": {}},
    "aggregation": {"privateMean": {"clipNorm": "3", "noiseMultiplier": "2"}},
}
FAR = 1e6


class KilledError(Exception):
    """Stands for the end of the server's process."""


def play(study: Study, store: MemoryStore, kill_after: int | None = None) -> list[RoundRecord]:
    """Play what is left of a study; silo c's updates are far longer than those of a and b."""
    initial = study.federation.spec.model.initial
    assert initial is not None
    server = FileModel(study.file.parent / initial)
    steps = {"a": 0.5, "b": -0.5, "c": FAR}
    learners = {silo: NullLearner(server.down, server.up, step, 5) for silo, step in steps.items()}
    profiles = {silo: Profile("All", 5, "test") for silo in steps}

    def watch(event: RunEvent) -> None:
        if isinstance(event, RoundCommitted) and event.record.round == kill_after:
            raise KilledError

    Rounds(study, server, profiles, learners.__getitem__, store, SpareUpdates(), tell_all(watch)).play()
    return list(store.history())


def test_every_round_tells_its_epsilon_and_counts_every_silo(tmp_path: Path) -> None:
    records = play(null_study(tmp_path, silos=3, rounds=3, method=PRIVATE), MemoryStore())
    assert all([part.state for part in record.silos] == ["Counted"] * 3 for record in records[1:])
    for record in records[1:]:
        accountant = dp_accounting.pld.PLDAccountant()
        accountant.compose(dp_accounting.GaussianDpEvent(2.0), record.round)
        assert record.metrics["epsilon"] == pytest.approx(accountant.get_epsilon(1e-5), abs=1e-3)
        assert record.metrics["delta"] == 1e-5


def test_a_round_that_is_played_again_gives_the_same_model_and_another_run_another_one(tmp_path: Path) -> None:
    study, store = null_study(tmp_path, silos=3, rounds=2, method=PRIVATE), MemoryStore()
    with pytest.raises(KilledError):
        play(study, store, kill_after=1)
    latest, as_killed = store.latest(), MemoryStore()
    assert latest is not None and latest.record.round == 1
    as_killed.commit(latest.record, latest.model, latest.state)
    once, repeated, other = play(study, store)[-1], play(study, as_killed)[-1], play(study, MemoryStore())[-1]
    assert once.digest == repeated.digest != other.digest
    assert once.metrics["epsilon"] == repeated.metrics["epsilon"] == other.metrics["epsilon"]
