"""A silo changes its key in the middle of a round: nothing is restarted or lost, and the old key is refused from then on."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from link_world import PATIENCE, Identities, World, announcement_of, model_of, order_of, train_task

from anchorage.api.errors import AnchorageError, transfer
from anchorage.transport.grpc.contact import Contact
from anchorage.transport.grpc.single_calls import describe, renew
from anchorage.transport.liveness import LivenessRegistry
from anchorage.transport.messages import Announced, Arrived, Assigned, Left, Permit
from anchorage.transport.pki import Registrar, SigningRequest, SiloKeys, Tokens, key_fingerprint, new_key, silo_uri
from anchorage.transport.tensors.spool import MemorySpool
from anchorage_silo.audit import AuditLog
from anchorage_silo.renewal import CertificateRenewal, ask_for_new_key

MODEL, UPDATE = model_of(3.3), model_of(3.3, seed=1)


def test_the_key_changes_in_the_middle_of_a_round(serve, dial, tmp_path: Path) -> None:
    identities = Identities(tmp_path / "pki")
    identities.server()
    keys = SiloKeys(identities.authority.folder)
    registrar = Registrar(identities.authority, Tokens(tmp_path / "tokens"), keys)
    link, port = serve(credentials=identities.files("server"), admit=keys.admits, renew=registrar.renew)
    credentials = identities.silo("a")
    keys.set_key("a", key_fingerprint(credentials.certificate.read_bytes()))
    stolen = replace(credentials, key=tmp_path / "stolen.key", certificate=tmp_path / "stolen.pem")
    stolen.key.write_bytes(credentials.key.read_bytes())
    stolen.certificate.write_bytes(credentials.certificate.read_bytes())
    address, liveness = f"127.0.0.1:{port}", LivenessRegistry()
    contact = Contact(liveness)
    silo = dial(port, "a", credentials=credentials, contact=contact)
    world, task = World(link, lambda silo: None), train_task(MODEL)
    link.offer(MODEL)
    link.assign("a", task)
    assert order_of(silo) == Assigned(task)
    silo.announce(announcement_of(task, UPDATE))
    world.events_until(Announced)

    def show() -> None:
        contact.redial()
        describe(address, credentials)

    with closing(AuditLog(tmp_path / "audit.jsonl")) as audit:
        renewal = CertificateRenewal(
            credentials,
            silo_uri("derm", "a"),
            lambda request: renew(address, credentials, request),
            audit,
            liveness,
            show_key=show,
        )
        ask_for_new_key(credentials)
        renewal.change_key()
    with pytest.raises(AnchorageError) as caught:
        describe(address, stolen)
    assert caught.value.failure is transfer.SILO_NOT_ADMITTED
    world.events_until(Left)
    assert order_of(silo) == Assigned(task)
    world.events_until(Announced)
    sink = MemorySpool(UPDATE.manifest)
    link.permit("a", task.id, sink)
    assert order_of(silo) == Permit(task.id)
    silo.push(task.id, UPDATE)
    assert world.events_until(Arrived).task == task.id and not sink.missing()


def test_a_stream_that_was_opened_with_the_old_key_ends_when_the_new_one_is_shown(serve, dial, tmp_path: Path) -> None:
    identities = Identities(tmp_path / "pki")
    identities.server()
    keys = SiloKeys(identities.authority.folder)
    _, port = serve(credentials=identities.files("server"), admit=keys.admits)
    old = identities.silo("a")
    keys.set_key("a", key_fingerprint(old.certificate.read_bytes()))
    thief = dial(port, credentials=old)
    thief.welcome()
    new = replace(old, key=tmp_path / "new.key", certificate=tmp_path / "new.pem")
    request = SigningRequest.make(new_key(new.key), silo_uri("derm", "a"))
    new.save_certificate(identities.authority.issue_silo(request, "a"))
    keys.offer("a", key_fingerprint(new.certificate.read_bytes()))
    describe(f"127.0.0.1:{port}", new)
    with pytest.raises(AnchorageError) as caught:
        thief.next_order(PATIENCE)
    assert caught.value.failure is transfer.SILO_NOT_ADMITTED
