"""Keys are handed out once, when they are due, and never in a hot loop."""

import threading
import time

import pytest
from fake_api.clock import Clock

from anchorage_operator.work_queue import JITTER, RETRY, WorkQueue


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def queue(clock):
    return WorkQueue(clock, spread=lambda: 0.5)


def test_a_key_that_is_added_often_is_handed_out_once(queue):
    for _ in range(5):
        queue.add("a")
    assert (queue.take(), queue.take()) == ("a", None)


def test_keys_come_in_the_order_in_which_they_are_due(queue, clock):
    queue.add("late", delay=2.0)
    queue.add("soon", delay=1.0)
    queue.add("now")
    assert [queue.take(), queue.take()] == ["now", None]
    clock.advance(2.0)
    assert [queue.take(), queue.take()] == ["soon", "late"]


def test_the_earliest_of_the_times_asked_for_counts(queue, clock):
    queue.add("a", delay=5.0)
    queue.add("a", delay=1.0)
    queue.add("a", delay=9.0)
    clock.advance(1.0)
    assert queue.take() == "a"
    queue.done("a")
    clock.advance(20.0)
    assert queue.take() is None


def test_one_worker_at_a_time_has_a_key_and_what_comes_meanwhile_is_not_lost(queue):
    queue.add("a")
    assert queue.take() == "a"
    queue.add("a")
    assert queue.take() is None
    queue.done("a", retry_after=30.0)
    assert queue.take() == "a"


def test_a_key_comes_again_after_the_time_that_was_asked_for_spread_a_little(queue, clock):
    queue.add("a")
    queue.take()
    queue.done("a", retry_after=30.0)
    clock.advance(30.0 * (1 - JITTER * 0.5) - 0.01)
    assert queue.take() is None
    clock.advance(0.02)
    assert queue.take() == "a"


def test_failures_wait_longer_and_longer_up_to_a_limit(queue, clock):
    queue.add("a")
    delays = []
    for _ in range(12):
        assert queue.take() == "a"
        delays.append(queue.failed("a"))
        assert queue.take() is None
        clock.advance(delays[-1])
    assert delays[:3] == pytest.approx(
        [RETRY.first_seconds * 1.1, 2 * RETRY.first_seconds * 1.1, 4 * RETRY.first_seconds * 1.1]
    )
    assert delays[-1] == pytest.approx(RETRY.longest_seconds * 1.1)


def test_success_ends_the_back_off(queue, clock):
    queue.add("a")
    for _ in range(5):
        queue.take()
        clock.advance(queue.failed("a"))
    queue.take()
    queue.done("a", retry_after=0.0)
    queue.take()
    assert queue.failed("a") == pytest.approx(RETRY.first_seconds * 1.1)


def test_events_do_not_shorten_a_back_off(queue, clock):
    """What a failing write stirs up must not make a hot loop."""
    queue.add("a")
    queue.take()
    queue.add("a")
    delay = queue.failed("a")
    queue.add("a")
    assert queue.take() is None
    clock.advance(delay)
    assert queue.take() == "a"


def test_the_server_s_own_wish_to_wait_is_kept(queue, clock):
    queue.add("a")
    queue.take()
    assert queue.failed("a", at_least=17.0) >= 17.0
    clock.advance(16.9)
    assert queue.take() is None


def test_depth_and_lateness(queue, clock):
    queue.add("a")
    queue.add("b", delay=60.0)
    clock.advance(10.0)
    assert (len(queue), queue.overdue()) == (1, 10.0)
    assert queue.take() == "a"
    assert len(queue) == 0
    clock.advance(5.0)
    assert queue.overdue() == 5.0  # a worker holds it
    queue.done("a")
    assert queue.overdue() == 0.0


def test_a_forgotten_key_does_not_come(queue):
    queue.add("a")
    queue.discard("a")
    assert queue.take() is None


def test_waiting_workers_are_woken_by_a_key_and_sent_home_by_closing():
    queue = WorkQueue(clock=time.monotonic)
    got = []
    done = threading.Event()

    def work():
        while (key := queue.wait()) is not None:
            got.append(key)
            queue.done(key)
            done.set()

    thread = threading.Thread(target=work)
    thread.start()
    queue.add("a", delay=0.01)
    assert done.wait(120)
    queue.close()
    thread.join(120)
    assert got == ["a"] and not thread.is_alive()


def test_a_queue_that_is_held_hands_out_nothing_and_nobody_is_late(queue, clock):
    queue.add("taken")
    assert queue.take() == "taken"
    queue.hold()
    queue.add("waits")
    clock.advance(1000.0)
    assert queue.take() is None and queue.overdue() == 1000.0
    queue.done("taken")
    assert queue.overdue() == 0.0
    queue.open()
    assert queue.overdue() == 0.0
    clock.advance(5.0)
    assert queue.overdue() == 5.0
    assert queue.take() == "waits"


def test_who_waits_at_a_held_queue_is_told_when_it_opens(queue):
    got = []
    queue.hold()
    queue.add("a")
    waiting = threading.Thread(target=lambda: got.append(queue.wait()))
    waiting.start()
    queue.open()
    waiting.join(120.0)
    assert got == ["a"]
