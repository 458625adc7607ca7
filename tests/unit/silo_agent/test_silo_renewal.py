import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from anchorage.api.errors import AnchorageError, identity, transfer
from anchorage.transport.pki import (
    Authority,
    Credentials,
    SigningRequest,
    key_fingerprint,
    key_to_pem,
    load_key,
    new_key,
    silo_uri,
)
from anchorage.transport.pki.credentials import read_certificate
from anchorage_silo.audit import AuditLog
from anchorage_silo.renewal import (
    CHECK_SECONDS,
    LONGEST_BACK_OFF_SECONDS,
    NEXT_KEY,
    CertificateRenewal,
    ask_for_new_key,
)
from anchorage_silo.server_retry import LONGEST_PAUSE_SECONDS
from anchorage_silo.state import AgentState

START = 1_800_000_000.0
DAY = 86_400.0
URI = silo_uri("derm", "a")
PENDING = AnchorageError(identity.ENROLMENT_PENDING, "not decided")


class World:
    """A silo with a certificate of 90 days, and a clock that only `pass_` moves."""

    def __init__(self, folder: Path) -> None:
        self.time = START
        self.authority = Authority.create(folder / "authority", "derm", now=self.now)
        self.credentials = Credentials(folder / "silo.key", folder / "silo.crt", self.authority.certificate_path)
        request = SigningRequest.make(new_key(self.credentials.key), URI)
        self.credentials.save_certificate(self.issue(request))
        self.asked: list[bytes] = []
        self.answer: Callable[[bytes], bytes] = self.issue
        self.audit = AuditLog(folder / "audit.jsonl")
        self.state = AgentState(self.credentials.certificate)
        self.shown: list[bytes] = []
        self.renewal = CertificateRenewal(
            self.credentials, URI, self.ask, self.audit, self.state.liveness, self.now, self.show
        )

    def now(self) -> float:
        return self.time

    def issue(self, request: bytes, days: float = 90) -> bytes:
        return self.authority.issue_silo(request, "a", valid=timedelta(days=days))

    def ask(self, request: bytes) -> bytes:
        self.asked.append(request)
        return self.answer(request)

    def show(self) -> None:
        self.shown.append(key_to_pem(self.credentials.read()[0]))

    def pass_(self, until: float) -> None:
        while self.time < until:
            pause = self.renewal.step()
            assert 1 <= pause <= LONGEST_BACK_OFF_SECONDS
            self.time += pause

    def refuse(self, error: AnchorageError) -> None:
        def answer(request: bytes) -> bytes:
            raise error

        self.answer = answer

    @property
    def expires(self) -> float:
        return self.credentials.expires()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.audit.close()


def test_asks_when_two_thirds_are_over_and_not_before(world: World, tmp_path: Path) -> None:
    world.pass_(START + DAY)
    world.time = START + 59 * DAY
    world.pass_(START + 60 * DAY - CHECK_SECONDS)
    assert world.asked == [] and world.expires == START + 90 * DAY
    key, before = world.credentials.key.read_bytes(), read_certificate(world.credentials.certificate)
    world.pass_(START + 60 * DAY + CHECK_SECONDS)
    assert len(world.asked) == 1 and world.expires == pytest.approx(START + 150 * DAY, abs=CHECK_SECONDS)
    assert read_certificate(world.credentials.certificate).public_key() == before.public_key()
    assert world.credentials.key.read_bytes() == key
    world.credentials.check(URI, world.now)
    world.time = START + 118 * DAY
    world.pass_(START + 119 * DAY)
    assert len(world.asked) == 1
    world.pass_(START + 121 * DAY)
    assert len(world.asked) == len(set(world.asked)) == 2
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert kinds == ["renew", "renew"]
    assert {path.name for path in tmp_path.iterdir()} == {
        "authority",
        "audit.jsonl",
        "audit.head",
        "audit.key",
        "silo.key",
        "silo.crt",
    }


