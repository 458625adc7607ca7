"""What every link does, whatever carries it."""

import itertools
import threading
import time

import numpy as np
from link_steps import MODEL, OTHER, at_work, content, joined, refused, uploading
from link_world import PATIENCE, PROFILE, Behind, World, announcement_of, large_of, order_of, train_task

from anchorage.api.errors import transfer
from anchorage.engine.buffers import ModelBuffer
from anchorage.transport.messages import (
    Announced,
    Arrived,
    Assigned,
    Dismissed,
    Evaluated,
    Evaluation,
    Finished,
    Joined,
    Left,
    Permit,
    StopRequested,
    Task,
    TaskFailed,
    TaskKind,
)
from anchorage.transport.tensors.chunks import CHUNK_BYTES
from anchorage.transport.tensors.large_arrays import LargeArrays
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import MemorySpool


def test_a_round_goes_through_in_order(world: World) -> None:
    silo, task = at_work(world)
    model = MemorySpool(MODEL.manifest)
    silo.fetch(task.model, model)
    assert content(model) == b"".join(MODEL.chunks)
    silo.announce(announcement_of(task, OTHER))
    event = world.event()
    assert isinstance(event, Announced)
    assert (event.silo, event.announcement.update) == ("a", OTHER.manifest)
    np.testing.assert_array_equal(event.announcement.auxiliary_data["similarity"], [0.5, np.nan])
    update = MemorySpool(OTHER.manifest)
    world.link.permit("a", task.id, update)
    assert order_of(silo) == Permit(task.id)
    silo.push(task.id, OTHER)
    assert world.event() == Arrived("a", task.id)
    assert content(update) == b"".join(OTHER.chunks)
    assert world.link.traffic() == (OTHER.manifest.nbytes, MODEL.manifest.nbytes)
    world.link.dismiss("a", task.id, "Counted")
    assert order_of(silo) == Dismissed(task.id, "Counted")
    world.link.finish("every round is committed")
    assert order_of(silo) == Finished("every round is committed")


def test_a_task_carries_its_auxiliary_data(world: World) -> None:
    silo = joined(world)
    task = train_task(MODEL, prototypes=np.arange(6, dtype=np.float32).reshape(2, 3))
    world.link.assign("a", task)
    order = order_of(silo)
    assert isinstance(order, Assigned)
    np.testing.assert_array_equal(order.task.auxiliary_data["prototypes"], task.auxiliary_data["prototypes"])
    assert order.task.auxiliary_data["prototypes"].dtype == np.float32


def test_large_auxiliary_data_goes_both_ways_in_chunks(world: World) -> None:
    silo, sent = joined(world), Behind(MODEL, large_of(2.2, 1), OTHER, large_of(1.3, 2))
    world.link.offer(sent.down)
    world.link.assign("a", sent.task)
    order = order_of(silo)
    assert isinstance(order, Assigned) and order.task.behind == sent.pool.layout
    received = MemorySpool(order.task.model)
    silo.fetch(order.task.model, received)
    pool = LargeArrays(order.task.behind, received, MODEL.manifest.nbytes)
    np.testing.assert_array_equal(pool.rows("mean_images", 5, 99), sent.pool.arrays()["mean_images"][5:99])
    silo.announce(sent.announcement)
    event = world.event()
    assert isinstance(event, Announced) and event.announcement == sent.announcement
    spool = MemorySpool(event.announcement.update)
    world.link.permit("a", sent.task.id, spool)
    assert order_of(silo) == Permit(sent.task.id)
    silo.push(sent.task.id, sent.up)
    assert world.event() == Arrived("a", sent.task.id)
    means = LargeArrays(event.announcement.behind, spool, OTHER.manifest.nbytes)
    rows = means.layout.by_name["mean_images"].shape[0]
    np.testing.assert_array_equal(means.rows("mean_images", 0, rows), sent.means.arrays()["mean_images"])


