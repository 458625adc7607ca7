"""Enrolment: a silo sends a signing request and its one-time token over TLS in which only the server presents a certificate."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc

from anchorage.api.errors import AnchorageError, identity, transfer
from anchorage.api.regular_files import read_regular
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc import convert
from anchorage.transport.grpc.address_guard import AddressGuard
from anchorage.transport.grpc.calls import ENROLMENT, path, serve_calls
from anchorage.transport.grpc.connection import noting
from anchorage.transport.grpc.guard import ADDRESS_PART, CallGuard, address_of, connection_options, most_connections
from anchorage.transport.grpc.narrow_path import route_to
from anchorage.transport.grpc.proxy import proxy_options
from anchorage.transport.grpc.refusals import refusal_of, refusing
from anchorage.transport.grpc.tls import bind, server_credentials
from anchorage.transport.peer_clock import PeerClock
from anchorage.transport.pki import Credentials
from anchorage.transport.pki.refused_tokens import RefusedTokens

MAX_REQUEST_BYTES = 1 << 16
ANSWER_SECONDS = 30.0
THREADS = 16
CALLS = 4
"""Requests of one address at once."""
CONNECTIONS = 256
_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.http2.lookahead_bytes", MAX_REQUEST_BYTES),
    ("grpc.http2.bdp_probe", 0),  # else a stranger's window grows, and the server's memory with it
    ("grpc.max_concurrent_streams", CALLS),
    ("grpc.max_connection_age_ms", int(2 * ANSWER_SECONDS * 1000)),
    ("grpc.max_connection_age_grace_ms", int(ANSWER_SECONDS * 1000)),
    ("grpc.so_reuseport", 0),
]
"""Whoever reaches the port is a stranger, who has little room and little time."""


def serve_enrolment(
    listen: str,
    credentials: Credentials,
    enrol: Callable[[bytes, str, str], bytes],
    refused: RefusedTokens | None = None,
) -> tuple[Callable[[], None], int]:
    """Serve enrolment, and return what stops that, and the port.

    Parameters
    ----------
    listen : str
        Address ``host:port``; port 0 for any.
    credentials : Credentials
        The server's TLS files.
    enrol : callable
        ``enrol(csr_pem, token, silo)`` returns the certificate, PEM; raises AnchorageError to refuse.
    refused : RefusedTokens, optional
        Counts refused tokens, and slows down who shows them.

    Raises
    ------
    AnchorageError
        The address is taken, or the TLS files cannot be used.
    """
    refused = refused or RefusedTokens()

    def handle(request: bytes, context: grpc.ServicerContext) -> bytes:
        with refusing(context):
            asked = convert.parse(pb.SigningRequest, request)
            certificate = refused.ask(
                address_of(context), asked.silo, asked.token, lambda: enrol(asked.request, asked.token, asked.silo)
            )
        return pb.Certificate(certificate=certificate).SerializeToString()

    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="enrolment")
    most = most_connections(CONNECTIONS)
    server = grpc.server(pool, options=[*_OPTIONS, *connection_options(most)])
    guard = CallGuard(address_of, CALLS)
    server.add_generic_rpc_handlers((serve_calls(ENROLMENT, {"Enrol": handle}, guard),))
    port = bind(server, listen, server_credentials(credentials, mutual=False))
    server.start()
    addresses = AddressGuard(port, max(most // ADDRESS_PART, 1))  # a call shows nobody here, so every connection counts

    def stop() -> None:
        addresses.close()
        server.stop(0.0).wait()
        guard.close()
        pool.shutdown()

    return stop, port


def enrol(
    address: str,
    authority: Path,
    silo: str,
    token: str,
    csr_pem: bytes,
    proxy: str | None = None,
    clock: PeerClock | None = None,
) -> bytes:
    """Ask for a certificate.

    Parameters
    ----------
    address : str
        Address ``host:port`` of the enrolment service, as the server's certificate names it.
    authority : Path
        Certificate of the federation's authority, PEM.
    silo : str
        The silo's name.
    token : str
        Its one-time token.
    csr_pem : bytes
        The signing request; the key it is over stays where it is. Asked again with the same one, it is the same request.
    proxy : str or None
        The HTTP proxy, ``http://host:port``.
    clock : PeerClock or None
        Is told what time the server has.

    Returns
    -------
    bytes
        The certificate, PEM.

    Raises
    ------
    AnchorageError
        The server refuses, cannot be trusted, has not decided yet (`identity.ENROLMENT_PENDING`), or does not answer.
    """
    try:
        trusted = read_regular(authority)
    except OSError as error:
        detail = f"{authority} cannot be read: {error.strerror}"
        raise AnchorageError(identity.CREDENTIALS_UNUSABLE, detail) from error
    request = pb.SigningRequest(silo=silo, token=token, request=csr_pem).SerializeToString()
    clock = clock or PeerClock()
    with ExitStack() as stack:
        route = route_to(address)
        narrow = route.open(proxy)
        if narrow is not None:
            stack.callback(narrow.close)
        options = proxy_options(narrow.url if narrow is not None else proxy)
        call: Any = stack.enter_context(grpc.secure_channel(address, grpc.ssl_channel_credentials(trusted), options))
        try:
            with noting(clock), route.watch("Enrol"):
                answer, ended = call.unary_unary(path("Enrol", ENROLMENT)).with_call(request, ANSWER_SECONDS)
                clock.note(ended.initial_metadata())
        except grpc.RpcError as error:
            unanswered = f"{address} does not answer: {error.details()}"
            raise refusal_of(error, address) or AnchorageError(transfer.SERVER_UNREACHABLE, unanswered) from error
    return convert.parse(pb.Certificate, answer).certificate


def ask_time(address: str, authority: Path, proxy: str | None, clock: PeerClock) -> None:
    """Tell a clock what time the server has, by a request that names nobody and is refused; where there is no answer, nothing is learnt.

    The server alone shows a certificate here, so a silo can ask whose own is not valid. Parameters as of `enrol`.
    """
    with suppress(AnchorageError):
        enrol(address, authority, "", "", b"", proxy, clock)
