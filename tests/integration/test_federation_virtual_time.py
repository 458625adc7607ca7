"""Simulations in virtual time: repeatable, whatever the protocol, and faithful to the silos' speeds."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federation_documents import ASYNCHRONOUS, LOCAL, digits_study, null_study
from numpy.typing import NDArray

from anchorage.api.files import Study
from anchorage.engine.events import RoundCommitted, RunEvent, tell_all
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.store import MemoryStore, SpareUpdates
from anchorage.simulation import remembered
from anchorage.simulation.run import Rounds, Simulation, simulate
from anchorage.simulation.speeds import Speeds, parse_speeds
from anchorage.transport.messages import Announcement, Evaluation, Profile, Task
from anchorage.transport.tensors.layout import Layout
from anchorage_server.learner import FileModel
from anchorage_silo.null_learner import NullLearner

ASYNCHRONOUSLY = {"mode": "Asynchronous", "minSilos": 2}


class Stepping:
    """A `SiloLearner` that only steps; `heard` are the answers to its progress, with the silo's name."""

    def __init__(self, silo: str, steps: int, notifications: list[tuple[str, int]], layout: Layout) -> None:
        self._silo, self._steps, self._notifications = silo, steps, notifications
        self._trainer = NullLearner(layout, layout, 0.5, 5)

    def train(
        self,
        task: Task,
        model: NDArray[np.uint8],
        out: Callable[[int], NDArray[np.uint8]],
        progress: Callable[[int, int], int],
    ) -> Announcement:
        for done in range(1, self._steps + 1):
            self._notifications.append((self._silo, progress(done, self._steps)))
        update = self._trainer.train(task, model, out, progress).update
        auxiliary = {"steps": np.array(self._steps), "validation": np.array([1, 2])}
        return Announcement(task.id, {"train": 5}, auxiliary, {}, update)

    def evaluate(self, task: Task, model: NDArray[np.uint8]) -> Evaluation:
        return Evaluation(task.id, {"validation": np.array([30, 60])}, images=60)


def played(
    study: Study, steps: dict[str, int], speeds: Speeds | None
) -> tuple[list[RoundRecord], list[tuple[str, int]]]:
    initial, notifications = study.federation.spec.model.initial, []
    assert initial is not None
    server = FileModel(study.file.parent / initial)
    learners = {silo: Stepping(silo, count, notifications, server.down) for silo, count in steps.items()}
    profiles = {silo: Profile("All", 5, "test") for silo in steps}
    spare = SpareUpdates()
    store = MemoryStore(spare)
    Rounds(study, server, profiles, learners.__getitem__, store, spare, tell_all(), speeds=speeds).play()
    return list(store.history()), notifications


def commits(records: list[RoundRecord]) -> list[tuple[float, str]]:
    return [(round(record.time, 6), record.silos[0].name) for record in records[1:]]


def test_an_asynchronous_federation_keeps_its_silos_times(tmp_path: Path) -> None:
    study = null_study(tmp_path, rounds=6, protocol=ASYNCHRONOUSLY)
    records, _ = played(study, {"a": 10, "b": 10}, parse_speeds(["a=0.1", "b=0.25+0.5"]))
    # a: every second. b: down 0.5, ten steps 2.5, up 0.5
    assert commits(records) == [(1, "a"), (2, "a"), (3, "a"), (3.5, "b"), (4, "a"), (5, "a")]


def test_scoring_takes_its_time_beside_training(tmp_path: Path) -> None:
    method = {"name": "DVW", "local": {"batchSize": 20}}
    study = null_study(tmp_path, rounds=3, protocol=ASYNCHRONOUSLY, method=method)
    records, _ = played(study, {"a": 10, "b": 10}, parse_speeds(["a=0.1+1", "b=0.5+1"]))
    # a's update is whole at 1 + 1 + 1; b scores 60 images in batches of 20 after another second: 1 + 3 * 0.5 / 3
    # b's at 1 + 5 + 1; a scores it in 1 + 3 * 0.1 / 3 while it trains on, from 4.5 to 7.5, and is scored by b until 9
    assert commits(records) == [(4.5, "a"), (8.1, "b"), (9, "a")]


def test_rounds_take_as_long_as_their_slowest_silo(tmp_path: Path) -> None:
    study = null_study(tmp_path, rounds=2)
    records, _ = played(study, {"a": 10, "b": 10}, parse_speeds(["a=0.1", "b=0.4"]))
    assert [record.time for record in records] == pytest.approx([0, 4, 8])
    late = null_study(tmp_path / "late", rounds=2, protocol={"minSilos": 1, "roundDeadlineSeconds": 2})
    records, _ = played(late, {"a": 10, "b": 10}, parse_speeds(["a=0.1", "b=0.4"]))
    assert [record.time for record in records] == [0, 2, 4]
    assert [part.state for part in records[1].silos] == ["Counted", "Late"]


