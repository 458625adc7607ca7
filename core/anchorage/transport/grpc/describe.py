"""Requests the run's description, which a silo needs to read its images before it joins."""

import grpc

from anchorage.api.errors import AnchorageError, transfer
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc import convert
from anchorage.transport.grpc.connection import Connection
from anchorage.transport.grpc.refusals import refusal_of
from anchorage.transport.pki import Credentials

ANSWER_SECONDS = 10.0


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
    connection = Connection(server, credentials, proxy)
    try:
        answer = connection.call("Describe", b"", ANSWER_SECONDS)
    except grpc.RpcError as error:
        refusal = refusal_of(error, server)
        raise refusal or AnchorageError(transfer.SERVER_UNREACHABLE, f"{server}: {error.details()}") from None
    finally:
        connection.close()
    return convert.parse(pb.Welcome, answer).run
