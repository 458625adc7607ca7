"""A server as in a cluster, with an operator's part played by the test: authority in memory, members, answers to requests."""

import http.client
import json
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from server_site import Site, fetched, push

from anchorage.api.errors import AnchorageError
from anchorage.transport.grpc.client import GrpcServerLink
from anchorage.transport.grpc.single_calls import describe
from anchorage.transport.messages import Announcement, Assigned, Dismissed, Finished, Permit, Profile
from anchorage.transport.pki import (
    Credentials,
    SigningRequest,
    key_fingerprint,
    new_key,
    operator_uri,
    server_uri,
    silo_uri,
)
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

LEAVE_SECONDS = 120


class OperatedSite(Site):
    """`Site` whose server gets ready-made TLS files and is told by an operator who the members are."""

    def __init__(self, folder: Path, *, stay: bool = False, **spec: Any) -> None:
        super().__init__(folder, **spec)
        documents = list(yaml.safe_load_all((folder / "federation.yaml").read_text()))
        (folder / "federation.yaml").write_text(yaml.safe_dump(documents[0]))
        self.configure(
            federation="federation.yaml",
            state="state",
            dataRoot=".",
            tls="tls",
            controlListen="127.0.0.1:0",
            stay=stay,
        )
        self.new_server_certificate()
        self.operator = self.credentials("operator", operator_uri("derm"))
        request = SigningRequest.make(new_key(self.operator.key), operator_uri("derm"))
        self.operator.save_certificate(self.authority.issue_operator(request))

    def configure(self, **values: Any) -> None:
        (self.folder / "server.yaml").write_text(yaml.safe_dump(values))

    def keep_ports(self) -> None:
        """Let the next server listen where silos and operator look for it."""
        config = yaml.safe_load((self.folder / "server.yaml").read_text())
        control = self.endpoints["control"].removeprefix("https://")
        self.configure(**config | {"listen": self.endpoints["silos"], "controlListen": control})

    def new_server_certificate(self) -> bytes:
        """Put a new key and certificate into the TLS folder, as a Secret's volume would change."""
        tls = self.folder / "tls"
        tls.mkdir(exist_ok=True)
        key = new_key(tls / "tls.key")
        certificate = self.authority.issue_server(
            SigningRequest.make(key, server_uri("derm")), ["127.0.0.1", "localhost"]
        )
        (tls / "ca.pem").write_bytes(self.authority.certificate_pem)
        (tls / "tls.crt").write_bytes(certificate)
        return certificate

    def credentials(self, name: str, uri: str) -> Credentials:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return Credentials(folder / "key.pem", folder / "cert.pem", self.authority.certificate_path)

    def connect(self, credentials: Credentials | None = None) -> http.client.HTTPSConnection:
        shown = credentials or self.operator
        context = ssl.create_default_context(cafile=str(self.authority.certificate_path))
        context.load_cert_chain(shown.certificate, shown.key)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an authority need not have certified itself
        host, _, port = self.endpoints["control"].removeprefix("https://").rpartition(":")
        return http.client.HTTPSConnection(host, int(port), timeout=120, context=context)

    def ask(self, path: str, body: Any = None, connection: http.client.HTTPSConnection | None = None) -> Any:
        """GET, or PUT where there is a body; return the JSON of a 200 answer."""
        status, values = self.call("GET" if body is None else "PUT", path, body, connection)
        assert status == 200, (status, values)
        return values

    def call(
        self, method: str, path: str, body: Any = None, connection: http.client.HTTPSConnection | None = None
    ) -> tuple[int, Any]:
        connection_used = connection or self.connect()
        try:
            content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            connection_used.request(method, path, content)
            answer = connection_used.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            if connection is None:
                connection_used.close()

    def put_members(self, *silos: "WorkingSilo") -> None:
        members = [{"name": s.silo, "labels": "All", "key": s.key} for s in silos]
        self.ask("/members", {"members": members, "generation": 1})

    def status_of(self, silo: str) -> dict[str, Any]:
        silo_status: dict[str, Any] = next(s for s in self.ask("/status")["silos"] if s["name"] == silo)
        return silo_status


class WorkingSilo(threading.Thread):
    """A silo with a certificate of the authority, which adds a step to every weight; it can be held before it trains or uploads."""

    def __init__(self, site: OperatedSite, name: str, *, step: float = 1.0, samples: int = 100) -> None:
        super().__init__(daemon=True)
        self.site, self.silo, self.step, self.samples = site, name, np.float32(step), samples
        self.credentials = site.credentials(f"silo-{name}", silo_uri("derm", name))
        self.enrol()
        self.may_train, self.may_upload = threading.Event(), threading.Event()
        self.may_train.set()
        self.may_upload.set()
        self.permitted = threading.Event()
        self.dismissed: list[tuple[str, str]] = []
        self.trained: list[int] = []
        self.finished = False
        self.refusal: AnchorageError | None = None
        self.link: GrpcServerLink | None = None
        site.silos.append(self)

    def enrol(self) -> None:
        request = SigningRequest.make(new_key(self.credentials.key), silo_uri("derm", self.silo))
        self.credentials.save_certificate(self.site.authority.issue_silo(request, self.silo))
        self.key = key_fingerprint(self.credentials.certificate.read_bytes())

    def leave(self) -> None:
        """End, whatever it waits for."""
        self.may_train.set()
        self.may_upload.set()
        end = time.monotonic() + LEAVE_SECONDS
        while self.is_alive():
            assert time.monotonic() < end, f"{self.silo} does not leave"
            if self.link is not None:
                self.link.close()
            self.join(0.05)

    def run(self) -> None:
        try:
            self.work()
        except AnchorageError as error:
            self.refusal = error

    def work(self) -> None:
        address = self.site.endpoints["silos"]
        layout = Layout.from_json(json.loads(describe(address, self.credentials))["up"])
        self.link = link = GrpcServerLink(
            server=address,
            credentials=self.credentials,
            profile=Profile("All", self.samples, "test"),
            longest_pause_seconds=0.2,
        )
        updates: dict[str, ModelBytes] = {}
        try:
            while (order := link.next_order(None)) is not None:
                match order:
                    case Assigned(task):
                        self.may_train.wait(150)
                        if task.id not in updates and (model := fetched(link, task, layout)) is not None:
                            arrays = {n: a + self.step if a.dtype.kind == "f" else a for n, a in model.arrays().items()}
                            updates[task.id] = ModelBytes.from_arrays(layout, arrays)
                            self.trained.append(task.round)
                        if (update := updates.get(task.id)) is not None:
                            link.announce(Announcement(task.id, {"train": self.samples}, {}, {}, update.manifest))
                    case Permit(task):
                        self.permitted.set()
                        self.may_upload.wait(150)
                        push(link, task, updates[task])
                    case Dismissed(task, why):
                        self.dismissed.append((task, why))
                    case Finished():
                        self.finished = True
                        break
        finally:
            link.close()
