"""What only a network does to a link: cuts, strangers, restarts, slow peers."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from link_world import (
    PROFILE,
    CuttingProxy,
    Identities,
    World,
    announcement_of,
    model_of,
    order_of,
    train_task,
)

from anchorage.errors import AnchorageError, identity, transfer
from anchorage.messages import Announced, Announcement, Arrived, Assigned, Finished, Joined, Left, Permit
from anchorage.pki import Authority, SigningRequest, load_key, new_key, server_uri, silo_uri
from anchorage.tensors.spool import MemorySpool
from anchorage.wire import anchorage_pb2 as pb
from anchorage.wire.calls import MAX_UP_BYTES, SESSION, TASK, path

MODEL, UPDATE = model_of(3.3), model_of(3.3, seed=1)
SEVERAL = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Gate(MemorySpool):
    """A sink that takes its first chunk only when it is opened."""

    def __init__(self, manifest) -> None:
        super().__init__(manifest)
        self.reached, self.opened = threading.Event(), threading.Event()

    def write(self, index: int, data: bytes) -> None:
        self.reached.set()
        assert self.opened.wait(20)
        super().write(index, data)


class Counting:
    """A source that counts the chunks that were read."""

    def __init__(self, model) -> None:
        self.manifest, self._model = model.manifest, model
        self.read = 0
        self.changed = threading.Condition()

    def chunk(self, index: int) -> bytes:
        with self.changed:
            self.read += 1
            self.changed.notify_all()
        return self._model.chunk(index)

    def exceeds(self, count: int) -> bool:
        """Return whether more than so many chunks are read within half a second."""
        with self.changed:
            return self.changed.wait_for(lambda: self.read > count, 0.5)


@pytest.fixture
def proxied(serve, dial) -> Iterator[tuple[World, CuttingProxy]]:
    link, port = serve()
    proxy, silos = CuttingProxy(port), []

    def connect(silo: str):
        silos.append(dial(proxy.port, silo))
        return silos[-1]

    yield World(link, connect), proxy
    for silo in silos:
        silo.close()
    proxy.close()


def play(world: World, silo, number: int) -> MemorySpool:
    """Play a silo's part and the server's in one round, each in its thread."""
    task, update, model = train_task(MODEL, number), MemorySpool(UPDATE.manifest), MemorySpool(MODEL.manifest)

    def work() -> None:
        while True:
            match silo.next_order(20):
                case Assigned(given) if given == task:
                    silo.fetch(task.model, model)
                    silo.announce(announcement_of(task, UPDATE))
                case Permit(task.id):
                    silo.push(task.id, UPDATE)
                    return

    thread = threading.Thread(target=work)
    thread.start()
    world.link.assign("a", task)
    while True:
        match world.event():
            case Announced("a", Announcement(task=task.id)):
                world.link.permit("a", task.id, update)
            case Arrived("a", task.id):
                break
    thread.join(20)
    assert not thread.is_alive()
    assert not model.missing()
    world.link.dismiss("a", task.id, "Counted")
    return update


@SEVERAL
@given(after=st.integers(0, 8_000_000), again=st.integers(0, 5_000_000))
def test_a_round_goes_on_after_cuts_at_any_byte(proxied, after: int, again: int) -> None:
    world, proxy = proxied
    world.link.offer(MODEL)
    proxy.cut_next(after, again)
    silo = world.connect("a")
    update = play(world, silo, number=after + 1)
    assert not update.missing()
    silo.close()
    while not isinstance(world.event(), Left):
        pass


@pytest.mark.parametrize("after", [1_500_000, 2_800_000])
def test_what_arrived_before_a_cut_is_not_sent_again(proxied, after: int) -> None:
    world, proxy = proxied
    world.link.offer(MODEL)
    proxy.cut_next(after)
    silo, task = world.connect("a"), train_task(MODEL)
    world.link.assign("a", task)
    written: list[int] = []

    class Noting(MemorySpool):
        def write(self, index: int, data: bytes) -> None:
            written.append(index)
            super().write(index, data)

    assert order_of(silo) == Assigned(task)
    silo.fetch(task.model, Noting(task.model))
    assert written == [0, 1, 2, 3]


def test_a_restarted_server_hears_the_announcement_again(serve, dial) -> None:
    first, port = serve()
    world = World(first, lambda silo: dial(port, silo))
    silo, task = world.connect("a"), train_task(MODEL)
    first.assign("a", task)
    assert order_of(silo) == Assigned(task)
    silo.announce(announcement_of(task, UPDATE))
    assert world.events_until(Announced).announcement.task == task.id
    first.permit("a", task.id, MemorySpool(UPDATE.manifest))
    assert order_of(silo) == Permit(task.id)
    first.stop(0)
    pushing = threading.Thread(target=silo.push, args=(task.id, UPDATE))
    pushing.start()
    world.link, _ = serve(listen=f"127.0.0.1:{port}")
    assert world.event() == Joined("a", PROFILE)
    assert world.events_until(Announced).announcement.update == UPDATE.manifest
    world.link.assign("a", task)
    sink = MemorySpool(UPDATE.manifest)
    world.link.permit("a", task.id, sink)
    assert world.events_until(Arrived) == Arrived("a", task.id)
    pushing.join(20)
    assert not sink.missing()
    world.link.finish("over")
    assert [type(order_of(silo)) for _ in range(3)][-1] is Finished


def test_a_report_made_while_away_is_delivered(serve, dial) -> None:
    first, port = serve()
    silo = dial(port)
    silo.welcome()
    first.stop(0)
    silo.fail("1-Train-x", "ANC-1301", "loss is nan")
    assert silo._unheard
    link, _ = serve(listen=f"127.0.0.1:{port}")
    world = World(link, lambda _: silo)
    assert world.event() == Joined("a", PROFILE)
    deadline = time.monotonic() + 20
    while silo._unheard and time.monotonic() < deadline:
        link.next_event(time.time() + 0.02)
    assert not silo._unheard


def test_a_slow_silo_holds_few_chunks_of_a_download(serve, dial) -> None:
    link, port = serve()
    model = model_of(48)
    source, task = Counting(model), train_task(model)
    link.offer(source)
    link.assign("a", task)
    silo, sink = dial(port), Gate(model.manifest)
    assert order_of(silo) == Assigned(task)
    thread = threading.Thread(target=silo.fetch, args=(task.model, sink))
    thread.start()
    assert sink.reached.wait(20)
    assert not source.exceeds(16)
    sink.opened.set()
    thread.join(20)
    assert not sink.missing()


def test_a_slow_server_holds_few_chunks_of_an_upload(serve, dial) -> None:
    link, port = serve()
    world, model = World(link, lambda silo: dial(port, silo)), model_of(48)
    silo, task, source, sink = world.connect("a"), train_task(MODEL), Counting(model), Gate(model.manifest)
    link.assign("a", task)
    assert order_of(silo) == Assigned(task)
    silo.announce(announcement_of(task, model))
    link.permit("a", task.id, sink)
    assert order_of(silo) == Permit(task.id)
    thread = threading.Thread(target=silo.push, args=(task.id, source))
    thread.start()
    assert sink.reached.wait(20)
    assert not source.exceeds(16)
    sink.opened.set()
    thread.join(20)
    assert world.events_until(Arrived) == Arrived("a", task.id)


def test_a_transfer_that_stands_still_is_tried_again(serve, dial) -> None:
    link, port = serve(idle_timeout_seconds=0.2)
    model = model_of(48)
    source, task = Counting(model), train_task(model)
    link.offer(source)
    link.assign("a", task)
    silo, sink = dial(port), Gate(model.manifest)
    assert order_of(silo) == Assigned(task)
    thread = threading.Thread(target=silo.fetch, args=(task.model, sink))
    thread.start()
    assert sink.reached.wait(20)
    session = link.session("a", silo._connection.session)
    deadline = time.monotonic() + 20
    while session._transfers and time.monotonic() < deadline:
        link.next_event(time.time() + 0.02)
    assert not session._transfers
    sink.opened.set()
    thread.join(20)
    assert not sink.missing()


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
    wanted = pb.Wanted(model=MODEL.digest, chunks=[0]).SerializeToString()
    coming = pb.Wanted(model=UPDATE.digest, chunks=[0]).SerializeToString()
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
        unknown = pb.Wanted(model=MODEL.digest, chunks=[0]).SerializeToString()
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
    _, port = serve(admit=lambda silo: silo != "a")
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


def test_a_port_in_use_has_its_own_code(serve) -> None:
    _, port = serve()
    with pytest.raises(AnchorageError) as caught:
        serve(listen=f"127.0.0.1:{port}")
    assert caught.value.failure is transfer.CANNOT_LISTEN


def test_a_server_that_is_not_there_is_waited_for(serve, dial) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    silo = dial(port)
    assert silo.next_order(0.1) is None
    link, _ = serve(listen=f"127.0.0.1:{port}")
    assert link.next_event(time.time() + 20) == Joined("a", PROFILE)
    assert silo.welcome()
