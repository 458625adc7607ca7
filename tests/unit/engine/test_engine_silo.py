import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from silo_fakes import LAYOUT, WAIT_SECONDS, FakeLearner, FakeLink, evaluate_task, model_of, train_task

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import PIECE_WRONG
from anchorage.api.errors.rounds import STOPPED
from anchorage.engine import silo
from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.silo import SiloWorker
from anchorage.transport.messages import Announcement, Assigned, Dismissed, Finished, Permit, Task
from anchorage.transport.tensors.model import ModelBytes

ONE, TWO, THREE = model_of(1.0), model_of(2.0), model_of(3.0)
FAILURE = AnchorageError(STOPPED, "as the test asks")


class Running:
    """A worker with threads whose orders come from its link, in a thread of its own."""

    def __init__(self, link: FakeLink, learner: FakeLearner) -> None:
        self.worker = SiloWorker(link, learner, MemoryBuffers(), threads=True)
        self.link = link
        self.ended: list[object] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.ended.append(self.worker.run())
        except AnchorageError as error:
            self.ended.append(error)

    def join(self) -> object:
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()
        return self.ended[0]

    def close(self) -> None:
        self.link.close()
        self._thread.join(WAIT_SECONDS)
        self.worker.stop()
        self.worker.join()


@pytest.fixture
def link() -> FakeLink:
    return FakeLink(ONE, TWO, THREE)


@pytest.fixture
def learner() -> FakeLearner:
    return FakeLearner()


@pytest.fixture
def running(link: FakeLink, learner: FakeLearner) -> Iterator[Running]:
    link.permit_at_once = True
    running = Running(link, learner)
    yield running
    running.close()


def weights(update: bytes) -> np.ndarray:
    entry = LAYOUT.by_name["weight"]
    return np.frombuffer(update[entry.offset : entry.offset + entry.nbytes], "<f4")


