"""The driver of faults: what it chooses, and that its links break as they say."""

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest
from chaos_link import Link
from chaos_plan import KINDS, LIVE, LONG, LONG_SECONDS, plan
from chaos_waits import holds_at_last


def test_a_seed_chooses_the_same_faults_and_another_one_others() -> None:
    assert plan(50, 7) == plan(50, 7) != plan(50, 8)


@pytest.mark.parametrize("count", [1, 30, 50])
def test_every_kind_is_injected_before_the_plan_is_over(count: int) -> None:
    waves = plan(count, 3)
    kinds = Counter(fault.kind for wave in waves for fault in wave)
    assert kinds.total() == count and (count < len(KINDS) + 2 or kinds.keys() == set(KINDS))


def test_faults_at_once_concern_different_parts_and_none_needs_a_stopped_server() -> None:
    waves = [wave for wave in plan(300, 1) if len(wave) > 1]
    assert waves
    for wave in waves:
        assert len({fault.target for fault in wave}) == len(wave)
        assert {fault.kind for fault in wave} <= set(LIVE)


@pytest.mark.parametrize("seconds", [LONG_SECONDS, 600.0])
@pytest.mark.parametrize("kind", ["pause", *LONG])
def test_one_is_long(kind: str, seconds: float) -> None:
    lasting = [fault.seconds for wave in plan(150, 5, seconds) for fault in wave if fault.kind.startswith(kind)]
    assert len(lasting) > 3 and [each for each in lasting if each > 3] == [seconds]


@pytest.fixture
def echo() -> Iterator[Link]:
    """Give a link to a server that answers with what it hears."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        repeating = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    near, _ = listener.accept()
                    repeating.append(threading.Thread(target=repeat, args=(near,)))
                    repeating[-1].start()

        def repeat(near: socket.socket) -> None:
            with near, suppress(OSError):
                while data := near.recv(1 << 16):
                    near.sendall(data)

        serving = threading.Thread(target=serve)
        serving.start()
        link = Link(f"127.0.0.1:{listener.getsockname()[1]}")
        yield link
        link.close()
        listener.shutdown(socket.SHUT_RDWR)
        for thread in (serving, *repeating):
            thread.join(60)


def call(link: Link) -> socket.socket:
    host, _, port = link.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def test_a_link_passes_bytes_and_ends_a_connection_in_the_middle(echo: Link) -> None:
    with call(echo) as near:
        near.sendall(b"hello")
        assert near.recv(5, socket.MSG_WAITALL) == b"hello"
        echo.cut(7)
        with suppress(OSError):
            near.sendall(b"0123456789")
        assert near.recv(10, socket.MSG_WAITALL) == b"", "7 bytes reached the server, and no answer came back"
    with call(echo) as near:
        near.sendall(b"again")
        assert near.recv(5, socket.MSG_WAITALL) == b"again"


@pytest.mark.parametrize("silent_end", ["server", "agent"])
def test_a_half_open_connection_says_nothing_and_another_one_works(silent_end: str, echo: Link) -> None:
    with call(echo) as near, call(echo) as other:
        other.sendall(b"x")
        assert other.recv(1) == b"x"
        near.sendall(b"hello")
        assert near.recv(5, socket.MSG_WAITALL) == b"hello"
        echo.half_open(silent_end)
        if silent_end == "agent":
            with suppress(ConnectionError):
                assert near.recv(1) == b""
        else:
            near.settimeout(0.5)
            with pytest.raises(TimeoutError):
                near.recv(1)
    with call(echo) as near:
        near.sendall(b"again")
        assert near.recv(5, socket.MSG_WAITALL) == b"again"


def test_a_blocked_link_holds_what_it_gets_until_it_is_mended(echo: Link) -> None:
    with call(echo) as near:
        near.sendall(b"a")
        assert near.recv(1) == b"a"
        echo.block()
        near.sendall(b"b")
        near.settimeout(0.5)
        with pytest.raises(TimeoutError):
            near.recv(1)
        echo.mend()
        near.settimeout(60)
        assert near.recv(1) == b"b"


def test_a_wait_lasts_as_long_as_there_is_progress_and_then_ends() -> None:
    steps, asked = iter([1, 2, 3, 3, 4]), iter([False, False, False, True])
    within = lambda holds, seconds: holds()
    assert not holds_at_last(lambda: next(asked), 5, lambda: next(steps), within)
    assert (next(steps), next(asked)) == (4, True), "it ended where two looks saw the same"
    steps, asked = iter([1, 2]), iter([False, True])
    assert holds_at_last(lambda: next(asked), 5, lambda: next(steps), within)
