import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from silo_fakes import LAYOUT, WAIT_SECONDS, FakeLink, changed_setup, evaluate_task, model_of, setup_with, train_task

from anchorage.api.errors import AnchorageError
from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription, StageDescription
from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.silo import SiloWorker, WithdrawnError
from anchorage.methods import resolve
from anchorage.pieces.task.classification import Classification
from anchorage.transport.messages import Assigned, Permit, Task
from anchorage.transport.retry import RetryPolicy
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes, read_arrays
from anchorage_silo import trainer, trainer_process
from anchorage_silo.frames import Setup
from anchorage_silo.kept_output import OUTPUT_FILE
from anchorage_silo.mapped_buffers import MappedBuffers
from anchorage_silo.null_learner import NullLearner
from anchorage_silo.trainer_process import TrainerProcess

ONE, TWO = model_of(1.0), model_of(2.0)
DOUBLE = Path(__file__).with_name("trainer_double.py")


def ignore(done: int, total: int) -> int:
    return 0


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    run = json.dumps({"down": LAYOUT.to_json(), "up": LAYOUT.to_json()})
    return setup_with(tmp_path, run, trainer={"type": "Null", "step": "0.5", "samples": 7})


@pytest.fixture
def buffers(tmp_path: Path) -> MappedBuffers:
    return MappedBuffers(tmp_path)


@pytest.fixture
def running(setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrainerProcess]:
    monkeypatch.setattr(trainer_process, "RESTART", RetryPolicy(0.001))
    running = TrainerProcess(setup, (sys.executable, str(DOUBLE), str(tmp_path / "marker")))
    yield running
    running.close()


def moody(task: Task, mood: str) -> Task:
    return replace(task, auxiliary_data={mood: np.zeros(1)})


def received(buffers: MappedBuffers, task: Task, model: ModelBytes) -> np.ndarray:
    buffer = buffers.model(task.kind)
    buffer.receive(model.manifest)
    for index in buffer.missing():
        buffer.write(index, model.chunk(index))
    return buffer.array


def expected(value: float) -> Manifest:
    arrays = model_of(value).arrays()
    arrays["weight"] += np.float32(0.5)
    arrays["bn.running_var"] += np.float32(0.5)
    return ModelBytes.from_arrays(LAYOUT, arrays).manifest


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    results: list[object] = []

    def run() -> None:
        try:
            results.append(call())
        except (AnchorageError, WithdrawnError) as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


