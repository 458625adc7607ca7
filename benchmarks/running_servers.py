"""Plays the servers of federations for `reconcile.py`: one port that answers as the control endpoint of each."""

import ssl
import tempfile
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from anchorage.api.status import FederationStatus, Metric, SiloStatus, timestamp

CONTROL_PORT = 8445
ROUND_SECONDS = 60.0
"""Time of a round that is played."""


class RunningServers(ThreadingHTTPServer):
    """Answers for every federation with the certificate that the operator made for the name that is asked for.

    Parameters
    ----------
    address : str
        Of this machine, as the API server's network reaches it.
    namespace : str
        Of the federations.
    certificates : mapping of str to bytes
        Key and certificate of every federation's server, PEM.
    silos : int
        Connected silos of each.
    rounds : int
        Rounds of each, of which it never reaches the last.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(
        self, address: str, namespace: str, certificates: Mapping[str, bytes], silos: int, rounds: int
    ) -> None:
        super().__init__((address, CONTROL_PORT), _Handler)
        self._names = {f"{name}-server.{namespace}.svc": name for name in certificates}
        self._contexts = {name: _context(pem) for name, pem in certificates.items()}
        self._silos, self._rounds, self._begun = silos, rounds, time.monotonic()
        any_name = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        any_name.sni_callback = self._choose
        self.socket = any_name.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        Thread(target=self.serve_forever, daemon=True).start()

    def _choose(self, connection: ssl.SSLObject, asked: str | None, _: ssl.SSLContext) -> int | None:
        name = self._names.get(asked or "")
        if name is None:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        connection.context = self._contexts[name]
        vars(connection)["federation"] = name
        return None

    def answer(self, path: str, federation: str) -> bytes:
        """Return what the server of a federation says: it trains, its silos are connected, and a round is committed now and then."""
        if path != "/status":
            return b'{"members": [], "requests": []}'
        now = timestamp(time.time())
        committed = min(int((time.monotonic() - self._begun) / ROUND_SECONDS), self._rounds - 1)
        names = (f"{federation}-{k}" for k in range(self._silos))
        silos = tuple(SiloStatus(name=each, connected=True, state="Training", last_seen_time=now) for each in names)
        metrics = tuple(Metric(name=name, value="0.91234") for name in ("accuracy", "auc", "balancedAccuracy", "loss"))
        status = FederationStatus(
            round=committed,
            rounds=self._rounds,
            step="train",
            connected_silos=self._silos,
            silos=silos,
            metrics=metrics if committed else (),
            last_updated_time=now,
        )
        return status.model_dump_json(by_alias=True, exclude_none=True).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: RunningServers

    def do_GET(self) -> None:
        self._say(self.server.answer(self.path, vars(self.connection)["federation"]))

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._say(b"{}")

    def _say(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _context(pem: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def running(address: str) -> dict[str, object]:
    """Return the status of a server's pod that runs at an address."""
    container = {
        "name": "server",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {}},
        "image": "",
        "imageID": "",
    }
    ready = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "ContainersReady", "Ready")]
    addresses = {"podIP": address, "podIPs": [{"ip": address}]}
    return {"phase": "Running", "conditions": ready, "containerStatuses": [container], **addresses}
