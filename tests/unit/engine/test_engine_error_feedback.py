"""What an encoding loses of a silo's changes is kept for its next update, across restarts and rounds that are done again."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from silo_fakes import FakeLink, train_task

from anchorage.api.method import ResolvedMethod
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription
from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.error_feedback import ErrorFeedback
from anchorage.engine.silo import SiloWorker
from anchorage.methods import PRESETS
from anchorage.pieces.encoding.int4 import Int4
from anchorage.pieces.task.classification import Classification
from anchorage.transport.messages import Assigned, UpdateFormat
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage_silo.null_learner import NullLearner

LAYOUT = Layout.of([("weight", "F32", (2, 70))])
MODEL = ModelBytes.of(LAYOUT, (np.arange(140, dtype=np.float32) / 100).view(np.uint8))
TASKS = {number: replace(train_task(MODEL, number), update_format=UpdateFormat.ENCODED) for number in range(1, 6)}


class Link(FakeLink):
    """Of a run whose updates travel in 4 bits."""

    def welcome(self) -> str:
        method = ResolvedMethod.model_validate({**dict(PRESETS["FedAvg"].slots), "encoding": Int4()})
        model = ModelDescription(network="SmallCnn", task=Classification(classes=("a", "b")), image_size=8, channels=1)
        text = LAYOUT.to_json()
        return RunDescription(
            federation="derm", seed=1, rounds=5, mode="Synchronous", method=method, model=model, down=text, up=text
        ).to_json()


def announced(folder: Path, rounds: Iterable[int], *, restart: bool) -> list[str]:
    """Return the digests of the updates of some rounds, by one worker or by one for each."""
    link, digests = Link(MODEL), []
    worker = None
    for number in rounds:
        if worker is None or restart:
            learner = NullLearner(LAYOUT, LAYOUT, 0.013, 7)
            worker = SiloWorker(link, learner, MemoryBuffers(), feedback=ErrorFeedback(folder))
        worker.handle(Assigned(TASKS[number]))
        update = link.announcements[TASKS[number].id].update
        assert update is not None
        digests.append(update.digest)
    return digests


def test_a_restarted_silo_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    steady = announced(tmp_path / "steady", [1, 2, 3, 4], restart=False)
    assert announced(tmp_path / "restarted", [1, 2, 2, 3, 4], restart=True) == [*steady[:2], steady[1], *steady[2:]]
    assert len(set(steady)) > 1  # the same training each time: only what was lost before differs


def test_a_round_that_is_left_out_loses_nothing(tmp_path: Path) -> None:
    assert announced(tmp_path / "few", [1, 4], restart=True) == announced(tmp_path / "many", [1, 2], restart=True)


def test_a_damaged_file_ends_the_task_and_not_the_silo(tmp_path: Path) -> None:
    announced(tmp_path, [1], restart=True)
    (file,) = tmp_path.glob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    link = Link(MODEL)
    learner = NullLearner(LAYOUT, LAYOUT, 0.013, 7)
    SiloWorker(link, learner, MemoryBuffers(), feedback=ErrorFeedback(tmp_path)).handle(Assigned(TASKS[2]))
    assert [message[0] for message in link.messages] == ["fail"]