def test_the_same_request_is_asked_again_until_it_is_decided(world: World) -> None:
    world.time = START + 61 * DAY
    world.refuse(PENDING)
    pauses = [world.renewal.step() for _ in range(30)]
    assert len(world.asked) == 30 and len(set(world.asked)) == 1
    assert max(pauses) <= LONGEST_PAUSE_SECONDS
    world.answer = world.issue
    world.renewal.step()
    assert world.expires == START + 151 * DAY


@pytest.mark.parametrize(
    "error",
    [
        AnchorageError(transfer.SERVER_UNREACHABLE, "nobody there"),
        AnchorageError(identity.REQUEST_REFUSED, "no"),
        AnchorageError(transfer.SILO_NOT_ADMITTED, "no"),
    ],
)
def test_a_refusal_is_asked_about_again_less_and_less_often(world: World, error: AnchorageError) -> None:
    world.time = START + 61 * DAY
    world.refuse(error)
    pauses = [world.renewal.step() for _ in range(20)]
    assert LONGEST_BACK_OFF_SECONDS / 2 <= pauses[-1] <= LONGEST_BACK_OFF_SECONDS
    world.answer = world.issue
    world.renewal.step()
    assert world.expires == START + 151 * DAY


def test_a_short_life_is_no_hot_loop(world: World) -> None:
    world.answer = lambda request: world.issue(request, days=30 / DAY)
    world.time = START + 61 * DAY
    world.credentials.save_certificate(world.issue(SigningRequest.make(new_key(world.credentials.key), URI), 30 / DAY))
    begin = world.time
    world.pass_(begin + 300)
    assert 12 <= len(world.asked) <= 15
    assert world.expires > world.time


def test_a_new_authority_has_the_certificate_renewed_at_once(world: World, tmp_path: Path) -> None:
    new = Authority.create(tmp_path / "new", "derm", now=world.now)
    world.credentials.authority.write_bytes(new.certificate_pem + world.authority.certificate_pem)
    before = world.credentials.certificate.read_bytes()
    pause = world.renewal.step()
    assert pause >= 1 and world.credentials.certificate.read_bytes() == before, "one of the former is of no use"
    world.answer = lambda request: new.issue_silo(request, "a", valid=timedelta(days=10))
    world.renewal.step()
    assert world.expires == START + 10 * DAY and len(world.asked) == 2
    world.renewal.step()
    assert len(world.asked) == 2


class TestWhatIsNoGoodIsNotTaken:
    def refused(self, world: World, answer: Callable[[bytes], bytes]) -> None:
        world.time = START + 61 * DAY
        before = world.credentials.certificate.read_bytes()
        world.answer = answer
        world.renewal.step()
        assert len(world.asked) == 1 and world.credentials.certificate.read_bytes() == before
        assert not world.credentials.certificate.with_name("silo.crt.new").exists()

    def test_another_key(self, world: World, tmp_path: Path) -> None:
        other = SigningRequest.make(new_key(tmp_path / "other.key"), URI)
        self.refused(world, lambda request: world.issue(other))

    def test_another_authority(self, world: World, tmp_path: Path) -> None:
        other = Authority.create(tmp_path / "other", "derm", now=world.now)
        self.refused(world, lambda request: other.issue_silo(request, "a"))

    def test_another_name(self, world: World) -> None:
        key = SigningRequest.make(load_key(world.credentials.key), silo_uri("derm", "b"))
        self.refused(world, lambda request: world.authority.issue_silo(key, "b"))

    def test_one_that_lasts_no_longer(self, world: World) -> None:
        self.refused(world, lambda request: world.issue(request, days=10))

    def test_no_certificate_at_all(self, world: World) -> None:
        self.refused(world, lambda request: b"sorry")

    def test_a_certificate_that_cannot_be_written(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(credentials: Credentials, pem: bytes) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Credentials, "save_certificate", full)
        self.refused(world, world.issue)


def test_nothing_is_asked_where_it_cannot_be_written_down(world: World) -> None:
    world.time = START + 61 * DAY
    world.audit.close()
    world.renewal.step()
    assert world.asked == []
    world.audit = AuditLog(world.credentials.key.parent / "audit.jsonl")


