"""Tokens that are refused: delays that grow, a line a minute and address, and room for no more addresses and names than are bounded."""

import logging
from collections.abc import Callable

import pytest

from anchorage.api.errors import AnchorageError, Failure, identity
from anchorage.transport.pki import refused_tokens
from anchorage.transport.pki.refused_tokens import (
    FORGOTTEN_SECONDS,
    FREE,
    LONGEST_SECONDS,
    MOST_ADDRESSES,
    MOST_LINES,
    MOST_NAMES,
    RefusedTokens,
)

HOSPITAL = "192.0.2.7"
RIGHT = "right"


class Server:
    """A server with a clock, where one token is right; counts the tokens that were looked at."""

    def __init__(self) -> None:
        self.now, self.looked, self.answer = 1000.0, 0, identity.TOKEN_UNKNOWN
        self.tokens = RefusedTokens(now=lambda: self.now)

    def show(self, token: str, silo: str = "a", address: str = HOSPITAL) -> Failure | None:
        """Show a token; return the failure, None for a certificate."""

        def enrol() -> bytes:
            self.looked += 1
            if token == RIGHT:
                return b"certificate"
            raise AnchorageError(self.answer, "no")

        try:
            assert self.tokens.ask(address, silo, token, enrol) == b"certificate"
        except AnchorageError as error:
            return error.failure
        return None

    def guess(self, times: int, name: Callable[[int], str] = lambda number: "a", address: str = HOSPITAL) -> int:
        """Show wrong tokens; return how many of them were looked at."""
        before = self.looked
        for number in range(times):
            self.show(f"guess {number}", name(number), address)
        return self.looked - before


@pytest.fixture
def server() -> Server:
    return Server()


def test_delays_grow_to_a_minute(server: Server) -> None:
    assert server.guess(100) == FREE + 1
    delays = []
    for _ in range(9):
        began = server.now
        while server.show("wrong") is identity.TOO_MANY_REQUESTS:
            server.now += 1
        delays.append(server.now - began)
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_however_many_are_refused_the_delay_stays(server: Server) -> None:
    for _ in range(2000):
        server.now += LONGEST_SECONDS
        assert server.show("wrong") is identity.TOKEN_UNKNOWN
    assert server.tokens.count == 2000


def test_the_message_says_when_to_try_again(server: Server) -> None:
    server.guess(FREE + 3)
    server.now += 2
    server.guess(1)
    server.now += 0.5
    with pytest.raises(AnchorageError, match=r"5 tokens that silo a .* try again in 2 s$") as raised:
        server.tokens.ask(HOSPITAL, "a", RIGHT, lambda: b"")
    assert raised.value.failure is identity.TOO_MANY_REQUESTS


def test_early_requests_do_not_lengthen_the_delay(server: Server) -> None:
    server.guess(FREE + 1)
    for _ in range(50):
        server.now += 0.01
        assert server.show(RIGHT) is identity.TOO_MANY_REQUESTS
    server.now += 0.6
    assert server.show(RIGHT) is None


def test_a_hospital_at_the_same_address_joins_at_once_or_within_a_minute(server: Server) -> None:
    for _ in range(50):
        server.now += LONGEST_SECONDS
        server.guess(10, lambda number: f"name {number}")
        server.guess(10)
    assert server.show(RIGHT, "its own name", "192.0.2.8") is None
    assert server.show(RIGHT) is identity.TOO_MANY_REQUESTS
    server.now += LONGEST_SECONDS
    assert server.show(RIGHT) is None


def test_a_silo_that_joined_is_as_if_new(server: Server) -> None:
    server.guess(FREE + 7)
    server.now += LONGEST_SECONDS
    assert server.show(RIGHT) is None
    assert server.guess(100) == FREE + 1


def test_another_name_at_the_address_is_not_held_up(server: Server) -> None:
    server.guess(100)
    assert server.show(RIGHT, "b") is None


def test_many_names_do_not_get_around_the_delay(server: Server) -> None:
    looked = server.guess(10_000, lambda number: f"silo-{number}")
    assert looked <= MOST_NAMES + FREE + 1
    server.now += LONGEST_SECONDS
    for minute in range(20):
        server.now += LONGEST_SECONDS
        looked = server.guess(1000, lambda number, minute=minute: f"silo-{minute}-{number}")
        assert looked <= MOST_NAMES + FREE + 1


def test_what_was_long_ago_is_forgotten(server: Server) -> None:
    server.guess(FREE + 5)
    server.now += FORGOTTEN_SECONDS + 1
    assert server.guess(100) == FREE + 1


def test_memory_is_bounded(server: Server) -> None:
    for number in range(3 * MOST_ADDRESSES):
        server.guess(3 * MOST_NAMES, lambda place: "x" * 60_000 + str(place), f"address {number}")
    known = server.tokens._addresses
    assert len(known) == MOST_ADDRESSES
    assert max(len(each.silos) for each in known.values()) <= MOST_NAMES + 1
    assert max(len(name) for each in known.values() for name in each.silos) <= 64


@pytest.mark.parametrize("token", ["", RIGHT])
def test_no_token_and_a_right_one_count_nothing(server: Server, token: str, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(50):
        server.show(token)
    assert (server.looked, server.tokens.count, caplog.records) == (50, 0, [])


def test_a_request_that_does_not_fit_is_no_guess(server: Server) -> None:
    server.answer = identity.REQUEST_REFUSED
    assert server.guess(50) == 50
    assert server.tokens.count == 0


def test_one_token_may_wait_for_its_answer_and_guesses_may_not(server: Server) -> None:
    server.answer = identity.ENROLMENT_PENDING
    for _ in range(50):
        assert server.show("one") is identity.ENROLMENT_PENDING
    assert server.tokens.count == 0
    assert server.guess(100) == FREE + 1


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int, str, str]]:
    return [(r.address, r.refused, r.silo, r.code) for r in caplog.records]  # type: ignore[attr-defined]


def test_a_line_a_minute_and_address(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, refused_tokens.__name__):
        for second in range(180):
            server.show("wrong", f"\x1b[2Jsilo{second}")
            server.show("wrong", "b", "2001:db8::/64")
            server.now += 1
    all_lines = lines(caplog)
    for address in (HOSPITAL, "2001:db8::/64"):
        own_lines = [line for line in all_lines if line[0] == address]
        assert len(own_lines) == 3
        assert own_lines[0][1] == 1
        assert own_lines[1][1] > 1
    assert all_lines[0] == (HOSPITAL, 1, " [2Jsilo0", "ANC-2001")


def test_lines_of_many_addresses_are_bounded_and_lose_no_number(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, refused_tokens.__name__):
        for number in range(1000):
            server.guess(1, address=f"address {number}")
        assert len(caplog.records) == MOST_LINES
        server.now += 60
        server.guess(1, address="address 999")
    assert lines(caplog)[-1][:2] == ("address 999", 2)
    assert server.tokens.count == 1001
