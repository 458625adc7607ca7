"""Virtual time: who works when, in the same order each time."""

import threading
from collections.abc import Callable

import pytest

from anchorage.api.errors import AnchorageError
from anchorage.simulation.speeds import Speed, parse_speeds
from anchorage.simulation.virtual_time import VirtualTime

Log = list[tuple[float, str]]


def taking(time: VirtualTime, log: Log, name: str, *seconds: float) -> Callable[[], None]:
    """A job that notes its name after each of some periods."""

    def job() -> None:
        for period in seconds:
            time.spend(period)
            time.settle()
            log.append((time.now(), name))

    return job


def run_all(time: VirtualTime, until: float | None = None) -> None:
    while time.go_on(until):
        pass


def test_who_is_due_first_works_first_and_ties_go_by_name() -> None:
    time, log = VirtualTime(), Log()
    time.submit(("slow", "train"), taking(time, log, "slow", 4.0))
    time.submit(("b", "train"), taking(time, log, "b", 1.0, 1.0, 2.0))
    time.submit(("a", "train"), taking(time, log, "a", 2.0, 2.0))
    run_all(time)
    assert log == [(1.0, "b"), (2.0, "a"), (2.0, "b"), (4.0, "a"), (4.0, "b"), (4.0, "slow")]


def test_jobs_of_one_lane_wait_for_each_other_and_lanes_do_not() -> None:
    time, log = VirtualTime(), Log()
    for name, lane in (("first", "evaluate"), ("second", "evaluate"), ("training", "train")):
        time.submit(("a", lane), taking(time, log, name, 2.0))
    run_all(time)
    assert log == [(2.0, "first"), (2.0, "training"), (4.0, "second")]


def test_what_was_spent_is_not_noticed_before_it_is_settled() -> None:
    time, times = VirtualTime(), []

    def job() -> None:
        time.spend(1.0)
        time.spend(2.0)
        times.append(time.now())
        time.settle()
        times.append(time.now())

    time.submit(("a", "train"), job)
    run_all(time)
    assert times == [0.0, 3.0]


def test_time_stops_at_the_limit_and_goes_on_from_there() -> None:
    time, log = VirtualTime(10.0), Log()
    time.submit(("a", "train"), taking(time, log, "a", 5.0))
    run_all(time, 12.0)
    assert (time.now(), log) == (12.0, [])
    run_all(time, 20.0)
    assert log == [(15.0, "a")] and time.now() == 20.0


def test_a_defect_of_a_job_is_the_caller_s() -> None:
    time = VirtualTime()
    time.submit(("a", "train"), lambda: [][0])
    with pytest.raises(IndexError):
        run_all(time)


def test_what_is_suspended_ends_with_its_time() -> None:
    time, log, before = VirtualTime(), Log(), threading.active_count()
    for name in "abc":
        time.submit((name, "train"), taking(time, log, name, 1.0, 10.0))
    run_all(time, 5.0)
    assert threading.active_count() == before + 3
    time.close()
    assert threading.active_count() == before and len(log) == 3


def test_an_interrupted_job_ends_at_its_next_step() -> None:
    time, started = VirtualTime(), threading.Event()

    def job() -> None:
        while True:
            started.set()
            time.spend(0.001)

    time.submit(("a", "train"), job)
    waiting = threading.Thread(target=time.go_on, args=(None,))
    waiting.start()
    assert started.wait(120)
    time.close()
    waiting.join(120)
    assert not waiting.is_alive()


def test_speeds_by_patterns_of_which_the_last_counts() -> None:
    speeds = parse_speeds(["*=1", "cpu-*=4.5+2", "cpu-9=0"])
    assert speeds.of("gpu-1") == Speed(1.0, 0.0)
    assert speeds.of("cpu-1") == Speed(4.5, 2.0)
    assert speeds.of("cpu-9") == Speed(0.0, 0.0)
    assert parse_speeds([]).of("a") == Speed()
    speeds.check(["gpu-1", "cpu-9"])


@pytest.mark.parametrize("text", ["", "a", "a=", "=1", "a=-1", "a=1+", "a=inf", "a=nan", "a=1e3", "a=1+2+3"])
def test_a_speed_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(AnchorageError, match=r"ANC-5012 SpeedInvalid: found .* allowed is PATTERN=STEP"):
        parse_speeds([text])


def test_a_speed_that_no_silo_has_is_refused() -> None:
    with pytest.raises(AnchorageError, match="no silo's name fits 'gpu-\\*', there are a, b"):
        parse_speeds(["gpu-*=1"]).check(["a", "b"])
