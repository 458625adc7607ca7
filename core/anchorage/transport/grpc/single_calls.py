"""Calls of a silo that need no session: the run's description, which it needs to read its images, and a new certificate."""

import grpc

from anchorage.api.errors import AnchorageError, transfer
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc import convert
from anchorage.transport.grpc.connection import Connection
from anchorage.transport.grpc.refusals import refusal_of
from anchorage.transport.pki import Credentials

DESCRIBE_SECONDS = 10.0
RENEW_SECONDS = 30.0
"""How long an answer may take."""


def describe(server: str, credentials: Credentials, proxy: str | None = None) -> str:
    """Return the run's description (JSON of `anchorage.api.run.RunDescription`) without joining the run.

    Parameters
    ----------
    server : str
        Address ``host:port``, as the server's certificate names it.
    credentials : Credentials
        The silo's TLS files.
    proxy : str or None
        The HTTP proxy, ``http://host:port``.

    Raises
    ------
    AnchorageError
        The server refuses the silo, or does not answer (`transfer.SERVER_UNREACHABLE`).
    """
    answer = _ask(Connection(server, credentials, proxy), server, "Describe", b"", DESCRIBE_SECONDS)
    return convert.parse(pb.Welcome, answer).run


def renew(server: str, credentials: Credentials, csr_pem: bytes, proxy: str | None = None) -> bytes:
    """Request a new certificate over a connection that presents the current one.

    Parameters
    ----------
    server, credentials, proxy : str, Credentials, str or None
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
    answer = _ask(Connection(server, credentials, proxy), server, "Renew", request, RENEW_SECONDS)
    return convert.parse(pb.Certificate, answer).certificate


def _ask(connection: Connection, server: str, call: str, request: bytes, seconds: float) -> bytes:
    try:
        return connection.call(call, request, seconds)
    except grpc.RpcError as error:
        unanswered = AnchorageError(transfer.SERVER_UNREACHABLE, f"{server} does not answer: {error.details()}")
        raise refusal_of(error, server) or unanswered from None
    finally:
        connection.close()