def test_a_silo_hears_what_the_others_committed_while_it_trains(tmp_path: Path) -> None:
    method = {"name": "AsyncFedAvg", "local": {"cycle": {}}}
    study = null_study(tmp_path, rounds=7, protocol=ASYNCHRONOUSLY, method=method)
    records, notifications = played(study, {"a": 2, "b": 7}, parse_speeds(["a=1", "b=0.9"]))
    assert commits(records) == [(2, "a"), (4, "a"), (6, "a"), (6.3, "b"), (8, "a"), (10, "a"), (12, "a")]
    # b's steps end at 0.9, 1.8, ... 6.3: nothing, nothing, then a's 2 steps at 2, 4 from 4 on, 6 at 6.3
    assert [committed for silo, committed in notifications if silo == "b"][:7] == [0, 0, 2, 2, 4, 4, 6]
    assert [record.silos[0].metrics["staleness"] for record in records[1:5]] == [2, 2, 2, 13]


@pytest.mark.parametrize("method", ASYNCHRONOUS)
def test_an_asynchronous_simulation_can_be_repeated(method: str, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    results = []
    for attempt in ("first", "again"):
        study = digits_study(tmp_path / attempt, method, rounds=5)
        folder = study.file.parent
        _, store = simulate(study, folder, folder / "state", speeds=parse_speeds(["a=0.1", "[bc]=0.4+1"]))
        history = store.history()
        results.append([(record.time, record.digest, [part.weight for part in record.silos]) for record in history])
        assert all(later.time >= earlier.time for earlier, later in itertools.pairwise(history))
        assert {part.name for record in history for part in record.silos} >= {"a", "c"}
    assert results[0] == results[1]


PERSISTENT = {"optimiser": {"sgd": {"state": "Persist"}}}


class StoppedError(Exception):
    """Stands for the end of the process."""


class Stop:
    """Ends the process after a commit."""

    def __init__(self, after: int) -> None:
        self._after = after

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, RoundCommitted) and event.record.round == self._after:
            raise StoppedError


def facts(record: RoundRecord) -> tuple[Any, ...]:
    """What a commit is, but for the machine's seconds."""
    weights = [(part.name, part.weight, part.metrics["loss"]) for part in record.silos]
    return record.time, record.digest, record.metrics, weights, record.bytes_up, record.bytes_down


def test_an_asynchronous_simulation_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    from anchorage.learning.silo_learner import TorchSiloLearner

    done, train = [], TorchSiloLearner.train

    def counted(learner: TorchSiloLearner, task: Task, *others: Any) -> Announcement:
        done.append(f"{learner._silo} {task.id}")
        return train(learner, task, *others)

    monkeypatch.setattr(TorchSiloLearner, "train", counted)
    described, _ = ASYNCHRONOUS["AsyncDVWAdaptive"]  # silos score updates, and remember staleness and momentum
    slots = {"local": {**described["local"], **PERSISTENT}}
    study = digits_study(tmp_path, "AsyncDVWAdaptive", rounds=4, slots=slots)
    speeds = parse_speeds(["a=0.1", "[bc]=0.4+1"])
    _, uncut = simulate(study, tmp_path, tmp_path / "whole", speeds=speeds)
    once = sorted(done)
    done.clear()
    with pytest.raises(StoppedError):
        Simulation(study, tmp_path, tmp_path / "cut", resume=True, speeds=speeds).play(Stop(2))
    resumed = Simulation(study, tmp_path, tmp_path / "cut", resume=True, speeds=speeds)
    resumed.play()
    assert set(done) == set(once), "the same work"
    assert len(done) <= len(once) + 2, "what was trained is not trained again; two silos were in the middle of it"
    assert list(map(facts, resumed.store.history())) == list(map(facts, uncut.history()))
    done.clear()
    Simulation(study, tmp_path, tmp_path / "cut", resume=True, speeds=parse_speeds(["a=0.2"])).play(Stop(7))
    assert done, "other speeds make another simulation"


def test_what_silos_calculated_is_found_all_and_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    study = digits_study(tmp_path, "FedAsync", rounds=2, slots={"local": {**LOCAL, **PERSISTENT}})
    with pytest.raises(StoppedError):
        Simulation(study, tmp_path, tmp_path / "state", resume=True).play(Stop(1))
    damaged = []
    for path in (tmp_path / "state" / "results").glob("*/a.1.train.*"):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        damaged.append(path)
    assert damaged
    expected = simulate(study, tmp_path, tmp_path / "whole")[0].digest
    assert Simulation(study, tmp_path, tmp_path / "state", resume=True).play().digest == expected
    monkeypatch.setattr(remembered, "KEPT_BYTES", 1000)
    small = tmp_path / "small"
    with pytest.raises(StoppedError):
        Simulation(study, tmp_path, small, resume=True).play(Stop(1))
    assert not list((small / "results").glob("*/*")) and list((small / "silos").iterdir())
    begun = Simulation(study, tmp_path, small, resume=True)
    assert not (small / "silos").exists(), "what silos kept belongs to what is not found"
    assert begun.play().digest == expected


def test_speeds_do_not_change_what_rounds_reach(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    study = digits_study(tmp_path, "SyncDVW", rounds=1)
    digests: set[Any] = set()
    for name, speeds in (("plain", None), ("timed", parse_speeds(["a=2"]))):
        record, _ = simulate(study, tmp_path, tmp_path / name, speeds=speeds)
        digests.add(record.digest)
    assert len(digests) == 1