class TestInline:
    @pytest.fixture
    def worker(self, link: FakeLink, learner: FakeLearner) -> SiloWorker:
        return SiloWorker(link, learner, MemoryBuffers())

    def test_trains_announces_and_uploads_only_what_is_permitted(self, worker: SiloWorker, link: FakeLink) -> None:
        task = train_task(ONE)
        worker.handle(Assigned(task))
        assert link.messages == [("progress", task.id, 1, 2), ("progress", task.id, 2, 2), ("announce", task.id)]
        worker.handle(Permit(task.id))
        assert link.messages[3:] == [("push", task.id)]
        assert (weights(link.updates[task.id]) == 2.0).all()
        assert link.announcements[task.id].update == ModelBytes(LAYOUT, _chunks(link.updates[task.id])).manifest

    def test_fetches_only_the_chunks_that_it_does_not_hold(self, worker: SiloWorker, link: FakeLink) -> None:
        changed = bytearray(b"".join(ONE.chunks))
        changed[-20:-16] = b"\0\0\0\1"
        close = ModelBytes(LAYOUT, _chunks(bytes(changed)))
        link.models[close.digest] = close
        worker.handle(Assigned(train_task(ONE)))
        assert link.fetched == [0, 1, 2]
        worker.handle(Assigned(train_task(close, 2)))
        assert link.fetched == [0, 1, 2, 2]
        worker.handle(Assigned(train_task(close, 3)))
        assert link.fetched == [0, 1, 2, 2]

    def test_a_task_given_again_is_announced_again_not_trained_again(
        self, worker: SiloWorker, link: FakeLink, learner: FakeLearner
    ) -> None:
        task = train_task(ONE)
        for _ in range(3):
            worker.handle(Assigned(task))
        assert learner.trained == [task.id]
        assert [s for s in link.messages if s[0] == "announce"] == [("announce", task.id)] * 3

    def test_a_permit_is_obeyed_as_often_as_it_comes(self, worker: SiloWorker, link: FakeLink) -> None:
        task = train_task(ONE)
        worker.handle(Assigned(task))
        worker.handle(Permit(task.id))
        worker.handle(Permit(task.id))
        assert [s for s in link.messages if s[0] == "push"] == [("push", task.id)] * 2

    def test_a_permit_that_comes_before_training_ends_counts(self, link: FakeLink, learner: FakeLearner) -> None:
        worker = SiloWorker(link, learner, MemoryBuffers())
        task = train_task(ONE)
        learner.at_step = lambda task, step: worker.handle(Permit(task.id))
        worker.handle(Assigned(task))
        assert link.messages[-2:] == [("announce", task.id), ("push", task.id)]

    def test_after_a_restart_what_was_announced_is_announced_again(self, link: FakeLink, learner: FakeLearner) -> None:
        buffers, task = MemoryBuffers(), train_task(ONE)
        SiloWorker(link, learner, buffers).handle(Assigned(task))
        restarted = SiloWorker(link, learner, buffers)
        restarted.handle(Assigned(task))
        restarted.handle(Permit(task.id))
        assert learner.trained == [task.id]
        assert (weights(link.updates[task.id]) == 2.0).all()

    def test_a_new_train_task_replaces_the_old_one(self, worker: SiloWorker, link: FakeLink) -> None:
        first, second = train_task(ONE), train_task(TWO, 2)
        worker.handle(Assigned(first))
        worker.handle(Assigned(second))
        worker.handle(Permit(first.id))
        worker.handle(Permit(second.id))
        assert list(link.updates) == [second.id]

    def test_a_dismissed_task_is_forgotten(self, worker: SiloWorker, link: FakeLink, learner: FakeLearner) -> None:
        task = train_task(ONE)
        worker.handle(Assigned(task))
        worker.handle(Dismissed(task.id, "counted"))
        worker.handle(Permit(task.id))
        assert link.updates == {}

    def test_an_inactive_silo_announces_without_an_update(self, link: FakeLink) -> None:
        worker = SiloWorker(link, FakeLearner(inactive=True), MemoryBuffers())
        task = train_task(ONE)
        worker.handle(Assigned(task))
        worker.handle(Permit(task.id))
        assert link.announcements[task.id].update is None
        assert link.messages[-1] == ("announce", task.id)

    def test_a_failure_is_reported_and_the_same_task_may_be_tried_again(
        self, worker: SiloWorker, link: FakeLink, learner: FakeLearner
    ) -> None:
        def fail(task: Task, step: int) -> None:
            raise FAILURE

        task = train_task(ONE)
        learner.at_step = fail
        worker.handle(Assigned(task))
        assert link.messages == [("fail", task.id, "ANC-3008")]
        learner.at_step = lambda task, step: None
        worker.handle(Assigned(task))
        assert link.messages[-1] == ("announce", task.id)

    @pytest.mark.parametrize("call", ["announce", "push"])
    def test_a_refused_message_is_a_failed_task(self, worker: SiloWorker, link: FakeLink, call: str) -> None:
        task = train_task(ONE)
        link.refuse[call] = FAILURE
        worker.handle(Assigned(task))
        worker.handle(Permit(task.id))
        assert [s for s in link.messages if s[0] != "progress"][-1] == ("fail", task.id, "ANC-3008")

    def test_a_mistake_in_a_piece_is_told_and_ends_the_silo(
        self, worker: SiloWorker, link: FakeLink, learner: FakeLearner
    ) -> None:
        def fail(task: Task, step: int) -> None:
            raise AnchorageError(PIECE_WRONG, "as the test asks")

        learner.at_step, task = fail, train_task(ONE)
        with pytest.raises(AnchorageError) as caught:
            worker.handle(Assigned(task))
        assert caught.value.failure is PIECE_WRONG
        assert link.messages == [("fail", task.id, PIECE_WRONG.code)]

    def test_a_task_that_is_not_admitted_fails_before_anything_is_fetched(
        self, link: FakeLink, learner: FakeLearner
    ) -> None:
        def refuse(task: Task) -> None:
            raise FAILURE

        worker = SiloWorker(link, learner, MemoryBuffers(), admit=refuse)
        worker.handle(Assigned(train_task(ONE)))
        worker.handle(Assigned(evaluate_task(TWO)))
        assert [s[0] for s in link.messages] == ["fail", "fail"]
        assert link.fetched == []

    def test_a_chunk_that_is_not_the_promised_one_fails_the_task(self, worker: SiloWorker, link: FakeLink) -> None:
        task = train_task(ONE)
        link.models[ONE.digest] = TWO
        worker.handle(Assigned(task))
        assert link.messages == [("fail", task.id, "ANC-2101")]

    def test_evaluates_once_and_reports_as_often_as_asked(
        self, worker: SiloWorker, link: FakeLink, learner: FakeLearner
    ) -> None:
        task = evaluate_task(ONE)
        worker.handle(Assigned(task))
        worker.handle(Assigned(task))
        assert learner.evaluated == [task.id]
        assert link.messages == [("report", task.id, 3, 4)] * 2

    def test_answers_that_are_too_old_are_forgotten(
        self, link: FakeLink, learner: FakeLearner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(silo, "MAX_EVALUATIONS", 2)
        worker = SiloWorker(link, learner, MemoryBuffers())
        tasks = [replace(evaluate_task(ONE), id=str(i)) for i in range(4)]
        for task in (*tasks, tasks[3], tasks[0]):
            worker.handle(Assigned(task))
        assert learner.evaluated == ["0", "1", "2", "3", "0"]

    def test_silos_that_work_one_after_another_may_share_the_model_buffer(self, link: FakeLink) -> None:
        first = MemoryBuffers()
        second = MemoryBuffers(first.model(train_task(ONE).kind))
        for buffers in (first, second):
            SiloWorker(link, FakeLearner(), buffers).handle(Assigned(train_task(ONE)))
        assert link.fetched == [0, 1, 2]

    def test_nothing_is_said_after_the_end(self, worker: SiloWorker, link: FakeLink) -> None:
        task = train_task(ONE)
        worker.handle(Assigned(task))
        messages = list(link.messages)
        worker.handle(Finished("done"))
        worker.handle(Permit(task.id))
        assert link.messages == messages


class TestThreads:
    def test_a_run_of_rounds(self, running: Running, link: FakeLink) -> None:
        for number, model in enumerate((ONE, TWO, THREE), start=1):
            task = train_task(model, number)
            link.assign(task)
            link.await_said("push", task.id)
            assert (weights(link.updates[task.id]) == number + 1.0).all()
            link.orders.put(Dismissed(task.id, "counted"))
        link.orders.put(Finished("all rounds are committed"))
        assert running.join() == "all rounds are committed"

    def test_evaluates_while_it_trains(self, running: Running, link: FakeLink, learner: FakeLearner) -> None:
        scored = threading.Event()
        learner.at_step = lambda task, step: _assert_set(scored)
        link.assign(train_task(ONE))
        link.assign(evaluate_task(TWO))
        link.await_said("report", evaluate_task(TWO).id, 3, 4)
        scored.set()
        link.await_said("push", train_task(ONE).id)

    def test_a_new_train_task_stops_the_training_at_hand(
        self, running: Running, link: FakeLink, learner: FakeLearner
    ) -> None:
        first, second = train_task(ONE), train_task(TWO, 2)
        started, replaced = threading.Event(), threading.Event()

        def block(task: Task, step: int) -> None:
            if task.id == first.id and step == 2:
                started.set()
                _assert_set(replaced)

        learner.at_step = block
        link.assign(first)
        _assert_set(started)
        link.assign(second)
        link.assign(evaluate_task(THREE))
        link.await_said("report", evaluate_task(THREE).id, 3, 4)  # the orders before it were taken
        replaced.set()
        link.await_said("push", second.id)
        assert learner.trained == [second.id]
        assert ("announce", first.id) not in link.messages

    def test_an_upload_of_a_replaced_task_stops_before_its_bytes_change(
        self, running: Running, link: FakeLink, learner: FakeLearner
    ) -> None:
        first, second = train_task(ONE), train_task(TWO, 2)
        uploading, go_on = threading.Event(), threading.Event()

        def block(index: int) -> None:
            if threading.current_thread().name.startswith("upload") and not uploading.is_set():
                uploading.set()
                _assert_set(go_on)

        link.before_chunk = block
        link.assign(first)
        _assert_set(uploading)
        link.assign(second)
        link.await_said("progress", second.id, 2, 2)
        assert ("announce", second.id) not in link.messages
        go_on.set()
        link.await_said("push", second.id)
        assert list(link.updates) == [second.id]
        assert (weights(link.updates[second.id]) == 3.0).all()

    def test_a_dismissed_training_stops(self, running: Running, link: FakeLink, learner: FakeLearner) -> None:
        first, second = train_task(ONE), train_task(TWO, 2)
        started, dismissed = threading.Event(), threading.Event()

        def block(task: Task, step: int) -> None:
            if task.id == first.id:
                started.set()
                _assert_set(dismissed)

        learner.at_step = block
        link.assign(first)
        _assert_set(started)
        link.orders.put(Dismissed(first.id, "late"))
        link.assign(evaluate_task(THREE))
        link.await_said("report", evaluate_task(THREE).id, 3, 4)
        dismissed.set()
        link.assign(second)
        link.await_said("push", second.id)
        assert learner.trained == [second.id]

    def test_a_dismissed_evaluation_is_left_out(self, running: Running, link: FakeLink, learner: FakeLearner) -> None:
        first, second = evaluate_task(ONE), evaluate_task(TWO)
        started, go_on = threading.Event(), threading.Event()

        def block(task: Task) -> None:
            started.set()
            _assert_set(go_on)

        learner.at_evaluation = block
        link.assign(first)
        link.assign(second)
        _assert_set(started)
        link.orders.put(Dismissed(second.id, "late"))
        link.assign(train_task(THREE))
        link.await_said("push", train_task(THREE).id)
        go_on.set()
        link.await_said("report", first.id, 3, 4)
        link.assign(evaluate_task(THREE))
        link.await_said("report", evaluate_task(THREE).id, 3, 4)
        assert second.id not in learner.evaluated

    def test_more_evaluations_than_a_silo_keeps_fail(
        self, running: Running, link: FakeLink, learner: FakeLearner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(silo, "MAX_EVALUATIONS", 1)
        go_on = threading.Event()
        learner.at_evaluation = lambda task: _assert_set(go_on)
        link.assign(evaluate_task(ONE))
        link.assign(evaluate_task(TWO))
        link.await_said("fail", evaluate_task(TWO).id, "ANC-2205")
        go_on.set()
        link.await_said("report", evaluate_task(ONE).id, 3, 4)

    def test_a_failure_that_cannot_be_reported_ends_the_silo(
        self, running: Running, link: FakeLink, learner: FakeLearner
    ) -> None:
        link.refuse["announce"] = link.refuse["fail"] = FAILURE
        link.assign(train_task(ONE))
        assert running.join() is FAILURE

    def test_a_defect_in_a_thread_ends_the_silo_with_its_traceback(self, link: FakeLink) -> None:
        class Broken(FakeLearner):
            def evaluate(self, task: Task, model: object) -> Announcement:  # type: ignore[override]
                raise ZeroDivisionError

        worker = SiloWorker(link, Broken(), MemoryBuffers(), threads=True)
        link.assign(evaluate_task(ONE))
        with pytest.raises(ZeroDivisionError):
            worker.run()
        worker.stop()
        worker.join()

    def test_closing_stops_the_work_at_hand(self, link: FakeLink, learner: FakeLearner) -> None:
        running = Running(link, learner)
        started, closing = threading.Event(), threading.Event()

        def block(task: Task, step: int) -> None:
            started.set()
            _assert_set(closing)

        learner.at_step = block
        link.assign(train_task(ONE))
        _assert_set(started)
        link.close()
        assert running.join() is None
        running.worker.stop()
        closing.set()
        running.worker.join()
        assert link.messages == []


def _chunks(data: bytes) -> list[bytes]:
    return [data[i : i + (1 << 20)] for i in range(0, len(data), 1 << 20)]


def _assert_set(event: threading.Event) -> None:
    assert event.wait(WAIT_SECONDS)
