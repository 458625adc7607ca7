"""The pace of a transfer: its rate and the time left."""

import pytest

from anchorage.transport.pace import Pace, Travel


def test_a_steady_line_has_its_rate_and_the_time_of_the_chunks_that_are_left() -> None:
    pace = Pace(10, 100.0)
    for second in range(4):
        pace.move(1_000_000, 102.0 + 2 * second)
    travel = pace.travel(108.0)
    assert travel.rate == pytest.approx(500_000, rel=0.1)
    assert travel.seconds_left == pytest.approx(6 * 1_000_000 / travel.rate)


def test_a_line_that_grows_slower_shows_within_a_minute() -> None:
    pace = Pace(100, 0.0)
    for second in range(60):
        pace.move(1_000_000, float(second + 1))
    assert pace.travel(60.0).rate == pytest.approx(1_000_000, rel=0.05)
    for step in range(6):
        pace.move(1_000_000, 70.0 + 10 * step)
    assert pace.travel(120.0).rate < 200_000


def test_nothing_is_said_of_the_time_left_before_the_first_chunk_and_in_an_outage() -> None:
    pace = Pace(10, 0.0)
    assert pace.travel(0.0) == Travel() == pace.travel(5.0)
    pace.move(1_000_000, 5.0)
    assert pace.travel(65.0).seconds_left is not None
    assert pace.travel(600.0).seconds_left is None
    assert pace.travel(4.0).rate > 0, "a clock that is read late does no harm"


def test_more_chunks_than_were_to_come_leave_nothing() -> None:
    pace = Pace(1, 0.0)
    pace.move(10, 1.0)
    pace.move(10, 2.0)
    assert pace.travel(2.0).seconds_left == 0.0


def test_transfers_both_ways_add_up() -> None:
    assert Travel(2.0, 5.0) + Travel(3.0) == Travel(5.0, 5.0)
    assert Travel(2.0, 5.0) + Travel(3.0, 7.0) == Travel(5.0, 7.0)
