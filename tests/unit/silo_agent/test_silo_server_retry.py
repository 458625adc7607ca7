import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from anchorage.api.errors import AnchorageError, Failure, identity, transfer
from anchorage_silo.server_retry import LONGEST_PAUSE_SECONDS, TOLD_AGAIN_SECONDS, ServerRetry
from anchorage_silo.state import AgentState

LONG_SECONDS = 5 * 3600
"""Far beyond every limit here, and more pauses than their growth could be raised to the power of without overflow (1751)."""


class World:
    """A clock that only sleeping moves, and a server that answers as the tests say."""

    def __init__(self, limit: float) -> None:
        self.time = 1000.0
        self.pauses: list[float] = []
        self.calls = 0
        self.answer: Callable[[], Failure | None] = lambda: None
        self.state = AgentState(Path("silo.crt"))
        self.retry = ServerRetry(limit, self.state, lambda: self.time, self.sleep)

    def sleep(self, seconds: float) -> None:
        assert not self.state.liveness.describe_overdue()
        self.pauses.append(seconds)
        self.time += seconds

    def ask(self) -> str:
        self.calls += 1
        failure = self.answer()
        if failure is not None:
            raise AnchorageError(failure, "not now")
        return "answer"

    def waited(self) -> str:
        return self.retry.until_answered("the question", self.ask)


def until(world: World, time: float, failure: Failure) -> Callable[[], Failure | None]:
    return lambda: failure if world.time < time else None


def test_an_answer_is_not_waited_for() -> None:
    world = World(120)
    assert world.waited() == "answer" and world.pauses == []


@pytest.mark.parametrize("limit", [0, 1, 120])
@pytest.mark.parametrize("failure", [identity.ENROLMENT_PENDING, identity.TOO_MANY_REQUESTS])
def test_an_answer_that_asks_for_time_gets_all_of_it(limit: float, failure: Failure) -> None:
    world = World(limit)
    world.answer = until(world, 1000.0 + LONG_SECONDS, failure)
    assert world.waited() == "answer"
    assert max(world.pauses) == LONGEST_PAUSE_SECONDS and world.pauses[0] < 1


def test_a_server_that_does_not_answer_is_waited_for_as_long_as_configured() -> None:
    world = World(120)
    world.answer = until(world, 1100.0, transfer.SERVER_UNREACHABLE)
    assert world.waited() == "answer"
    world.answer = lambda: transfer.SERVER_UNREACHABLE
    begin = world.time
    with pytest.raises(AnchorageError) as caught:
        world.waited()
    assert caught.value.failure is transfer.SERVER_UNREACHABLE
    assert 120 - LONGEST_PAUSE_SECONDS <= world.time - begin <= 120


def test_time_for_a_decision_does_not_count_against_the_limit() -> None:
    world = World(30)
    world.answer = lambda: (
        identity.ENROLMENT_PENDING if world.time < 5000 else until(world, 5010, transfer.SERVER_UNREACHABLE)()
    )
    assert world.waited() == "answer"


@pytest.mark.parametrize("failure", [transfer.SERVER_UNREACHABLE, transfer.SILO_NOT_ADMITTED])
def test_for_ever_is_for_ever(failure: Failure) -> None:
    world = World(0)
    world.answer = until(world, 1000.0 + LONG_SECONDS, failure)
    assert world.waited() == "answer"


@pytest.mark.parametrize(
    ("limit", "failure"),
    [
        (120, transfer.SILO_NOT_ADMITTED),
        (0, identity.TOKEN_USED),
        (0, identity.NOT_APPROVED),
        (0, transfer.PROXY_REFUSED),
    ],
)
def test_a_final_refusal_is_final(limit: float, failure: Failure) -> None:
    world = World(limit)
    world.answer = lambda: failure
    with pytest.raises(AnchorageError, match="not now"):
        world.waited()
    assert world.calls == 1 and not world.state.liveness.describe_overdue()


def test_says_what_it_waits_for_but_not_every_time(caplog: pytest.LogCaptureFixture) -> None:
    world = World(0)
    caplog.set_level(logging.INFO)
    world.answer = lambda: (
        transfer.SERVER_UNREACHABLE if world.time < 1100 else until(world, 2000, identity.ENROLMENT_PENDING)()
    )
    world.waited()
    assert world.state.ready() == (False, "ANC-2009 EnrolmentPending: not now")
    messages = [record.getMessage() for record in caplog.records]
    assert messages[0] == "waiting: ANC-2159 ServerUnreachable: not now"
    assert sum("ANC-2009" in line for line in messages) in (900 // TOLD_AGAIN_SECONDS, 900 // TOLD_AGAIN_SECONDS + 1)
