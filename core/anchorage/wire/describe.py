"""What a silo asks before it joins: the run's description, by which it reads its images."""

import grpc

from anchorage.errors import AnchorageError, transfer
from anchorage.pki import Credentials
from anchorage.wire import anchorage_pb2 as pb
from anchorage.wire import convert
from anchorage.wire.connection import Connection
from anchorage.wire.refusals import refusal_of

ANSWER_SECONDS = 10.0


def describe(server: str, credentials: Credentials, proxy: str | None = None) -> str:
    """Return the run's description (JSON of `anchorage.spec.run.RunDescription`) without joining the run.

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
        answer = connection.say("Describe", b"", ANSWER_SECONDS)
    except grpc.RpcError as error:
        refusal = refusal_of(error, server)
        raise refusal or AnchorageError(transfer.SERVER_UNREACHABLE, f"{server}: {error.details()}") from None
    finally:
        connection.close()
    return convert.parse(pb.Welcome, answer).run
