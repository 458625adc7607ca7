"""A new authority while silos are connected: no stream ends, nobody is invited, and the former one is worth nothing in the end."""

import time
from contextlib import closing
from pathlib import Path

import pytest
from link_world import FEDERATION, PATIENCE, Identities, World, announcement_of, model_of, order_of, train_task

from anchorage.api.errors import AnchorageError, transfer
from anchorage.transport.grpc.single_calls import ask_authorities, describe, renew
from anchorage.transport.liveness import LivenessRegistry
from anchorage.transport.messages import Announced, Assigned, Joined
from anchorage.transport.pki import Credentials, Registrar, SiloKeys, Tokens, key_fingerprint, silo_uri
from anchorage.transport.pki.credentials import certificates_of, issuer_of, read_certificate, read_certificates
from anchorage.transport.pki.succession import drop_previous_authority, introduce_authority
from anchorage_server.access import obtain_credentials
from anchorage_silo.audit import AuditLog
from anchorage_silo.authorities import LEARN_SECONDS, TrustedAuthorities
from anchorage_silo.renewal import CertificateRenewal

MODEL, UPDATE = model_of(0.1), model_of(0.1, seed=1)


class Clock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


def test_a_new_authority_takes_the_place_of_one(serve, dial, tmp_path: Path) -> None:
    identities = Identities(tmp_path / "pki")
    authority, keys = identities.authority, SiloKeys(identities.authority.folder)
    server = obtain_credentials(tmp_path / "server", authority.former(), ["127.0.0.1"])
    registrar = Registrar(authority, Tokens(tmp_path / "tokens"), keys)
    link, port = serve(credentials=server, admit=keys.admits, renew=registrar.renew)
    enrolled, clock = identities.silo("a"), Clock()
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.certificate_path.read_bytes())
    credentials = Credentials(enrolled.key, enrolled.certificate, trusted)
    keys.set_key("a", key_fingerprint(credentials.certificate.read_bytes()))
    former = Credentials(enrolled.key, tmp_path / "former.pem", tmp_path / "former-ca.pem")
    former.certificate.write_bytes(credentials.certificate.read_bytes())
    former.authority.write_bytes(trusted.read_bytes())
    silo, world, address = dial(port, credentials=credentials), World(link, lambda silo: None), f"127.0.0.1:{port}"
    assert world.events_until(Joined).silo == "a"
    uri = silo_uri(FEDERATION, "a")
    follow = TrustedAuthorities(credentials, FEDERATION, uri, lambda: ask_authorities(address, credentials), clock)
    with closing(AuditLog(tmp_path / "audit.jsonl")) as audit:
        renewal = CertificateRenewal(
            credentials,
            uri,
            lambda request: renew(address, credentials, request),
            audit,
            LivenessRegistry(),
            clock,
            learn=follow.learn,
        )
        renewal.step()
        assert trusted.read_bytes() == authority.certificate_pem

        new = introduce_authority(authority.folder)
        clock.ahead += LEARN_SECONDS + 1
        renewal.step()
        assert trusted.read_bytes() == new.certificate_pem + authority.certificate_pem
        (signing,) = certificates_of(new.certificate_pem, "")
        assert issuer_of(read_certificate(credentials.certificate), [signing]) is not None
        assert keys.not_signed_by(key_fingerprint(new.certificate_pem), ["a"]) == []
        assert describe(address, credentials) == describe(address, former), "both are trusted"

        drop_previous_authority(authority.folder)
        assert describe(address, credentials), "the server goes on with what fits"
        obtain_credentials(tmp_path / "server", authority.former(), ["127.0.0.1"])
        assert issuer_of(read_certificate(server.certificate), [signing]) is not None
        assert describe(address, credentials)
        clock.ahead += LEARN_SECONDS + 1
        renewal.step()
    assert read_certificates(trusted) == [signing]
    with pytest.raises(AnchorageError) as caught:
        describe(address, former)
    assert caught.value.failure is transfer.SERVER_NOT_TRUSTED
    task = train_task(MODEL)
    link.offer(MODEL)
    link.assign("a", task)
    assert order_of(silo) == Assigned(task)
    silo.announce(announcement_of(task, UPDATE))
    assert isinstance(link.next_event(time.time() + PATIENCE), Announced), "the session is the first one"
    assert dial(port, credentials=credentials).welcome()
