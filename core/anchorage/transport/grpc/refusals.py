"""Conversion between failures of the catalogue and gRPC statuses."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import NoReturn

import grpc

from anchorage.api.errors import CATALOGUE, AnchorageError, identity, transfer
from anchorage.api.text import printable
from anchorage.transport.silo_tasks import STORAGE

_STATUS = {
    transfer.MALFORMED_MESSAGE: grpc.StatusCode.INVALID_ARGUMENT,
    transfer.UNKNOWN_TASK: grpc.StatusCode.NOT_FOUND,
    transfer.MODEL_NOT_OFFERED: grpc.StatusCode.NOT_FOUND,
    transfer.SILO_NOT_ADMITTED: grpc.StatusCode.PERMISSION_DENIED,
    transfer.NO_SILO_IDENTITY: grpc.StatusCode.UNAUTHENTICATED,
    transfer.SESSION_REPLACED: grpc.StatusCode.ABORTED,
    identity.ENROLMENT_PENDING: grpc.StatusCode.UNAVAILABLE,
    identity.TOO_MANY_REQUESTS: grpc.StatusCode.UNAVAILABLE,
}
_DETAILS = re.compile(r"(ANC-\d{4}) \w+: (.*)", re.DOTALL)
_PROXY_STATUS = re.compile(r"HTTP proxy returned response code (\d{3})")
_PROXY_BUSY = ("408", "429")
_UNTIMELY = re.compile(r"certificate (is not yet valid|has expired)")
_UNTRUSTED = ("SSL_ERROR_SSL", "Verification Check failed", "verification check failed")


@contextmanager
def refusing(context: grpc.ServicerContext) -> Iterator[None]:
    """End a call with a failure of the catalogue that the block raises, with `ANC-2152 Reason: message` as the status' details."""
    try:
        yield
    except AnchorageError as error:
        refuse(context, error)


def refuse(context: grpc.ServicerContext, error: AnchorageError) -> NoReturn:
    """End a call with a failure of the catalogue; for a failure of the server's disk the silo is only asked to try again later."""
    if error.failure.exit_code == STORAGE:
        context.abort(grpc.StatusCode.UNAVAILABLE, "the server cannot store the update")
    context.abort(_STATUS.get(error.failure, grpc.StatusCode.FAILED_PRECONDITION), str(error))
    raise AssertionError("abort returned")


def refusal_of(error: grpc.RpcError, server: str) -> AnchorageError | None:
    """Return the failure that a call ended with, in printable words; None if trying again may help.

    Parameters
    ----------
    error : grpc.RpcError
        How the call ended.
    server : str
        Address, for the message.
    """
    details = printable(error.details() or "")
    if (named := _DETAILS.fullmatch(details)) is not None and named[1] in CATALOGUE:
        return AnchorageError(CATALOGUE[named[1]], named[2])
    match error.code():
        case grpc.StatusCode.RESOURCE_EXHAUSTED if "message larger than max" in details:
            return AnchorageError(transfer.MESSAGE_TOO_LARGE, f"{server}: {details}")
        case grpc.StatusCode.UNIMPLEMENTED:
            wrong = f"{server} is no Anchorage server of this version; check the address"
            return AnchorageError(transfer.MALFORMED_MESSAGE, wrong)
        case grpc.StatusCode.UNAVAILABLE if (untimely := _UNTIMELY.search(details)) is not None:
            now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
            detail = f"{server}: its {untimely[0]}, by the clock of this machine, which says {now}"
            early = untimely[1] == "is not yet valid"
            return AnchorageError(identity.CLOCK_OFF if early else identity.CERTIFICATE_EXPIRED, detail)
        case grpc.StatusCode.UNAVAILABLE if any(sign in details for sign in _UNTRUSTED):
            return AnchorageError(transfer.SERVER_NOT_TRUSTED, f"{server}: {_reason_in(details)}")
        case grpc.StatusCode.UNAVAILABLE if (proxy_status := _PROXY_STATUS.search(details)) is not None:
            if not proxy_status[1].startswith("4") or proxy_status[1] in _PROXY_BUSY:
                return None
            return AnchorageError(transfer.PROXY_REFUSED, f"the proxy answered {proxy_status[1]} to CONNECT {server}")
        case _:
            return None


def _reason_in(details: str) -> str:
    return details.rpartition("last error: ")[2].strip().replace("\n", " ")
