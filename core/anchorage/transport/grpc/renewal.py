"""Renewal of a silo's certificate."""

import grpc

from anchorage.api.errors import AnchorageError, transfer
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc import convert
from anchorage.transport.grpc.connection import Connection
from anchorage.transport.grpc.refusals import refusal_of
from anchorage.transport.pki import Credentials

ANSWER_SECONDS = 30.0


def renew(server: str, credentials: Credentials, csr_pem: bytes, proxy: str | None = None) -> bytes:
    """Request a new certificate over a connection that presents the current one.

    Parameters
    ----------
    server : str
        Address ``host:port``, as the server's certificate names it.
    credentials : Credentials
        The silo's TLS files.
    csr_pem : bytes
        The signing request. Asked again with the same one, it is the same request.
    proxy : str or None
        The HTTP proxy, ``http://host:port``.

    Returns
    -------
    bytes
        The certificate, PEM.

    Raises
    ------
    AnchorageError
        The server refuses, has not decided yet (`identity.ENROLMENT_PENDING`), or does not answer (`transfer.SERVER_UNREACHABLE`).
    """
    connection = Connection(server, credentials, proxy)
    try:
        answer = connection.call("Renew", pb.Renewal(request=csr_pem).SerializeToString(), ANSWER_SECONDS)
    except grpc.RpcError as error:
        unanswered = AnchorageError(transfer.SERVER_UNREACHABLE, f"{server} does not answer: {error.details()}")
        raise refusal_of(error, server) or unanswered from None
    finally:
        connection.close()
    return convert.parse(pb.Certificate, answer).certificate
