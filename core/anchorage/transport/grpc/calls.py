"""The calls between an agent and the server, as anchorage.proto declares them: their paths, limits and channel options."""

from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc.guard import CallGuard
from anchorage.transport.tensors.chunks import CHUNK_BYTES

FEDERATION: ServiceDescriptor = pb.DESCRIPTOR.services_by_name["Federation"]
ENROLMENT: ServiceDescriptor = pb.DESCRIPTOR.services_by_name["Enrolment"]
SESSION = "anchorage-session"
TASK = "anchorage-task"

MAX_UP_BYTES = 4 * CHUNK_BYTES
"""Largest message that the server accepts: a chunk, or an announcement with its auxiliary data."""
MAX_DOWN_BYTES = 64 * CHUNK_BYTES
"""Largest message that a silo accepts: a chunk, or a task with its auxiliary data."""
MAX_STREAMS = 16
"""Calls at once on one connection."""
MAX_CALLS = 32
"""Calls of one silo at once: its orders, transfers and messages, twice while a connection replaces another."""

UPLOAD_WINDOW_BYTES = 2 * CHUNK_BYTES
"""What a silo may send before the server has read it: bounds the server's memory per silo, and an upload's speed to this per round trip."""

STILL_SECONDS = 600.0
"""Time without another chunk after which a transfer is tried again: the window and two chunks pass a line of 10 kB/s; a dead line ends before."""

PING_SECONDS = 7
"""Silence after which a peer is asked for a sign of life, and time for its kernel to acknowledge anything (TCP_USER_TIMEOUT, of
``grpc.keepalive_timeout_ms``): a line or machine that is dead is noticed within 15 s."""
ANSWER_SECONDS = 60
"""Time for the sign of life itself, which on a slow line waits behind what is sent before: a process that hangs, or is dead behind a proxy that still
answers, is noticed within 70 s."""

_PINGS = [
    ("grpc.keepalive_time_ms", PING_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", PING_SECONDS * 1000),
    ("grpc.http2.ping_timeout_ms", ANSWER_SECONDS * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
SERVER_OPTIONS = [
    *_PINGS,
    (
        "grpc.http2.bdp_probe",
        0,
    ),  # else the window of every upload grows with the line's speed, and the server's memory with it
    ("grpc.http2.lookahead_bytes", UPLOAD_WINDOW_BYTES),
    ("grpc.http2.min_ping_interval_without_data_ms", PING_SECONDS * 500),
    ("grpc.max_receive_message_length", MAX_UP_BYTES),
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    ("grpc.so_reuseport", 0),
]
CHANNEL_OPTIONS = [
    *_PINGS,
    ("grpc.max_receive_message_length", MAX_DOWN_BYTES),
    ("grpc.use_local_subchannel_pool", 1),  # another channel's back-off must not delay this one
    ("grpc.enable_retries", 0),
]


def path(call: str, service: ServiceDescriptor = FEDERATION) -> str:
    """Return the HTTP/2 path of a call that the service declares; KeyError for another one."""
    return f"/{service.full_name}/{service.methods_by_name[call].name}"


def serve_calls(
    service: ServiceDescriptor, calls: Mapping[str, Callable[..., Any]], guard: CallGuard
) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return a handler for every call of a service, whose messages stay bytes; `guard` bounds them.

    Raises
    ------
    ValueError
        A call of the service is missing, or one is not declared.
    """
    if different := calls.keys() ^ set(service.methods_by_name):
        raise ValueError(f"{service.full_name}: served and declared calls differ in {sorted(different)}")
    handlers = {method.name: guard.handler(method, calls[method.name]) for method in service.methods}
    return grpc.method_handlers_generic_handler(service.full_name, handlers)
