"""Pauses grow with failures in a row, up to a limit, and are spread."""

import pytest

from anchorage.transport.retry import Backoff, RetryPolicy


def pauses(policy: RetryPolicy, count: int) -> list[float]:
    return [policy.pause(failures) for failures in range(1, count + 1)]


def test_pauses_grow_up_to_the_limit() -> None:
    assert pauses(RetryPolicy(0.5, 3.0), 5) == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert pauses(RetryPolicy(0.2, 10.0, factor=1.5), 3) == pytest.approx([0.2, 0.3, 0.45])
    assert RetryPolicy(0.5, 30.0).pause(100_000) == 30.0
    assert RetryPolicy(0.001).pause(3) == 0.004


def test_the_other_sides_wish_to_wait_counts_beyond_the_limit() -> None:
    policy = RetryPolicy(1.0, 4.0)
    assert [policy.pause(1, at_least) for at_least in (0.0, 0.5, 9.0)] == [1.0, 1.0, 9.0]


@pytest.mark.parametrize(("jitter", "low", "high"), [(0.2, 8.0, 9.6), (1.0, 8.0, 16.0), (-0.5, 4.0, 8.0)])
def test_chance_adds_or_takes_away_a_share(jitter: float, low: float, high: float) -> None:
    policy = RetryPolicy(8.0, jitter=jitter)
    ends = sorted(policy.pause(1, chance=lambda drawn=drawn: drawn) for drawn in (0.0, 1.0))  # type: ignore[misc]
    assert ends == pytest.approx([low, high])
    drawn = {policy.pause(1) for _ in range(50)}
    assert len(drawn) > 1 and low <= min(drawn) and max(drawn) <= high


def test_a_success_begins_anew() -> None:
    backoff = Backoff(RetryPolicy(1.0, 4.0))
    assert [backoff.next() for _ in range(4)] == [1.0, 2.0, 4.0, 4.0]
    backoff.reset()
    assert backoff.next() == 1.0
