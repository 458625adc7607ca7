"""What only a network does to a link: cuts, strangers, restarts, slow peers."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ipv6 import needs_ipv6
from link_world import (
    PROFILE,
    Behind,
    CuttingProxy,
    World,
    announcement_of,
    large_of,
    model_of,
    order_of,
    train_task,
)

from anchorage.api.errors import AnchorageError, transfer
from anchorage.api.federation import Protocol
from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.silo import SiloWorker
from anchorage.transport.grpc import client as grpc_client
from anchorage.transport.grpc import server as grpc_server
from anchorage.transport.grpc.calls import CHANNEL_OPTIONS, UPLOAD_WINDOW_BYTES
from anchorage.transport.grpc.narrow_path import route_to
from anchorage.transport.grpc.single_calls import describe
from anchorage.transport.grpc.watchdog import Watchdog
from anchorage.transport.messages import Announced, Announcement, Arrived, Assigned, Finished, Joined, Left, Permit
from anchorage.transport.tensors.chunks import CHUNK_BYTES
from anchorage.transport.tensors.large_arrays import LargeArrays
from anchorage.transport.tensors.spool import MemorySpool, SpoolFile
from anchorage_silo.null_learner import NullLearner

MODEL, UPDATE = model_of(3.3), model_of(3.3, seed=1)
SEVERAL = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Gate(MemorySpool):
    """A sink that takes its first chunk only when it is opened."""

    def __init__(self, manifest) -> None:
        super().__init__(manifest)
        self.reached, self.opened = threading.Event(), threading.Event()

    def write(self, index: int, data: bytes) -> None:
        self.reached.set()
        assert self.opened.wait(120)
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
                case Assigned(assigned) if assigned == task:
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
    thread.join(120)
    assert not thread.is_alive()
    assert not model.missing()
    world.link.dismiss("a", task.id, "Counted")
    return update


@SEVERAL
@given(after=st.integers(0, 8_000_000), second=st.integers(0, 5_000_000))
def test_a_round_goes_on_after_cuts_at_any_byte(proxied, after: int, second: int) -> None:
    world, proxy = proxied
    world.link.offer(MODEL)
    proxy.cut_next(after, second)
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


@pytest.mark.parametrize("cut", [2_900_000, 4_500_000])
def test_large_auxiliary_data_goes_on_after_a_cut(proxied, tmp_path, cut: int) -> None:
    world, proxy = proxied
    sent = Behind(MODEL, large_of(2.2, 1), UPDATE, large_of(2.4, 2))
    written: dict[str, list[int]] = {"down": [], "up": []}

    class Noting(SpoolFile):
        def write(self, index: int, data: bytes) -> None:
            super().write(index, data)
            written[self.path.name].append(index)

    world.link.offer(sent.down)
    proxy.cut_next(cut, cut)
    silo = world.connect("a")
    world.link.assign("a", sent.task)
    assert isinstance(order_of(silo), Assigned)
    down = Noting(tmp_path / "down", sent.task.model)
    silo.fetch(sent.task.model, down)
    silo.announce(sent.announcement)
    world.events_until(Announced)
    up = Noting(tmp_path / "up", sent.announcement.update)
    world.link.permit("a", sent.task.id, up)
    while order_of(silo) != Permit(sent.task.id):
        pass
    pushing = threading.Thread(target=silo.push, args=(sent.task.id, sent.up))
    pushing.start()
    assert world.events_until(Arrived) == Arrived("a", sent.task.id)
    pushing.join(120)
    assert not pushing.is_alive() and len(proxy._cuts) == 0, "both connections were cut"
    assert written["down"] == [*range(6)], "no chunk came twice"
    assert sorted(written["up"]) == [*range(6)] and not up.missing()
    for file, layout, large in ((down, MODEL, sent.pool), (up, UPDATE, sent.means)):
        received = LargeArrays(large.layout, file, layout.manifest.nbytes)
        rows = large.layout.by_name["mean_images"].shape[0]
        np.testing.assert_array_equal(received.rows("mean_images", 0, rows), large.arrays()["mean_images"])
        file.close()


class CountingLearner(NullLearner):
    """A null trainer that counts its trainings."""

    trained = 0

    def train(self, *arguments: Any) -> Announcement:
        self.trained += 1
        return super().train(*arguments)


@pytest.mark.parametrize("cut", [4_500_000, 6_500_000])
def test_an_upload_goes_on_after_a_cut_without_another_training(proxied, cut: int) -> None:
    world, proxy = proxied
    task, learner = train_task(MODEL), CountingLearner(MODEL.layout, MODEL.layout, 0.5, 7)
    sink = MemorySpool(MODEL.manifest)  # the null trainer leaves numbers that are no floats as they are
    world.link.offer(MODEL)
    world.link.assign("a", task)
    proxy.cut_next(cut)
    worker = SiloWorker(world.connect("a"), learner, MemoryBuffers(), threads=True)
    thread = threading.Thread(target=worker.run)
    thread.start()
    while not isinstance(event := world.event(), Arrived):
        if isinstance(event, Announced):
            world.link.permit("a", task.id, sink)
    assert not sink.missing() and not proxy._cuts
    nbytes = sink.manifest.nbytes
    assert nbytes <= world.link.traffic()[0] <= nbytes + CHUNK_BYTES, "at most the chunk at the cut came twice"
    world.link.finish("over")
    thread.join(120)
    worker.stop()
    worker.join()
    assert not thread.is_alive() and learner.trained == 1


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
    pushing.join(120)
    assert not sink.missing()
    world.link.finish("over")
    assert [type(order_of(silo)) for _ in range(3)][-1] is Finished


def test_a_report_made_while_away_is_delivered(serve, dial) -> None:
    first, port = serve()
    silo = dial(port)
    silo.welcome()
    first.stop(0)
    silo.fail("1-Train-x", "ANC-1301", "loss is nan")
    assert silo._unreceived
    link, _ = serve(listen=f"127.0.0.1:{port}")
    world = World(link, lambda _: silo)
    assert world.event() == Joined("a", PROFILE)
    deadline = time.monotonic() + 120
    while silo._unreceived and time.monotonic() < deadline:
        link.next_event(time.time() + 0.02)
    assert not silo._unreceived


def test_a_slow_silo_holds_few_chunks_of_a_download(serve, dial) -> None:
    link, port = serve()
    model = model_of(72)
    source, task = Counting(model), train_task(model)
    link.offer(source)
    link.assign("a", task)
    silo, sink = dial(port), Gate(model.manifest)
    assert order_of(silo) == Assigned(task)
    thread = threading.Thread(target=silo.fetch, args=(task.model, sink))
    thread.start()
    assert sink.reached.wait(120)
    assert not source.exceeds(48), "sockets and a silo's window, which grows with the line's speed, hold 30"
    sink.opened.set()
    thread.join(120)
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
    assert sink.reached.wait(120)
    assert not source.exceeds(16)
    sink.opened.set()
    thread.join(120)
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
    assert sink.reached.wait(120)
    session = link.session("a", silo._connection.session)
    deadline = time.monotonic() + 120
    while session._transfers and time.monotonic() < deadline:
        link.next_event(time.time() + 0.02)
    assert not session._transfers
    sink.opened.set()
    thread.join(120)
    assert not sink.missing()


def test_an_upload_that_stands_still_at_its_end_is_tried_again(serve, dial, monkeypatch) -> None:
    link, port = serve()
    world, small = World(link, lambda silo: dial(port, silo)), model_of(0.1, seed=1)
    sink = Gate(small.manifest)

    class Opening(Watchdog):
        """Opens the sink when it has cancelled a transfer to it."""

        def watch(self, cancel):
            def cancel_and_open() -> None:
                cancel()
                if sink.reached.is_set():
                    sink.opened.set()

            return super().watch(cancel_and_open)

    monkeypatch.setattr(grpc_client, "Watchdog", Opening)
    monkeypatch.setattr(grpc_client, "STILL_SECONDS", 0.2)
    silo, task = world.connect("a"), train_task(MODEL)
    link.assign("a", task)
    assert order_of(silo) == Assigned(task)
    silo.announce(announcement_of(task, small))
    link.permit("a", task.id, sink)
    assert order_of(silo) == Permit(task.id)
    silo.push(task.id, small)
    assert not sink.missing()


@pytest.mark.parametrize("end", [grpc_client, grpc_server])
def test_a_transfer_of_ten_kilobytes_a_second_is_left_alone(end, serve, dial, monkeypatch) -> None:
    """When a chunk is handed over, the server's window and two more chunks may be on their way before it: 7 minutes at that rate."""
    longest: list[float] = []

    class Noting(Watchdog):
        def __init__(self, seconds: float) -> None:
            longest.append(seconds)
            super().__init__(seconds)

    monkeypatch.setattr(end, "Watchdog", Noting)
    dial(serve()[1]).welcome()
    least = min(max(longest), Protocol().idle_timeout_seconds)  # a server goes by its document
    assert least * 10_000 > UPLOAD_WINDOW_BYTES + 2 * CHUNK_BYTES


