"""Calls of a silo that need no session: the run's description, which it needs to read its images, and a new certificate."""

import grpc

from anchorage.api.errors import AnchorageError, transfer
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc import convert
from anchorage.transport.grpc.connection import Connection
from anchorage.transport.grpc.narrow_path import route_to
from anchorage.transport.grpc.refusals import refusal_of
from anchorage.transport.peer_clock import PeerClock
from anchorage.transport.pki import Credentials
from anchorage.transport.signed_head import SignedHead

DESCRIBE_SECONDS = 10.0
RENEW_SECONDS = 30.0
"""How long an answer may take."""


def describe(server: str, credentials: Credentials, proxy: str | None = None, clock: PeerClock | None = None) -> str:
    """Return the run's description (JSON of `anchorage.api.run.RunDescription`) without joining the run.

    Parameters
    ----------
    server : str
        Address ``host:port``, as the server's certificate names it.
    credentials : Credentials
        The silo's TLS files.
    proxy : str or None
        The HTTP proxy, ``http://host:port``.
    clock : PeerClock or None
        Is told what time the server has.

    Raises
    ------
    AnchorageError
        The server refuses the silo, does not answer (`transfer.SERVER_UNREACHABLE`), or is of a release too far from this one.
    """
    return _describe(server, credentials, proxy, clock).run


def held_head(server: str, credentials: Credentials, proxy: str | None = None) -> SignedHead | None:
    """Return the head of the silo's audit log that the server keeps; None without one.

    Parameters
    ----------
    server, credentials, proxy : str, Credentials, str or None
        As of `describe`.

    Raises
    ------
    AnchorageError
        The server refuses the silo, does not answer (`transfer.SERVER_UNREACHABLE`), or answers what is no head.
    """
    head = convert.head_from_proto(_describe(server, credentials, proxy))
    if head is not None and not head.bounded:
        raise AnchorageError(transfer.MALFORMED_MESSAGE, f"{server} answers what is no head of an audit log")
    return head


def _describe(server: str, credentials: Credentials, proxy: str | None, clock: PeerClock | None = None) -> pb.Welcome:
    answer = _ask(Connection(server, credentials, proxy, clock), server, "Describe", b"", DESCRIBE_SECONDS)
    return convert.require_served(convert.parse(pb.Welcome, answer))


def renew(
    server: str,
    credentials: Credentials,
    csr_pem: bytes,
    proxy: str | None = None,
    clock: PeerClock | None = None,
) -> bytes:
    """Request a new certificate over a connection that presents the current one.

    Parameters
    ----------
    server, credentials, proxy, clock : str, Credentials, str or None, PeerClock or None
        As of `describe`.
    csr_pem : bytes
        The signing request. Asked again with the same one, it is the same request.

    Returns
    -------
    bytes
        The certificate, PEM.

    Raises
    ------
    AnchorageError
        The server refuses, has not decided yet (`identity.ENROLMENT_PENDING`), or does not answer (`transfer.SERVER_UNREACHABLE`).
    """
    request = pb.Renewal(request=csr_pem).SerializeToString()
    answer = _ask(Connection(server, credentials, proxy, clock), server, "Renew", request, RENEW_SECONDS)
    return convert.parse(pb.Certificate, answer).certificate


def ask_authorities(
    server: str, credentials: Credentials, proxy: str | None = None, clock: PeerClock | None = None
) -> tuple[bytes, bytes]:
    """Return the federation's authorities and the endorsements of new ones, PEM. Parameters and failures as of `describe`."""
    answer = _ask(Connection(server, credentials, proxy, clock), server, "Trust", b"", DESCRIBE_SECONDS)
    authorities = convert.parse(pb.Authorities, answer)
    return authorities.certificates, authorities.endorsements


def _ask(connection: Connection, server: str, call: str, request: bytes, seconds: float) -> bytes:
    try:
        with route_to(server).watch(call):
            return connection.call(call, request, seconds)
    except grpc.RpcError as error:
        unanswered = AnchorageError(transfer.SERVER_UNREACHABLE, f"{server} does not answer: {error.details()}")
        raise refusal_of(error, server) or unanswered from None
    finally:
        connection.close()
