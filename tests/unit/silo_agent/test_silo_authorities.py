"""Whom an agent trusts: the authority of its configuration, then those that it comes to trust through it."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from anchorage.api.errors import AnchorageError, transfer
from anchorage.transport.pki import Authority, Credentials, SigningRequest, new_key, silo_uri
from anchorage.transport.pki.succession import drop_previous_authority, introduce_authority
from anchorage_silo.authorities import LEARN_SECONDS, TrustedAuthorities, authorities_file, keep_authorities
from anchorage_silo.config import SiloConfig

URI = silo_uri("derm", "a")


@pytest.fixture
def config(tmp_path: Path) -> SiloConfig:
    (tmp_path / "state").mkdir()
    (tmp_path / "ca.pem").write_bytes(Authority.create(tmp_path / "authority", "derm").certificate_pem)
    return SiloConfig(
        silo="a", federation="derm", server="127.0.0.1:1", enrolment="127.0.0.1:1", labels="None",
        authority=tmp_path / "ca.pem", state=tmp_path / "state", trainer={"type": "Null"},
    )  # fmt: skip


def test_what_was_learnt_is_kept_until_another_authority_is_configured(config: SiloConfig) -> None:
    assert authorities_file(config) == config.authority
    keep_authorities(config)
    authorities = authorities_file(config)
    assert authorities.parent == config.state and authorities.read_bytes() == config.authority.read_bytes()
    authorities.write_bytes(b"learnt")
    keep_authorities(config)
    assert authorities_file(config).read_bytes() == b"learnt"
    config.authority.write_bytes(Authority.make("derm").certificate_pem)
    assert authorities_file(config) == config.authority
    config.authority.unlink()
    keep_authorities(config)
    assert authorities_file(config) == config.authority


class World:
    """A silo with a certificate of an authority, and what its server answers."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority.load(folder / "authority")
        self.trusted = folder / "trusted.pem"
        self.trusted.write_bytes(self.authority.certificate_pem)
        self.credentials = Credentials(folder / "a.key", folder / "a.pem", self.trusted)
        request = SigningRequest.make(new_key(self.credentials.key), URI)
        self.credentials.save_certificate(self.authority.issue_silo(request, "a"))
        self.served = Credentials(folder / "a.key", folder / "a.pem", self.authority.certificate_path)
        self.asked, self.time = 0, time.time()
        self.answer: Callable[[], tuple[bytes, bytes]] = self.served.read_trusted
        self.follow = TrustedAuthorities(self.credentials, "derm", URI, self.ask, lambda: self.time)

    def ask(self) -> tuple[bytes, bytes]:
        self.asked += 1
        return self.answer()

    def learn(self) -> bytes:
        self.time += LEARN_SECONDS + 1
        self.follow.learn()
        return self.trusted.read_bytes()


@pytest.fixture
def world(config: SiloConfig, tmp_path: Path) -> World:
    return World(tmp_path)


def test_asks_at_first_and_then_every_five_minutes(world: World) -> None:
    for _ in range(3):
        world.follow.learn()
    assert world.asked == 1
    world.time += LEARN_SECONDS - 1
    world.follow.learn()
    assert world.asked == 1
    world.follow.learn(at_once=True)
    assert world.asked == 2
    world.time += LEARN_SECONDS + 1
    world.follow.learn()
    assert world.asked == 3


def test_takes_a_new_authority_that_the_former_one_endorses(world: World, tmp_path: Path) -> None:
    new = introduce_authority(world.authority.folder)
    assert world.learn() == new.certificate_pem + world.authority.certificate_pem
    assert not list(tmp_path.glob("*.new"))


def test_what_cannot_be_used_changes_nothing(world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = world.trusted.read_bytes()
    world.answer = lambda: (Authority.make("derm").certificate_pem, b"")
    assert world.learn() == before and "none of the present ones endorses" in caplog.text
    caplog.clear()
    introduce_authority(world.authority.folder)
    drop_previous_authority(world.authority.folder)
    new = world.authority.current()
    world.answer = lambda: (new.certificate_pem, world.authority.endorse(new))
    assert world.learn() == before, "its own certificate is not of the new one yet"
    assert "was not issued by the authority" in caplog.text and not list(tmp_path.glob("*.new"))
    caplog.clear()

    def unreachable() -> tuple[bytes, bytes]:
        raise AnchorageError(transfer.SERVER_UNREACHABLE, "nobody there")

    world.answer = unreachable
    assert world.learn() == before and not caplog.records
