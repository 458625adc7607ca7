"""Transfers of chunks over one connection; interrupted ones continue over another."""

from collections.abc import Callable

import grpc

from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc import convert
from anchorage.transport.grpc.connection import ClosedError, Connection, Feed
from anchorage.transport.grpc.watchdog import Watchdog
from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource


def receive_chunks(
    connection: Connection, sink: ChunkSink, watchdog: Watchdog, progressed: Callable[[int], None]
) -> None:
    """Receive the chunks that `sink` lacks; `progressed` is called with the size of every chunk that was written.

    Raises
    ------
    grpc.RpcError
        The transfer was cut.
    AnchorageError
        A chunk is damaged, or the sink does not want it any more.
    """
    missing = sink.missing()
    call = connection.fetch(pb.ChunkList(model=sink.manifest.digest, chunks=missing).SerializeToString())
    try:
        with watchdog.watch(call.cancel) as moved:
            for chunk, index in zip(call, missing, strict=False):
                sink.write(index, chunk)
                moved()
                progressed(len(chunk))
    finally:
        call.cancel()


def send_chunks(
    connection: Connection,
    task: str,
    update: ChunkSource,
    watchdog: Watchdog,
    answer_seconds: float,
    progressed: Callable[[int], None],
) -> None:
    """Send the chunks of an update that the server lacks; `progressed` is called with the size of every chunk handed to gRPC.

    Raises
    ------
    grpc.RpcError
        The transfer was cut.
    """
    digest = update.manifest.digest
    offer = pb.Offer(task=task, update=digest).SerializeToString()
    lacking = convert.parse(pb.Lacking, connection.call("Lacking", offer, answer_seconds)).chunks
    if not lacking:
        return
    feed = Feed()
    call = connection.push(task, feed)
    call.add_done_callback(lambda _: feed.close())
    try:
        with watchdog.watch(call.cancel) as moved:
            feed.send(pb.ChunkList(model=digest, chunks=lacking).SerializeToString())
            for index in lacking:
                chunk = update.chunk(index)
                if not feed.send(chunk):
                    break
                moved()
                progressed(len(chunk))
            feed.close()
            call.result()
    except grpc.FutureCancelledError:  # by the watchdog; it is no RpcError
        raise ClosedError from None
    finally:
        call.cancel()