def test_a_port_in_use_has_its_own_code(serve) -> None:
    _, port = serve()
    with pytest.raises(AnchorageError) as caught:
        serve(listen=f"127.0.0.1:{port}")
    assert caught.value.failure is transfer.CANNOT_LISTEN


def test_a_server_that_is_not_there_is_waited_for(serve, dial) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
    silo = dial(port)
    assert silo.next_order(0.1) is None
    link, _ = serve(listen=f"127.0.0.1:{port}")
    assert link.next_event(time.time() + 120) == Joined("a", PROFILE)
    assert silo.welcome()


@needs_ipv6
def test_silos_come_over_ipv6_and_ipv4_to_one_port(serve, dial) -> None:
    link, port = serve(listen="[::]:0")
    world = World(link, lambda silo: dial(port, silo, server=f"{'[::1]' if silo == 'a' else '127.0.0.1'}:{port}"))
    for silo in ("a", "b"):
        assert world.connect(silo).welcome() == '{"federation":"derm"}'


def test_a_silo_tries_the_next_address_of_a_name_while_the_first_says_nothing() -> None:
    """The first is a port whose queue is full, so that packets to it are lost; gRPC gives one address 20 seconds."""
    server = grpc.server(ThreadPoolExecutor(1))
    with ExitStack() as stack:
        dead = stack.enter_context(socket.create_server(("127.0.0.2", 0), backlog=0))
        port = dead.getsockname()[1]
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.2", port))
        assert server.add_insecure_port(f"127.0.0.1:{port}") == port
        server.start()
        with grpc.insecure_channel(f"ipv4:127.0.0.2:{port},127.0.0.1:{port}", CHANNEL_OPTIONS) as channel:
            grpc.channel_ready_future(channel).result(15)
        server.stop(0)


def test_models_go_through_a_connection_with_small_segments(serve, dial, identities) -> None:
    link, port = serve()
    server = f"127.0.0.1:{port}"
    route_to(server).narrow = True
    assert describe(server, identities.silo("a")) == '{"federation":"derm"}'
    world = World(link, lambda silo: dial(port, silo))
    silo, task = world.connect("a"), train_task(MODEL)
    link.offer(MODEL)
    link.assign("a", task)
    assert order_of(silo) == Assigned(task)
    received, sent = MemorySpool(MODEL.manifest), MemorySpool(UPDATE.manifest)
    silo.fetch(MODEL.manifest, received)
    silo.announce(announcement_of(task, UPDATE))
    world.events_until(Announced)
    link.permit("a", task.id, sent)
    assert order_of(silo) == Permit(task.id)
    silo.push(task.id, UPDATE)
    assert world.events_until(Arrived) == Arrived("a", task.id)
    assert not received.missing() and not sent.missing()
    assert any(each.name == "narrow-path" for each in threading.enumerate())