def test_a_thread_does_it_and_its_probe_sees_that(world: World) -> None:
    renewed = threading.Event()

    def answer(request: bytes) -> bytes:
        renewed.set()
        return world.issue(request)

    world.time, world.answer = START + 61 * DAY, answer
    world.renewal.start()
    assert renewed.wait(120)
    assert not world.state.liveness.describe_overdue()
    world.renewal.close()
    assert not world.state.liveness.describe_overdue() and world.expires == START + 151 * DAY


class TestANewKey:
    def test_takes_the_place_of_the_present_one_at_once(self, world: World, tmp_path: Path) -> None:
        before = world.credentials.key.read_bytes()
        ask_for_new_key(world.credentials)
        asked = (tmp_path / NEXT_KEY).read_bytes()
        ask_for_new_key(world.credentials)
        assert (tmp_path / NEXT_KEY).stat().st_mode & 0o777 == 0o600
        world.renewal.step()
        assert world.credentials.key.read_bytes() == asked != before and world.shown == [asked]
        world.credentials.check(URI, world.now)
        world.renewal.step()
        assert len(world.asked) == len(world.shown) == 1 and not (tmp_path / NEXT_KEY).exists()
        assert not (tmp_path / "silo.crt.new").exists()
        (line,) = (json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines())
        assert line["kind"] == "renew" and line["digest"] == key_fingerprint(world.asked[0])

    def test_waits_with_the_same_request_until_it_is_decided(self, world: World) -> None:
        before = world.credentials.key.read_bytes()
        ask_for_new_key(world.credentials)
        world.refuse(PENDING)
        for _ in range(5):
            world.renewal.step()
        assert len(world.asked) == 5 and len(set(world.asked)) == 1
        assert world.credentials.key.read_bytes() == before and not world.shown
        world.answer = world.issue
        world.renewal.step()
        assert len(set(world.asked)) == 1 and world.credentials.key.read_bytes() != before

    def test_is_shown_until_the_server_has_seen_it(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        ask_for_new_key(world.credentials)

        def unreachable() -> None:
            raise AnchorageError(transfer.SERVER_UNREACHABLE, "nobody there")

        monkeypatch.setattr(world.renewal, "show_key", unreachable)
        world.renewal.step()
        monkeypatch.setattr(world.renewal, "show_key", world.show)
        world.renewal.step()
        world.renewal.step()
        assert len(world.shown) == len(world.asked) == 1

    def test_a_certificate_over_another_key_is_not_taken(self, world: World, tmp_path: Path) -> None:
        ask_for_new_key(world.credentials)
        before = world.credentials.key.read_bytes(), world.credentials.certificate.read_bytes()
        other = SigningRequest.make(new_key(tmp_path / "other.key"), URI)
        world.answer = lambda request: world.issue(other)
        world.renewal.step()
        assert (world.credentials.key.read_bytes(), world.credentials.certificate.read_bytes()) == before
        assert (tmp_path / NEXT_KEY).exists() and not world.shown

    def test_may_be_signed_by_an_authority_that_was_not_heard_of_yet(self, world: World, tmp_path: Path) -> None:
        new = Authority.create(tmp_path / "new", "derm", now=world.now)

        def learn(at_once: bool) -> None:
            if at_once:
                world.credentials.authority.write_bytes(new.certificate_pem + world.authority.certificate_pem)

        world.renewal.learn = learn
        world.answer = lambda request: new.issue_silo(request, "a")
        ask_for_new_key(world.credentials)
        world.renewal.step()
        assert len(world.asked) == len(world.shown) == 1 and not (tmp_path / NEXT_KEY).exists()
        world.renewal.step()
        assert len(world.asked) == 1

    def test_comes_after_a_renewal_that_waits(self, world: World) -> None:
        world.time = START + 61 * DAY
        world.refuse(PENDING)
        world.renewal.step()
        ask_for_new_key(world.credentials)
        world.answer = world.issue
        world.renewal.step()
        assert len(world.asked) == 2 and len(world.shown) == 1
        assert world.expires == START + 151 * DAY
