"""A clock that is off is named with both times: by the silo, by the server, and where it makes a certificate invalid."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from link_world import PATIENCE, Identities, World

from anchorage.api.errors import AnchorageError, identity
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc.calls import path
from anchorage.transport.grpc.contact import Contact
from anchorage.transport.grpc.enrolment import ask_time, serve_enrolment
from anchorage.transport.grpc.single_calls import describe
from anchorage.transport.liveness import LivenessRegistry
from anchorage.transport.messages import Joined
from anchorage.transport.peer_clock import PeerClock, difference
from anchorage.transport.pki import Registrar, SigningRequest, SiloKeys, Tokens, load_key, server_uri
from anchorage.transport.versions import PROTOCOL
from anchorage_silo.audit import AuditLog
from anchorage_silo.config import SiloConfig
from anchorage_silo.enrolment import ensure_enrolled, explain
from anchorage_silo.server_retry import ServerRetry
from anchorage_silo.state import AgentState

DAY = 86_400.0
HOUR = 3_600.0


def at(offset: float) -> Callable[[], float]:
    return lambda: time.time() + offset


def enrolment_of(folder: Path, identities: Identities, port: int) -> SiloConfig:
    """Give a silo's configuration, with a token that may be used once."""
    tokens = Tokens(folder / "tokens")
    (folder / "token").write_text(tokens.create("a"))
    return SiloConfig(
        silo="a", federation="derm", server="127.0.0.1:1", enrolment=f"127.0.0.1:{port}", labels="None",
        authority=identities.authority.certificate_path, token=folder / "token", state=folder,
        trainer={"type": "Null"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("offset", "words"), [(-2 * HOUR, "it is 120 min behind"), (40 * DAY, "it is 40 days ahead"), (240.0, "")]
)
def test_every_answer_says_the_time(serve, identities, offset: float, words: str) -> None:
    _, port = serve()
    clock = PeerClock(at(offset))
    describe(f"127.0.0.1:{port}", identities.silo("a"), None, clock)
    assert words in clock.wrong and bool(clock.wrong) == bool(words)


def test_a_refusal_says_the_time_too(serve, identities) -> None:
    _, port = serve(admit=lambda silo, key: False)
    clock = PeerClock(at(-2 * HOUR))
    with pytest.raises(AnchorageError):
        describe(f"127.0.0.1:{port}", identities.silo("a"), None, clock)
    assert "it is 120 min behind" in clock.wrong


@pytest.mark.parametrize("last_seen", ["", "-5", "1e9", "9" * 13, "999999999999", "soon"])
def test_a_time_that_is_none_is_left_out(last_seen: str) -> None:
    clock = PeerClock(lambda: 1_800_000_000.0)
    clock.note([("anchorage-time", last_seen)])
    clock.note(None)
    assert not clock.wrong
    clock.note([("anchorage-time", "1800003600")])
    assert clock.wrong == (
        "this machine's clock says 2027-01-15 08:00 UTC, the server's 2027-01-15 09:00 UTC: it is 60 min behind"
    )
    clock.note([("anchorage-time", "1800000000")])
    assert not clock.wrong


def test_five_minutes_are_tolerated() -> None:
    assert not difference(1000.0, 1300.0, "one", "other") and difference(1000.0, 1301.0, "one", "other")


def test_a_session_compares_both_clocks(serve, dial, identities) -> None:
    link, port = serve()
    world = World(link, lambda silo: None)
    contact = Contact(LivenessRegistry(), at(-DAY))
    dial(port, "a", contact=contact).welcome()
    assert "it is 1440 min behind" in contact.clock.wrong
    assert world.events_until(Joined).profile.clock == ""
    late = pb.Hello(
        labels="None", samples=1, version="0.1.0", protocol=PROTOCOL, time=int(time.time() + HOUR)
    ).SerializeToString()
    files = identities.silo("b")
    trusted, key, certificate = (file.read_bytes() for file in (files.authority, files.key, files.certificate))
    with grpc.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(trusted, key, certificate)) as channel:
        next(channel.unary_stream(path("Orders"))(late))
        assert "it is 60 min ahead" in world.events_until(Joined).profile.clock


@pytest.mark.parametrize(
    ("issued", "failure", "words"),
    [
        (5 * DAY, identity.CLOCK_OFF, "certificate is not yet valid, by the clock of this machine, which says 2"),
        (-400 * DAY, identity.CERTIFICATE_EXPIRED, "certificate has expired, by the clock of this machine, which says"),
    ],
)
def test_a_server_certificate_of_another_time_is_named(serve, tmp_path: Path, issued, failure, words) -> None:
    identities = Identities(tmp_path / "pki", now=at(-800 * DAY))
    credentials = identities.server()
    identities.authority._now = time.time
    request = SigningRequest.make(load_key(credentials.key), server_uri("derm"))
    credentials.save_certificate(identities.authority.issue_server(request, ["127.0.0.1"]))
    _, port = serve(credentials=credentials)
    silo = identities.silo("a")
    identities.authority._now = at(issued)
    credentials.save_certificate(identities.authority.issue_server(request, ["127.0.0.1"]))
    with pytest.raises(AnchorageError) as caught:
        describe(f"127.0.0.1:{port}", silo)
    assert caught.value.failure is failure and words in caught.value.message


def test_a_first_certificate_that_the_clock_makes_invalid_names_both_times(tmp_path: Path) -> None:
    identities = Identities(tmp_path / "pki", now=at(-DAY))
    server = identities.server()
    identities.authority._now = time.time
    config = enrolment_of(tmp_path, identities, 1)
    stop, port = serve_enrolment(
        "127.0.0.1:0", server, Registrar(identities.authority, Tokens(tmp_path / "tokens"), SiloKeys(tmp_path)).enrol
    )
    config = config.model_copy(update={"enrolment": f"127.0.0.1:{port}"})
    state, behind = AgentState(tmp_path / "silo.crt"), at(-2 * HOUR)
    retry = ServerRetry(PATIENCE, state)
    with closing(AuditLog(tmp_path / "audit.jsonl")) as audit:
        with pytest.raises(AnchorageError) as caught:
            ensure_enrolled(config, audit, retry, PeerClock(behind), behind)
        assert caught.value.failure is identity.CLOCK_OFF
        assert "it is 120 min behind" in caught.value.message and "this machine's clock says" in caught.value.message
        enrolment = ensure_enrolled(config, audit, retry, PeerClock(), time.time)  # the clock was set
    stop()
    assert enrolment.certificate.exists()


def test_an_expired_certificate_has_the_server_asked_for_its_time(tmp_path: Path) -> None:
    identities = Identities(tmp_path / "pki")
    asked: list[tuple[str, str]] = []

    def enrol(csr_pem: bytes, token: str, silo: str) -> bytes:
        asked.append((token, silo))
        raise AnchorageError(identity.TOKEN_UNKNOWN, "nobody's")

    stop, port = serve_enrolment("127.0.0.1:0", identities.server(), enrol)
    config = enrolment_of(tmp_path, identities, port)
    expired = AnchorageError(identity.CERTIFICATE_EXPIRED, "the certificate is valid to yesterday")
    assert explain(config, PeerClock(at(300 * DAY)), expired).failure is identity.CLOCK_OFF
    assert explain(config, PeerClock(), expired) is expired
    other = AnchorageError(identity.TOKEN_USED, "used")
    assert explain(config, PeerClock(at(300 * DAY)), other) is other
    assert asked == [("", "")] * 2
    stop()
    clock = PeerClock(at(300 * DAY))
    ask_time(config.enrolment, config.authority, None, clock)
    assert not clock.wrong and explain(config, clock, expired) is expired
