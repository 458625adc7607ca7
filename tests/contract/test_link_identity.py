"""Who may do what over gRPC: certificates, authorities, sessions, malformed and oversized messages."""

import socket
import ssl
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from link_world import Identities, World, announcement_of, model_of, order_of, train_task

from anchorage.api.errors import AnchorageError, identity, transfer
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc.calls import MAX_UP_BYTES, SESSION, TASK, path
from anchorage.transport.messages import Announced, Announcement, Assigned
from anchorage.transport.pki import Authority, SigningRequest, load_key, new_key, server_uri, silo_uri
from anchorage.transport.tensors.spool import MemorySpool

MODEL, UPDATE = model_of(3.3), model_of(3.3, seed=1)


def raw(port: int, credentials) -> grpc.Channel:
    return grpc.secure_channel(
        f"127.0.0.1:{port}",
        grpc.ssl_channel_credentials(
            credentials.authority.read_bytes(), credentials.key.read_bytes(), credentials.certificate.read_bytes()
        ),
    )


def status_of(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def rejected(channel: grpc.Channel) -> bool:
    """Return whether a channel cannot even be opened."""
    with channel:
        code, _ = status_of(lambda: next(channel.unary_stream(path("Orders"))(b"")))
    return code is grpc.StatusCode.UNAVAILABLE


def test_one_silos_certificate_is_no_use_for_anothers_calls(serve, dial, identities) -> None:
    link, port = serve()
    world = World(link, lambda silo: dial(port, silo))
    silo, task = world.connect("b"), train_task(MODEL)
    link.offer(MODEL)
    link.assign("b", task)
    assert order_of(silo) == Assigned(task)
    silo.announce(announcement_of(task, UPDATE))
    world.events_until(Announced)
    sink = MemorySpool(UPDATE.manifest)
    link.permit("b", task.id, sink)
    stolen = ((SESSION, silo._connection.session), (TASK, task.id))
    wanted = pb.ChunkList(model=MODEL.digest, chunks=[0]).SerializeToString()
    coming = pb.ChunkList(model=UPDATE.digest, chunks=[0]).SerializeToString()
    with raw(port, identities.silo("a")) as channel:
        calls = [
            lambda: list(channel.unary_stream(path("Fetch"))(wanted, metadata=stolen)),
            lambda: channel.stream_unary(path("Push"))(iter([coming, UPDATE.chunk(0)]), metadata=stolen),
            lambda: channel.unary_unary(path("Lacking"))(b"", metadata=stolen),
            lambda: channel.unary_unary(path("Announce"))(b"", metadata=stolen),
            lambda: channel.unary_unary(path("Report"))(b"", metadata=stolen),
            lambda: channel.unary_unary(path("Fail"))(b"", metadata=stolen),
            lambda: channel.unary_unary(path("Progress"))(b"", metadata=stolen),
        ]
        for call in calls:
            code, details = status_of(call)
            assert code is grpc.StatusCode.FAILED_PRECONDITION
            assert details.startswith("ANC-2161 StaleSession: silo a ")
    assert len(sink.missing()) == 4
    assert link.traffic() == (0, 0)


def test_malformed_and_oversized_messages_are_refused(serve, dial, identities) -> None:
    _, port = serve()
    silo = dial(port)
    silo.welcome()
    metadata = ((SESSION, silo._connection.session),)
    with raw(port, identities.silo("a")) as channel:
        say = channel.unary_unary(path("Announce"))
        code, details = status_of(lambda: say(b"\xff\xff", metadata=metadata))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert details.startswith("ANC-2150 MalformedMessage: ")
        code, _ = status_of(lambda: say(bytes(MAX_UP_BYTES + 1), metadata=metadata))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        unknown = pb.ChunkList(model=MODEL.digest, chunks=[0]).SerializeToString()
        code, details = status_of(lambda: list(channel.unary_stream(path("Fetch"))(unknown, metadata=metadata)))
        assert code is grpc.StatusCode.NOT_FOUND
        assert details.startswith("ANC-2154 ModelNotOffered: ")
    large = Announcement("t", {"x" * MAX_UP_BYTES: 1}, {}, {}, None)
    with pytest.raises(AnchorageError, match="ANC-2151"):
        silo.announce(large)


def refusal_of(silo) -> AnchorageError:
    with pytest.raises(AnchorageError) as caught:
        silo.next_order(20)
    return caught.value


def test_a_silo_that_is_no_member_is_refused(serve, dial) -> None:
    _, port = serve(admit=lambda silo, key: silo != "a")
    refusal = refusal_of(dial(port, "a"))
    assert refusal.failure is transfer.SILO_NOT_ADMITTED
    assert "silo a" in refusal.message
    assert dial(port, "b").welcome()


def test_a_certificate_that_is_not_a_silos_is_refused(serve, identities) -> None:
    link, port = serve()
    assert rejected(raw(port, identities.files("server")))
    assert link.next_event(time.time()) is None


def test_another_authority_is_refused_on_both_sides(serve, dial, identities, tmp_path: Path) -> None:
    link, port = serve()
    others = Identities(tmp_path / "other").silo("a")
    mixed = type(others)(others.key, others.certificate, identities.silo("a").authority)
    assert refusal_of(dial(port, credentials=others)).failure is transfer.SERVER_NOT_TRUSTED
    assert refusal_of(dial(port, credentials=mixed)).failure is identity.CREDENTIALS_UNUSABLE
    assert rejected(raw(port, mixed))
    assert link.next_event(time.time()) is None


def test_an_expired_certificate_is_refused_on_both_sides(serve, dial, identities, tmp_path: Path) -> None:
    link, port = serve()
    early = Identities(tmp_path / "early", now=lambda: time.time() - 400 * 86400)
    expired = early.silo("a")
    assert refusal_of(dial(port, credentials=expired)).failure is identity.CERTIFICATE_EXPIRED
    authority = Authority.load(identities.folder / "authority")
    late = type(expired)(tmp_path / "late.key", tmp_path / "late.pem", identities.silo("a").authority)
    request = SigningRequest.make(new_key(late.key), silo_uri("derm", "a"))
    late.save_certificate(authority.issue_silo(request, "a", valid=timedelta(seconds=-60)))
    assert refusal_of(dial(port, credentials=late)).failure is identity.CERTIFICATE_EXPIRED
    assert rejected(raw(port, late))
    assert link.next_event(time.time()) is None


def test_plaintext_no_certificate_and_old_tls_are_refused(serve, identities) -> None:
    link, port = serve()
    authority = identities.silo("a").authority.read_bytes()
    anonymous = grpc.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(authority))
    assert rejected(anonymous)
    assert rejected(grpc.insecure_channel(f"127.0.0.1:{port}"))
    credentials = identities.silo("a")
    for version, agreed in ((ssl.TLSVersion.TLSv1_2, None), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):
        context = ssl.create_default_context(cafile=str(credentials.authority))
        context.load_cert_chain(credentials.certificate, credentials.key)
        context.set_alpn_protocols(["h2"])
        context.maximum_version = version
        with socket.create_connection(("127.0.0.1", port)) as plain:
            try:
                with context.wrap_socket(plain, server_hostname="127.0.0.1") as secured:
                    assert secured.version() == agreed
            except (ssl.SSLError, ConnectionError):
                assert agreed is None
    assert link.next_event(time.time()) is None


def test_certificates_rotate_without_a_restart(serve, dial, tmp_path: Path) -> None:
    identities = Identities(tmp_path / "pki")
    credentials = identities.server()
    _, port = serve(credentials=credentials)
    shown = _certificate_at(port, identities.silo("a"))
    request = SigningRequest.make(load_key(credentials.key), server_uri("derm"))
    credentials.save_certificate(identities.authority.issue_server(request, ["127.0.0.1"]))
    assert _certificate_at(port, identities.silo("a")) != shown
    assert dial(port, credentials=identities.silo("b")).welcome()


def _certificate_at(port: int, credentials) -> bytes:
    context = ssl.create_default_context(cafile=str(credentials.authority))
    context.load_cert_chain(credentials.certificate, credentials.key)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        return secured.getpeercert(binary_form=True)