class TestNullLearner:
    def test_adds_to_floats_and_copies_the_rest(self) -> None:
        down = Layout.of(
            [("a", "F32", (300_000,)), ("gone", "F32", (5,)), ("n", "I64", (2,)), ("b", "F16", (3,)), ("c", "F64", (2,)),
             ("empty", "F32", (0,)), ("flag", "BOOL", (3,))]
        )  # fmt: skip
        up = down.select(["a", "n", "b", "c", "empty", "flag"])
        arrays = {
            "a": np.arange(300_000, dtype=np.float32), "gone": np.ones(5, np.float32), "n": np.array([3, 4]),
            "b": np.ones(3, np.float16), "c": np.array([0.25, 1.0]), "empty": np.empty(0, np.float32),
            "flag": np.array([True, False, True]),
        }  # fmt: skip
        model, buffers = ModelBytes.from_arrays(down, arrays), MemoryBuffers()
        announcement = NullLearner(down, up, 0.25, 5).train(train_task(model), model.buffer(), buffers.update, ignore)
        update = buffers.update(up.nbytes)
        update_arrays = read_arrays(up, update)
        for name in up.by_name:
            step = 0.25 if arrays[name].dtype.kind == "f" else 0
            assert np.array_equal(update_arrays[name], (arrays[name] + step).astype(arrays[name].dtype)), name
        assert announcement.update == Manifest.of(up.digest, update)
        assert announcement.samples == {"train": 5}

    def test_an_update_that_is_not_part_of_the_model_is_a_mistake(self) -> None:
        with pytest.raises(ValueError, match="weight"):
            NullLearner(Layout.of([("weight", "F32", (1,))]), Layout.of([("weight", "F32", (2,))]), 1.0, 1)

    def test_every_stage_has_its_layouts(self, setup: Setup) -> None:
        first = LAYOUT.select(["weight"])
        layouts, slots = {"down": LAYOUT.to_json(), "up": LAYOUT.to_json()}, resolve(MethodSpec(name="FedAvg"))
        stage = StageDescription(method=slots, down=first.to_json(), up=first.to_json(), last=1)
        spec = ModelDescription(network="SmallCnn", task=Classification(classes=("a", "b")), image_size=8)
        run = RunDescription(
            federation="f", seed=1, model=spec, method=slots, rounds=2, mode="Synchronous", warm_up=(stage,), **layouts
        )
        learner, samples, _ = trainer.build_learner(changed_setup(setup, run=run.to_json()))
        assert samples == 7
        for number, layout in ((1, first), (2, LAYOUT)):
            model = ModelBytes.from_arrays(layout, {n: a for n, a in ONE.arrays().items() if n in layout.by_name})
            buffers = MemoryBuffers()
            announcement = learner.train(train_task(model, number), model.buffer(), buffers.update, ignore)
            assert announcement.update is not None and announcement.update.layout == layout.digest
            assert float(read_arrays(layout, buffers.update(layout.nbytes))["weight"].flat[0]) == 1.5

    def test_trains_as_often_as_groups_drew_it(self, setup: Setup) -> None:
        slots, layouts = resolve(MethodSpec(name="RSCFed")), {"down": LAYOUT.to_json(), "up": LAYOUT.to_json()}
        spec = ModelDescription(network="SmallCnn", task=Classification(classes=("a", "b")), image_size=8)
        run = RunDescription(federation="f", seed=1, model=spec, method=slots, rounds=2, mode="Synchronous", **layouts)
        learner, *_ = trainer.build_learner(changed_setup(setup, run=run.to_json()))
        task, buffers = replace(train_task(ONE), repetitions=3), MemoryBuffers()
        announcement = learner.train(task, ONE.buffer(), buffers.update, ignore)
        models = np.split(buffers.update(3 * LAYOUT.nbytes), 3)
        assert announcement.update == Manifest.of(LAYOUT.digest, np.concatenate(models))
        assert all(float(read_arrays(LAYOUT, model)["weight"].flat[0]) == 1.5 for model in models)


