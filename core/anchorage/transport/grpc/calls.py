"""The calls between an agent and the server: their names, limits and channel options.

| call | request | answer |
| --- | --- | --- |
| Describe | nothing | Welcome without a session: what the run is, before joining it |
| Renew | Renewal | Certificate |
| Orders | Hello | stream of Order: a Welcome, then orders as they come |
| Announce, Report, Fail, Progress | Announcement, Evaluation, Failure, Progress | Ack, to Progress with the committed steps |
| Fetch | Wanted | stream of raw chunks in the order asked for |
| Lacking | Offer | Lacking |
| Push | stream: one Wanted that names the update and the chunks to come, then these as raw messages | Ack |

Every call but Describe, Renew and Orders names its session in its metadata. Chunks are gRPC messages of their own, without protobuf around them.
"""

from anchorage.transport.tensors.chunks import CHUNK_BYTES

SERVICE = "anchorage.v1.Federation"
ENROLMENT = "anchorage.v1.Enrolment"
SESSION = "anchorage-session"
TASK = "anchorage-task"

MAX_UP_BYTES = 4 * CHUNK_BYTES
"""Largest message that the server accepts: a chunk, or an announcement with its side channel."""
MAX_DOWN_BYTES = 64 * CHUNK_BYTES
"""Largest message that a silo accepts: a chunk, or a task with its side channel."""
MAX_STREAMS = 16
"""Calls at once on one connection."""

UPLOAD_WINDOW_BYTES = 2 * CHUNK_BYTES
"""What a silo may send before the server has read it: bounds the server's memory per silo, and an upload's speed to this per round trip."""

PING_SECONDS = 10
"""Silence after which a peer is asked for a sign of life, and time that it has for it."""

_PINGS = [
    ("grpc.keepalive_time_ms", PING_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", PING_SECONDS * 1000),
    ("grpc.http2.ping_timeout_ms", PING_SECONDS * 1000),  # else a minute, whatever the line above says
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


def path(call: str) -> str:
    """Return the HTTP/2 path of a call."""
    return f"/{SERVICE}/{call}"
