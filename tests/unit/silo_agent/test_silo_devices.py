"""A trainer with two devices: real processes, each with a part of every batch."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from real_silo import METHOD, MODEL, Silo, setup_of
from silo_fakes import WAIT_SECONDS, changed_setup

from anchorage.api.errors import AnchorageError
from anchorage.engine.silo import SiloWorker
from anchorage.learning.learners import build_server_learner
from anchorage.transport.messages import Task, TaskKind
from anchorage.transport.retry import RetryPolicy
from anchorage.transport.tensors.model import ModelBytes
from anchorage_silo import trainer_process
from anchorage_silo.landlock import abi
from anchorage_silo.mapped_buffers import MappedBuffers
from anchorage_silo.trainer_process import TrainerProcess


@pytest.fixture(scope="module")
def initial() -> ModelBytes:
    return build_server_learner(model=MODEL, method=METHOD, seed=5).initialise()


@pytest.fixture
def silo_of(tmp_path: Path, initial: ModelBytes) -> Iterator[Callable[..., Silo]]:
    silos = []

    def make(name: str, *disturb: Callable[[Silo, str], None]) -> Silo:
        silos.append(Silo(changed_setup(setup_of(tmp_path / name, initial), devices=2), *disturb))
        return silos[-1]

    yield make
    for silo in silos:
        silo.trainer.close()


def further_of(silo: Silo) -> list[psutil.Process]:
    """The processes of the further devices."""
    return psutil.Process(silo.trainer.pid).children()


@pytest.mark.integration
def test_a_killed_process_of_a_further_device_changes_nothing_in_the_result(
    initial: ModelBytes, silo_of: Callable[..., Silo], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_process, "RESTART", RetryPolicy(0.001))
    killed: list[int] = []

    def kill(silo: Silo, task: str) -> None:
        if not killed:
            killed.append(further_of(silo)[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    calm, disturbed = silo_of("calm"), silo_of("disturbed", kill)
    for number in (1, 2):  # the second one trains twice, the second time from what the first kept
        expected, actual = calm.round(number, initial), disturbed.round(number, initial)
        assert actual[1] == expected[1] and actual[0].samples == expected[0].samples
    assert killed
    (rest,) = further_of(calm)
    for pid in (calm.trainer.pid, rest.pid) if abi() else ():
        assert "NoNewPrivs:\t1" in Path(f"/proc/{pid}/status").read_text(), "both are confined"
    calm.trainer.close()
    psutil.wait_procs([rest], WAIT_SECONDS)
    assert not rest.is_running(), "a further process ends with its trainer"


@pytest.mark.integration
def test_a_training_that_was_withdrawn_is_followed_by_one_of_all_devices(
    tmp_path: Path, initial: ModelBytes, silo_of: Callable[..., Silo]
) -> None:
    expected = silo_of("calm").round(2, initial)[0].update
    started = threading.Event()
    silo = silo_of("stopped", lambda silo, task: started.set())
    link, model = silo.link, initial
    link.models[model.digest] = model
    link.permit_at_once = True
    worker = SiloWorker(link, silo.trainer, MappedBuffers(tmp_path / "stopped"), threads=True)
    runner = threading.Thread(target=worker.run)
    runner.start()
    link.assign(Task("1.train", TaskKind.TRAIN, 1, model.manifest))
    assert started.wait(WAIT_SECONDS)
    link.assign(Task("2.train", TaskKind.TRAIN, 2, model.manifest, repetitions=2))
    link.await_said("push", "2.train")
    link.close()
    runner.join(WAIT_SECONDS)
    worker.stop()
    worker.join()
    assert "1.train" not in link.announcements
    assert link.announcements["2.train"].update == expected


def test_what_is_wrong_at_a_further_device_is_told_at_the_start(tmp_path: Path, initial: ModelBytes) -> None:
    trainer = TrainerProcess(changed_setup(setup_of(tmp_path / "a", initial), devices=2, device="cuda"))
    with pytest.raises(AnchorageError, match="ANC-1304"):
        trainer.start()
    trainer.close()
