"""What the silo's end tells of its way to the server."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from link_world import PATIENCE

from anchorage.api.errors import AnchorageError, identity, transfer
from anchorage.transport.grpc import convert
from anchorage.transport.grpc.contact import Contact
from anchorage.transport.grpc.single_calls import renew
from anchorage.transport.liveness import LivenessRegistry
from anchorage.transport.pki import SigningRequest, load_key, silo_uri


class Told(Contact):
    """A contact whose changes can be waited for."""

    def __init__(self) -> None:
        self.liveness = LivenessRegistry()
        super().__init__(self.liveness)
        self._changed = threading.Condition()

    def record_opened(self) -> None:
        super().record_opened()
        self._tell()

    def record_closed(self, why: str) -> None:
        super().record_closed(why)
        self._tell()

    def record_ended(self, *, planned: bool) -> None:
        super().record_ended(planned=planned)
        self._tell()

    def until(self, true: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(true, PATIENCE)

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()


def test_a_session_comes_and_goes(serve: Any, dial: Any) -> None:
    link, port = serve()
    recorder = Told()
    dial(port, contact=recorder)
    recorder.until(lambda: recorder.connected)
    assert recorder.heard > 0 and recorder.lost == ""
    link.stop(0)
    recorder.until(lambda: not recorder.connected)
    recorder.until(lambda: "no connection to" in recorder.lost)
    assert recorder.liveness.describe_overdue() == ""


def test_a_refusal_is_told(serve: Any, dial: Any) -> None:
    _, port = serve(admit=lambda silo, key: False)
    recorder = Told()
    silo = dial(port, contact=recorder)
    with pytest.raises(AnchorageError) as caught:
        silo.next_order(PATIENCE)
    assert caught.value.failure is transfer.SILO_NOT_ADMITTED
    recorder.until(lambda: "no member" in recorder.lost)
    assert recorder.liveness.describe_overdue() == ""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_session_that_broke_for_good_shows(serve: Any, dial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    link, port = serve()
    recorder = Told()

    def broken(order: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(convert, "order_from_proto", broken)
    dial(port, contact=recorder)
    recorder.until(lambda: recorder.connected)
    link.finish("over")
    recorder.until(lambda: bool(recorder.liveness.describe_overdue()))


class TestRenew:
    def ask(self, identities: Any, port: int) -> bytes:
        credentials = identities.silo("a")
        request = SigningRequest.make(load_key(credentials.key), silo_uri("derm", "a"))
        return renew(f"127.0.0.1:{port}", credentials, request)

    def test_answers_with_a_certificate(self, serve: Any, identities: Any) -> None:
        _, port = serve()
        assert self.ask(identities, port).startswith(b"-----BEGIN CERTIFICATE-----")

    def test_says_that_nobody_has_decided(self, serve: Any, identities: Any) -> None:
        def pending(csr_pem: bytes, silo: str) -> bytes:
            raise AnchorageError(identity.ENROLMENT_PENDING, f"{silo} waits")

        _, port = serve(renew=pending)
        with pytest.raises(AnchorageError, match="a waits") as caught:
            self.ask(identities, port)
        assert caught.value.failure is identity.ENROLMENT_PENDING

    def test_says_that_nobody_answers(self, identities: Any) -> None:
        with pytest.raises(AnchorageError) as caught:
            self.ask(identities, 1)
        assert caught.value.failure is transfer.SERVER_UNREACHABLE
