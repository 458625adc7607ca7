import grpc
import pytest

from anchorage.api.errors import Failure, identity, transfer
from anchorage.transport.grpc.refusals import refusal_of

PROXY = (
    "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:3128: HTTP proxy returned response code {}"
)


class Ended(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


@pytest.mark.parametrize(
    ("code", "details", "failure"),
    [
        (grpc.StatusCode.UNAVAILABLE, PROXY.format(403), transfer.PROXY_REFUSED),
        (grpc.StatusCode.UNAVAILABLE, PROXY.format(407), transfer.PROXY_REFUSED),
        (grpc.StatusCode.UNAVAILABLE, PROXY.format(429), None),
        (grpc.StatusCode.UNAVAILABLE, PROXY.format(503), None),
        (grpc.StatusCode.UNAVAILABLE, "Connection refused", None),
        (grpc.StatusCode.UNAVAILABLE, "ANC-2009 EnrolmentPending: silo a waits", identity.ENROLMENT_PENDING),
        (grpc.StatusCode.UNAVAILABLE, "... SSL_ERROR_SSL: last error: certificate", transfer.SERVER_NOT_TRUSTED),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", None),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", transfer.MALFORMED_MESSAGE),
    ],
)
def test_what_a_status_means(code: grpc.StatusCode, details: str, failure: Failure | None) -> None:
    refusal = refusal_of(Ended(code, details), "derm.example.org:8443")
    assert (refusal.failure if refusal else None) is failure
    if failure is transfer.PROXY_REFUSED:
        assert refusal is not None and "derm.example.org:8443" in refusal.message


def test_a_server_s_words_are_shown_on_one_line_without_control_characters() -> None:
    refusal = refusal_of(
        Ended(grpc.StatusCode.PERMISSION_DENIED, "ANC-2155 SiloNotAdmitted: \x1b[2J\r\nANC-9999 \x9b\u202e"), "s:1"
    )
    assert refusal is not None and refusal.failure is transfer.SILO_NOT_ADMITTED and str(refusal).isprintable()
    other = refusal_of(Ended(grpc.StatusCode.RESOURCE_EXHAUSTED, "message larger than max\x1b[2J"), "s:1")
    assert other is not None and str(other).isprintable()