class TestProcess:
    def test_trains_through_the_mapped_files(self, setup: Setup, buffers: MappedBuffers) -> None:
        running = TrainerProcess(setup)
        try:
            assert running.start() == (7, "")
            link = FakeLink(ONE, TWO)
            worker = SiloWorker(link, running, buffers)
            for number, (model, value) in enumerate(((ONE, 1.0), (TWO, 2.0), (ONE, 1.0)), start=1):
                task = train_task(model, number)
                worker.handle(Assigned(task))
                worker.handle(Permit(task.id))
                assert link.announcements[task.id].update == expected(value)
                assert ModelBytes.of(LAYOUT, np.frombuffer(link.updates[task.id], np.uint8)).manifest == expected(value)
            worker.handle(Assigned(evaluate_task(TWO)))
            assert link.messages[-1] == ("report", evaluate_task(TWO).id, 7, 7)
        finally:
            running.close()

    def test_stays_small_and_without_torch(self, setup: Setup) -> None:
        code = (
            "import sys, anchorage_silo.trainer; print([m for m in ('torch', 'grpc', 'pydantic') if m in sys.modules])"
        )
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
        assert result.stdout.strip() == "[]"

    def test_a_killed_process_is_replaced_and_the_task_repeated(
        self, running: TrainerProcess, buffers: MappedBuffers, caplog: pytest.LogCaptureFixture
    ) -> None:
        running.start()
        first = running.pid
        task = moody(train_task(ONE), "die")
        announcement = running.train(task, received(buffers, task, ONE), buffers.update, ignore)
        assert announcement.update == expected(1.0)
        assert Manifest.of(LAYOUT.digest, buffers.update(LAYOUT.nbytes)) == expected(1.0)
        assert running.pid != first
        assert "exit status -9" in caplog.text

    def test_a_process_that_was_killed_between_tasks_is_replaced(
        self, running: TrainerProcess, buffers: MappedBuffers
    ) -> None:
        running.start()
        pid = running.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        task = train_task(ONE)
        assert running.train(task, received(buffers, task, ONE), buffers.update, ignore).update == expected(1.0)

    def test_between_rounds_there_is_no_process(
        self, setup: Setup, buffers: MappedBuffers, caplog: pytest.LogCaptureFixture
    ) -> None:
        running = TrainerProcess(setup, release="BetweenRounds")
        pids: list[int | None] = []

        def note(done: int, total: int) -> int:
            pids.append(running.pid)
            return 0

        with closing(running):
            assert running.start() == (7, "") and running.pid is None
            for number, (model, value) in enumerate(((ONE, 1.0), (TWO, 2.0)), start=1):
                task = train_task(model, number)
                assert running.train(task, received(buffers, task, model), buffers.update, note).update == expected(
                    value
                )
                assert running.pid is None
            assert len(set(pids)) == 2 and not any(pid is not None and psutil.pid_exists(pid) for pid in pids)
            scored = evaluate_task(TWO)
            assert running.evaluate(scored, received(buffers, scored, TWO)).tally["validation"].tolist() == [7, 7]
            assert running.pid is None
        assert "was lost" not in caplog.text

    def test_a_process_is_not_released_under_another_task(
        self, setup: Setup, buffers: MappedBuffers, tmp_path: Path
    ) -> None:
        command = (sys.executable, str(DOUBLE), str(tmp_path / "marker"))
        with closing(TrainerProcess(setup, command, "BetweenRounds")) as running:
            trains, stop = threading.Event(), threading.Event()

            def until_told(done: int, total: int) -> int:
                trains.set()
                if stop.is_set():
                    raise WithdrawnError
                return 0

            task = moody(train_task(ONE), "slow")
            model = received(buffers, task, ONE)
            thread, outcomes = in_thread(lambda: running.train(task, model, buffers.update, until_told))
            assert trains.wait(WAIT_SECONDS)
            pid, scored = running.pid, evaluate_task(TWO)
            running.evaluate(scored, received(buffers, scored, TWO))
            assert running.pid == pid is not None
            stop.set()
            thread.join(WAIT_SECONDS)
            assert isinstance(outcomes[0], WithdrawnError) and running.pid is None

    def test_a_process_that_always_ends_fails_the_task(
        self, running: TrainerProcess, buffers: MappedBuffers, caplog: pytest.LogCaptureFixture
    ) -> None:
        task = moody(train_task(ONE), "die-always")
        with pytest.raises(AnchorageError, match="ANC-2204.*ended 3 times.*exit status -9"):
            running.train(task, received(buffers, task, ONE), buffers.update, ignore)
        task = train_task(TWO, 2)
        assert running.train(task, received(buffers, task, TWO), buffers.update, ignore).update == expected(2.0)

    def test_a_defect_ends_the_process_and_the_log_says_where_but_not_what(
        self, running: TrainerProcess, buffers: MappedBuffers, caplog: pytest.LogCaptureFixture, tmp_path: Path
    ) -> None:
        task = moody(train_task(ONE), "raise")
        with pytest.raises(AnchorageError, match="ANC-2204.*exit status 70"):
            running.train(task, received(buffers, task, ONE), buffers.update, ignore)
        assert "ZeroDivisionError at train (__main__:" in caplog.text and "a defect" not in caplog.text
        running.close()
        assert "ZeroDivisionError: a defect" in (tmp_path / OUTPUT_FILE).read_text()

    def test_a_failure_keeps_its_code_and_the_process(self, running: TrainerProcess, buffers: MappedBuffers) -> None:
        running.start()
        pid, task = running.pid, moody(train_task(ONE), "fail")
        with pytest.raises(AnchorageError, match="ANC-2230.*as the test asks"):
            running.train(task, received(buffers, task, ONE), buffers.update, ignore)
        assert running.pid == pid

    def test_images_that_cannot_be_used_are_known_before_the_silo_joins(self, setup: Setup, tmp_path: Path) -> None:
        running = TrainerProcess(
            changed_setup(setup, labels="All"), (sys.executable, str(DOUBLE), str(tmp_path / "marker"))
        )
        with pytest.raises(AnchorageError, match="ANC-2230.*no images"):
            running.start()
        running.close()

    def test_a_withdrawn_task_stops_and_the_process_goes_on(
        self, running: TrainerProcess, buffers: MappedBuffers, caplog: pytest.LogCaptureFixture, tmp_path: Path
    ) -> None:
        steps = []

        def withdraw(done: int, total: int) -> int:
            steps.append(done)
            if len(steps) > 5:
                raise WithdrawnError
            return 0

        task = moody(train_task(ONE), "slow")
        with pytest.raises(WithdrawnError):
            running.train(task, received(buffers, task, ONE), buffers.update, withdraw)
        pid, task = running.pid, train_task(TWO, 2)
        assert running.train(task, received(buffers, task, TWO), buffers.update, ignore).update == expected(2.0)
        assert running.pid == pid
        running.close()
        assert "printed by a library" in (tmp_path / OUTPUT_FILE).read_text() and "printed" not in caplog.text
        assert (tmp_path / OUTPUT_FILE).stat().st_mode & 0o777 == 0o600

    def test_the_committed_steps_reach_the_learner(self, running: TrainerProcess, buffers: MappedBuffers) -> None:
        running.start()
        task, counted = moody(train_task(ONE), "hear"), iter((0, 20))
        model = received(buffers, task, ONE)
        assert running.train(task, model, buffers.update, lambda d, t: next(counted, 40)).update == expected(1.0)

    def test_a_task_that_does_not_stop_is_ended_with_its_process(
        self, running: TrainerProcess, buffers: MappedBuffers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(trainer_process, "CANCEL_GRACE_SECONDS", 0.05)
        monkeypatch.setattr(trainer_process, "POLL_SECONDS", 0.05)
        looks = []

        def withdraw(done: int, total: int) -> int:
            looks.append(done)
            if len(looks) > 1:
                raise WithdrawnError
            return 0

        running.start()
        pid, task = running.pid, moody(train_task(ONE), "hang")
        with pytest.raises(WithdrawnError):
            running.train(task, received(buffers, task, ONE), buffers.update, withdraw)
        task = train_task(TWO, 2)
        assert running.train(task, received(buffers, task, TWO), buffers.update, ignore).update == expected(2.0)
        assert running.pid != pid

    def test_closing_ends_a_waiting_task(self, running: TrainerProcess, buffers: MappedBuffers) -> None:
        running.start()
        task, waits = moody(train_task(ONE), "hang"), threading.Event()
        model = received(buffers, task, ONE)
        thread, outcomes = in_thread(lambda: running.train(task, model, buffers.update, lambda d, t: waits.set() or 0))
        assert waits.wait(WAIT_SECONDS)
        running.close()
        thread.join(WAIT_SECONDS)
        assert isinstance(outcomes[0], AnchorageError)

    def test_evaluates_while_it_trains(self, running: TrainerProcess, buffers: MappedBuffers) -> None:
        stop = threading.Event()

        def until_told(done: int, total: int) -> int:
            if stop.is_set():
                raise WithdrawnError
            return 0

        running.start()
        task = moody(train_task(ONE), "slow")
        model = received(buffers, task, ONE)
        thread, _ = in_thread(lambda: running.train(task, model, buffers.update, until_told))
        scored = evaluate_task(TWO)
        assert running.evaluate(scored, received(buffers, scored, TWO)).tally["validation"].tolist() == [7, 7]
        stop.set()
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()

    def test_dies_with_its_agent(self, setup: Setup, tmp_path: Path) -> None:
        code = (
            "import sys, os\n"
            "from anchorage_silo.frames import Setup\n"
            "from anchorage_silo.trainer_process import TrainerProcess\n"
            "running = TrainerProcess(Setup.from_json(sys.stdin.buffer.read()))\n"
            "running.start()\n"
            "print(running.pid, flush=True)\n"
            "os.kill(os.getpid(), 9)\n"
        )
        result = subprocess.run([sys.executable, "-c", code], input=setup.to_json(), capture_output=True, timeout=120)
        end = time.monotonic() + WAIT_SECONDS
        try:
            child = psutil.Process(int(result.stdout))
        except psutil.NoSuchProcess:
            return
        while child.is_running() and child.status() != psutil.STATUS_ZOMBIE and time.monotonic() < end:
            time.sleep(0.01)
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


@pytest.fixture(autouse=True)
def _log_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
