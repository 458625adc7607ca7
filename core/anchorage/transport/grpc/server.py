"""The server's end of the link over gRPC."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Lock
from typing import Any

import grpc
from cryptography import x509

from anchorage import __version__
from anchorage.api.errors import AnchorageError, transfer
from anchorage.transport.exchange import Exchange
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc import convert
from anchorage.transport.grpc.address_guard import AddressGuard
from anchorage.transport.grpc.allocator import keep_chunk_memory
from anchorage.transport.grpc.calls import (
    FEDERATION,
    MAX_CALLS,
    MAX_DOWN_BYTES,
    SERVER_OPTIONS,
    SESSION,
    STILL_SECONDS,
    TASK,
    serve_calls,
)
from anchorage.transport.grpc.guard import ADDRESS_PART, CallGuard, connection_options, most_connections
from anchorage.transport.grpc.refusals import refusing
from anchorage.transport.grpc.tls import bind, federation_of, server_credentials
from anchorage.transport.grpc.watchdog import Watchdog
from anchorage.transport.link import AuditHeads, Clock
from anchorage.transport.messages import Task
from anchorage.transport.pki import Credentials, certificate_of, key_fingerprint, silo_of, silo_uri, uris_of
from anchorage.transport.pki.keys import PublicKey
from anchorage.transport.session import Session
from anchorage.transport.signed_head import SignedHead
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.versions import PROTOCOL, require_neighbour

MAX_THREADS = 1024
"""Calls served at once: of every silo one stream of orders and a few transfers."""

_ACK = pb.Ack().SerializeToString()


class GrpcSiloLink(Exchange):
    """Serves silos over gRPC with mutual TLS (`Exchange`).

    A silo is identified by its certificate. It may fetch the models of its open tasks and upload permitted updates; every call
    belongs to the session that the silo opened last.

    Parameters
    ----------
    listen : str
        Address ``host:port``; port 0 for any.
    credentials : Credentials
        The server's TLS files; read again at a handshake when they have changed.
    welcome : str
        The run's description (JSON), which a silo receives first.
    admit : callable
        ``admit(silo, key)``: whether the silo of this name, with a certificate over the key of this fingerprint, is a member.
    renew : callable
        ``renew(csr_pem, silo)`` returns a further certificate (PEM) for a silo; raises AnchorageError to refuse.
    heads : AuditHeads
        Keeps the heads of the silos' audit logs.
    clock : Clock
        The clock of `next_event`.
    idle_timeout_seconds : float
        A transfer without progress for so long is cancelled.
    """

    def __init__(
        self,
        *,
        listen: str,
        credentials: Credentials,
        welcome: str,
        admit: Callable[[str, str], bool],
        renew: Callable[[bytes, str], bytes],
        heads: AuditHeads,
        clock: Clock,
        idle_timeout_seconds: float = STILL_SECONDS,
    ) -> None:
        super().__init__(clock)
        self._listen = listen
        self._credentials = credentials
        self._welcome = welcome
        self._admit = admit
        self._renew_certificate = renew
        self._heads = heads
        self._idle_timeout = idle_timeout_seconds
        self._federation = ""
        self._shown: dict[str, str] = {}
        self._showing = Lock()

    def start(self) -> int:
        """Listen, and return the port.

        Raises
        ------
        AnchorageError
            The address is taken, or the TLS files cannot be used.
        """
        keep_chunk_memory()
        self._federation = federation_of(self._credentials)
        self._pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="silo")
        most = most_connections()
        self._server = grpc.server(self._pool, options=[*SERVER_OPTIONS, *connection_options(most)])
        self._guard = CallGuard(_key_of, MAX_CALLS)
        self._server.add_generic_rpc_handlers((serve_calls(FEDERATION, self._calls(), self._guard),))
        port = bind(self._server, self._listen, server_credentials(self._credentials, mutual=True))
        self._watchdog = Watchdog(self._idle_timeout)
        self._server.start()
        self._addresses = AddressGuard(port, max(most // ADDRESS_PART, 1), self._guard.callers)
        return port

    def stop(self, grace_seconds: float = 5.0) -> None:
        """Close every connection; orders that were sent may still arrive within the grace period."""
        self._addresses.close()
        self._server.stop(grace_seconds).wait()
        self._watchdog.close()
        self._guard.close()
        self._pool.shutdown()

    def assign(self, silo: str, task: Task) -> None:
        """Give a silo a task. Another train task replaces the silo's open train task; evaluate tasks queue.

        Raises
        ------
        AnchorageError
            The task with its auxiliary data is larger than a silo accepts.
        """
        nbytes = sum(array.nbytes for array in task.auxiliary_data.values())
        if nbytes > MAX_DOWN_BYTES // 2:
            detail = f"the auxiliary data of task {task.id} has {nbytes} bytes, more than {MAX_DOWN_BYTES // 2}"
            raise AnchorageError(transfer.MESSAGE_TOO_LARGE, detail)
        super().assign(silo, task)

    def _calls(self) -> dict[str, Callable[..., Any]]:
        return {
            "Describe": self._describe,
            "Renew": self._renew,
            "Trust": self._trust,
            "Orders": self._orders,
            "Announce": self._announce,
            "Report": self._report,
            "Fail": self._fail,
            "Progress": self._progress,
            "Fetch": self._fetch,
            "Lacking": self._lacking,
            "Push": self._push,
        }

    def _greeting(self, session: str = "", head: SignedHead | None = None) -> pb.Welcome:
        head_proto = convert.head_to_proto(head)
        return pb.Welcome(
            session=session, run=self._welcome, version=__version__, protocol=PROTOCOL, audit_head=head_proto
        )

    def _describe(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        with refusing(context):
            head = self._heads.newest(self._silo(context))
        return self._greeting(head=head).SerializeToString()

    def _renew(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        with refusing(context):
            asked = convert.parse(pb.Renewal, request)
            certificate = self._renew_certificate(asked.request, self._silo(context))
        return pb.Certificate(certificate=certificate).SerializeToString()

    def _trust(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        with refusing(context):
            self._silo(context)
            authorities, endorsements = self._credentials.read_trusted()
        return pb.Authorities(certificates=authorities, endorsements=endorsements).SerializeToString()

    def _orders(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        with refusing(context):
            hello = convert.parse(pb.Hello, request)
            silo = self._silo(context)
            require_neighbour("agent", hello.protocol, hello.version)
            session = self.join(silo, convert.decode_profile(hello, time.time()))
            if not context.add_callback(lambda: session.leave("the connection ended")):
                session.leave("the connection ended")
            self._silo(context)  # it may have been taken out while it came in
            yield pb.Order(welcome=self._greeting(session.id)).SerializeToString()
            while (order := session.next_order(None)) is not None:
                yield convert.order_to_proto(order).SerializeToString()
            if session.refusal is not None:
                raise session.refusal

    def _announce(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        with refusing(context):
            session = self._session(context)
            announcement = convert.decode_announcement(request)
            session.announce(announcement)
            self._keep_head(announcement.audit_head, context)
        return _ACK

    def _report(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        with refusing(context):
            session = self._session(context)
            evaluation = convert.decode_evaluation(request)
            session.report(evaluation)
            self._keep_head(evaluation.audit_head, context)
        return _ACK

    def _fail(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        with refusing(context):
            session = self._session(context)
            failed = convert.parse(pb.Failure, request)
            session.fail(failed.task, failed.code, failed.message)
        return _ACK

    def _progress(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        with refusing(context):
            session = self._session(context)
            progress = convert.parse(pb.Progress, request)
            committed = session.progress(progress.task, progress.done, progress.total)
        return pb.Ack(committed_steps=committed).SerializeToString()

    def _fetch(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        with refusing(context):
            session = self._session(context)
            wanted = convert.parse(pb.ChunkList, request)
            transit = session.transfer(len(wanted.chunks), context.cancel)
            with transit as sent, self._watchdog.watch(context.cancel) as moved:
                for index in wanted.chunks:
                    source = session.source(wanted.model)
                    _check_index(source.manifest, index)
                    chunk = source.chunk(index)
                    yield chunk
                    session.count(sent=len(chunk))
                    sent(len(chunk))
                    moved()

    def _lacking(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        with refusing(context):
            offer = convert.parse(pb.Offer, request)
            upload = self._session(context).upload(offer.task)
            upload.check(offer.task, offer.update)
        return pb.Lacking(chunks=upload.sink.missing()).SerializeToString()

    def _push(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        with refusing(context):
            session, task = self._session(context), _metadata(context, TASK)
            upload = session.upload(task)
            coming = convert.parse(pb.ChunkList, next(requests, b""))
            upload.check(task, coming.model)
            transit = session.transfer(len(coming.chunks), context.cancel)
            with transit as received, self._watchdog.watch(context.cancel) as moved:
                for index, chunk in zip(coming.chunks, requests, strict=False):
                    _check_index(upload.sink.manifest, index)
                    session.store(task, upload, index, chunk)
                    received(len(chunk))
                    moved()
            session.finish_push(task)
        return _ACK

    def _session(self, context: grpc.ServicerContext) -> Session:
        return self.session(self._silo(context), _metadata(context, SESSION))

    def _keep_head(self, head: SignedHead | None, context: grpc.ServicerContext) -> None:
        """Keep the head of a silo's audit log; what it came with counts, whatever the head is."""
        if head is None:
            return
        silo, certificate = self._silo(context), _certificate_of(context)
        key = certificate_of(certificate, "the certificate").public_key()
        if not isinstance(key, PublicKey) or not head.is_by(key, silo_uri(self._federation, silo)):
            raise AnchorageError(transfer.OUT_OF_BOUNDS, "audit head: it is not signed with the certificate's key")
        self._heads.keep(silo, key_fingerprint(certificate), head)

    def _silo(self, context: grpc.ServicerContext) -> str:
        """Return the member whose certificate the peer presented; a session that it opened with another key ends."""
        uris, key = _identity(_certificate_of(context))
        silo = silo_of(uris, self._federation)
        if silo is None:
            detail = f"the certificate names no silo of federation {self._federation}: enrol with one of its tokens"
            raise AnchorageError(transfer.NO_SILO_IDENTITY, detail)
        with self._showing:
            admitted = self._admit(silo, key)
            if admitted and self._shown.setdefault(silo, key) != key:
                self._shown[silo] = key
                self.expel(silo, "it shows another key now")
        if not admitted:
            detail = f"silo {silo} is no member of federation {self._federation}, was taken out, or shows another key"
            raise AnchorageError(transfer.SILO_NOT_ADMITTED, detail)
        return silo


def _metadata(context: grpc.ServicerContext, key: str) -> str:
    return str(dict(context.invocation_metadata()).get(key, ""))


def _check_index(manifest: Manifest, index: int) -> None:
    if index >= len(manifest.digests):
        detail = f"chunk {index} of {len(manifest.digests)} of {manifest.digest[:12]}"
        raise AnchorageError(transfer.MALFORMED_MESSAGE, f"{detail}: there is no such chunk")


def _certificate_of(context: grpc.ServicerContext) -> bytes:
    (certificate,) = context.auth_context().get("x509_pem_cert") or (b"",)
    return bytes(certificate)


def _key_of(context: grpc.ServicerContext) -> str:
    """Return the fingerprint of the key that the peer has shown: all connections of a silo are one peer."""
    return _identity(_certificate_of(context))[1]


@lru_cache(1024)
def _identity(certificate: bytes) -> tuple[list[str], str]:
    """Return the URI names in a certificate, and its key's fingerprint."""
    if not certificate:
        return [], ""
    return uris_of(x509.load_pem_x509_certificate(certificate)), key_fingerprint(certificate)