def test_large_auxiliary_data_that_a_silo_has_is_not_sent_again(world: World) -> None:
    silo, pool = joined(world), large_of(3)
    buffer = ModelBuffer(lambda nbytes: np.zeros(nbytes, np.uint8))
    for number, model in enumerate((MODEL, OTHER), start=1):
        sent = Behind(model, pool, OTHER, pool, number)
        world.link.offer(sent.down)
        world.link.assign("a", sent.task)
        assert isinstance(order_of(silo), Assigned)
        before = world.link.traffic()[1]
        buffer.receive(sent.task.model)
        silo.fetch(sent.task.model, buffer)
        np.testing.assert_array_equal(buffer.array[MODEL.manifest.nbytes :], pool.buffer())
        total_bytes, model_bytes = sent.task.model.nbytes, -(-MODEL.manifest.nbytes // CHUNK_BYTES) * CHUNK_BYTES
        assert world.link.traffic()[1] - before == (total_bytes if number == 1 else model_bytes), (
            "but for the model's own chunks"
        )


def test_frozen_tensors_that_a_silo_has_are_not_sent_again(world: World) -> None:
    silo, layout = joined(world), Layout.of([("frozen", "F32", (400_000,)), ("head", "F32", (9,))], {"frozen"})
    buffer = ModelBuffer(lambda nbytes: np.zeros(nbytes, np.uint8))
    for number in (1, 2):
        model = ModelBytes.from_arrays(layout, {"frozen": np.ones(400_000, "f4"), "head": np.full(9, number, "f4")})
        task = train_task(model, number)
        world.link.offer(model)
        world.link.assign("a", task)
        assert order_of(silo) == Assigned(task), "with the length of its front"
        before = world.link.traffic()[1]
        buffer.receive(task.model)
        silo.fetch(task.model, buffer)
        assert buffer.array.tobytes() == model.buffer().tobytes()
        assert world.link.traffic()[1] - before == (layout.nbytes if number == 1 else 36)


def test_said_and_sent_twice_counts_once(world: World) -> None:
    silo, task, sink = uploading(world)
    silo.announce(announcement_of(task, OTHER))
    assert isinstance(world.event(), Announced)
    world.link.permit("a", task.id, sink)
    silo.push(task.id, OTHER)
    silo.push(task.id, OTHER)
    assert world.event() == Arrived("a", task.id)
    assert world.link.traffic()[0] == OTHER.manifest.nbytes
    world.link.permit("a", task.id, sink)
    assert world.link.next_event(time.time()) is None


def test_another_train_task_replaces_the_open_one(world: World) -> None:
    silo, task, sink = uploading(world)
    newer = train_task(OTHER, 2)
    world.link.offer(OTHER)
    world.link.assign("a", newer)
    assert order_of(silo) == Assigned(newer)
    refused(transfer.UNKNOWN_TASK, silo.push, task.id, OTHER)
    refused(transfer.MODEL_NOT_OFFERED, silo.fetch, task.model, MemorySpool(task.model))
    assert len(sink.missing()) == 3
    silo.fetch(newer.model, MemorySpool(newer.model))


def test_a_dismissed_upload_stops(world: World) -> None:
    silo, task, sink = uploading(world)
    sending, dismissed = threading.Event(), threading.Event()

    class Slow:
        manifest = OTHER.manifest

        def chunk(self, index: int) -> bytes:
            if index == 1:
                sending.set()
                dismissed.wait(120)
            return OTHER.chunk(index)

    def dismiss() -> None:
        sending.wait(120)
        world.link.dismiss("a", task.id, "Late")
        dismissed.set()

    thread = threading.Thread(target=dismiss)
    thread.start()
    refused(transfer.UNKNOWN_TASK, silo.push, task.id, Slow())
    thread.join()
    assert {1, 2} <= set(sink.missing())
    assert order_of(silo) == Dismissed(task.id, "Late")


def test_evaluate_tasks_queue_beside_training(world: World) -> None:
    silo, task = at_work(world)
    world.link.offer(OTHER)
    scores = [Task(f"1-Evaluate-{i}", TaskKind.EVALUATE, 1, OTHER.manifest) for i in range(2)]
    for score in scores:
        world.link.assign("a", score)
    assert [order_of(silo), order_of(silo)] == [Assigned(score) for score in scores]
    silo.fetch(OTHER.manifest, MemorySpool(OTHER.manifest))
    for score in scores:
        silo.report(Evaluation(score.id, {"validation": np.array([[3, 1], [0, 4]])}))
        event = world.event()
        assert isinstance(event, Evaluated)
        assert event.evaluation.task == score.id
        np.testing.assert_array_equal(event.evaluation.tally["validation"], [[3, 1], [0, 4]])
    silo.report(Evaluation(scores[0].id, {"validation": np.array([1, 2])}))
    assert world.link.next_event(time.time()) is None
    silo.fetch(task.model, MemorySpool(task.model))


def test_a_failed_task_may_be_given_again(world: World) -> None:
    silo, task = at_work(world)
    silo.fail(task.id, "ANC-1301", "loss is nan")
    assert world.event() == TaskFailed("a", task.id, "ANC-1301", "loss is nan")
    silo.fail(task.id, "ANC-1301", "loss is nan")
    assert world.link.next_event(time.time()) is None
    world.link.assign("a", task)
    assert order_of(silo) == Assigned(task)


def test_a_silo_sees_only_its_own(world: World) -> None:
    _, task, sink = uploading(world, "a")
    other = joined(world, "b")
    refused(transfer.MODEL_NOT_OFFERED, other.fetch, task.model, MemorySpool(task.model))
    refused(transfer.UNKNOWN_TASK, other.push, task.id, OTHER)
    assert len(sink.missing()) == 3


def test_a_withdrawn_model_is_not_sent(world: World) -> None:
    silo, task = at_work(world)
    world.link.withdraw(MODEL.digest)
    refused(transfer.MODEL_NOT_OFFERED, silo.fetch, task.model, MemorySpool(task.model))


def test_a_silo_that_comes_back_is_given_its_task_again(world: World) -> None:
    silo, task, sink = uploading(world)
    silo.close()
    assert isinstance(world.event(), Left)
    silo = joined(world)
    assert order_of(silo) == Assigned(task)
    silo.announce(announcement_of(task, OTHER))
    assert order_of(silo) == Permit(task.id)
    assert isinstance(world.event(), Announced)
    silo.push(task.id, OTHER)
    assert world.event() == Arrived("a", task.id)
    assert not sink.missing()


def test_what_was_ordered_while_a_silo_was_away_is_its_first_order(world: World) -> None:
    task = train_task(MODEL)
    world.link.offer(MODEL)
    world.link.assign("a", task)
    silo = joined(world)
    assert order_of(silo) == Assigned(task)
    silo.fetch(task.model, MemorySpool(task.model))


def test_an_announcement_for_an_unknown_task_is_the_engines_to_judge(world: World) -> None:
    silo = joined(world)
    strange = train_task(MODEL, 9)
    silo.announce(announcement_of(strange, OTHER))
    event = world.event()
    assert isinstance(event, Announced)
    assert event.announcement.task == strange.id
    world.link.dismiss("a", strange.id, "not part of this round")
    assert order_of(silo) == Dismissed(strange.id, "not part of this round")


def test_a_second_connection_takes_the_place_of_the_first(world: World) -> None:
    first, task = at_work(world)
    second = world.connect("a")
    assert second.welcome()
    assert world.event() == Joined("a", PROFILE)
    refused(transfer.SESSION_REPLACED, first.next_order, 10)
    assert order_of(second) == Assigned(task)
    first.close()
    second.fetch(task.model, MemorySpool(task.model))
    assert world.link.next_event(time.time()) is None


def test_an_expelled_silo_loses_its_session(world: World) -> None:
    silo, task, sink = uploading(world)
    world.link.expel("a", "revoked")
    refused(transfer.SILO_NOT_ADMITTED, silo.next_order, 10)
    event = world.event()
    assert isinstance(event, Left)
    assert "revoked" in event.reason
    refused(transfer.SILO_NOT_ADMITTED, silo.push, task.id, OTHER)
    assert len(sink.missing()) == 3


def test_a_finished_run_is_finished_for_those_who_come_later(world: World) -> None:
    world.link.assign("a", train_task(MODEL))
    world.link.finish("every round is committed")
    assert order_of(world.connect("a")) == Finished("every round is committed")


def test_events_that_nobody_reads_stay_few(world: World) -> None:
    silo, task = at_work(world)
    for done in range(500):
        silo.progress(task.id, done, 500)
        silo.announce(announcement_of(task, None)) if done % 50 == 0 else None
    assert len(world.link._events) <= 2


def test_the_answer_to_progress_tells_the_committed_steps(world: World) -> None:
    silo, task = at_work(world)
    assert silo.progress(task.id, 0, 10**9) == 0
    world.link.publish_steps(2**40)
    until = time.monotonic() + PATIENCE
    answers = (silo.progress(task.id, done, 10**9) for done in itertools.count(1))
    assert next(steps for steps in answers if steps or time.monotonic() > until) == 2**40


def test_waiting_ends(world: World) -> None:
    assert world.link.next_event(time.time() - 1) is None
    silo = joined(world)
    assert silo.next_order(0.01) is None
    world.link.request_stop("SIGTERM")
    assert world.event() == StopRequested("SIGTERM")
    waiting = threading.Thread(target=silo.next_order, args=(None,))
    waiting.start()
    silo.close()
    waiting.join(120)
    assert not waiting.is_alive()
