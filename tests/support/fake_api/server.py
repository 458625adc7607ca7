"""An API server over HTTP in a thread: discovery, the verbs of `KubeClient`, logs, commands in pods, watches, and faults on demand."""

import base64
import hashlib
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import yaml
from fake_api.store import CLUSTER_WIDE, PLURALS, Refused, Store, has_fields, selects

WRITES = ("POST", "PATCH", "PUT", "DELETE")
REVIEWS = "selfsubjectaccessreviews"
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
WEBSOCKET = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TOKEN = "secret-token"

Ran = subprocess.CompletedProcess


@dataclass
class Asked:
    method: str
    path: str
    query: dict
    content_type: str
    body: object
    time: float = field(default_factory=time.monotonic)

    @property
    def watch(self) -> bool:
        return self.query.get("watch") in ("true", "1")

    @property
    def write(self) -> bool:
        return self.method in WRITES and not self.path.endswith(REVIEWS)


class FakeApi:
    """Runs on a port of its own. `refuse` may answer a request with a Refused; `watching` is normal, silent, closing or gone.

    `denied` names what the user may not do (verb, resource or resource/subresource), `unknown` the plurals that are not installed,
    `logs` the texts of pods, and `run` carries out a command in a pod.
    """

    def __init__(self):
        self.store = Store()
        self.asked: list[Asked] = []
        self.refuse: Callable[[Asked], Refused | None] = lambda asked: None
        self.watching = "normal"
        self.bookmark_seconds = 0.5
        self.page = 1000
        self.token = ""
        self.denied: set[tuple[str, str]] = set()
        self.unknown: set[str] = set()
        self.version, self.seconds_ahead = "v1.34.4", 0.0
        self.logs: dict[str, str] = {}
        self.log_queries: list[dict[str, str]] = []
        self.commands: list[Sequence[str]] = []
        self.run: Callable[[str, Sequence[str]], Ran] | None = None
        self.tls: ssl.SSLContext | None = None
        self._server = None
        self.port = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def objects(self):
        return self.store.objects

    def put(self, plural, document, namespace="anchorage"):
        return self.store.put(plural, document, namespace)

    def find(self, plural, name, namespace="anchorage"):
        return self.objects.get((plural, namespace, name))

    def kubeconfig(self, path, *, namespace="anchorage"):
        """Write a kubeconfig whose token alone is accepted from now on."""
        self.token = TOKEN
        context = {"cluster": "here", "user": "me"} | ({"namespace": namespace} if namespace else {})
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [{"name": "here", "cluster": {"server": self.url}}],
            "users": [{"name": "me", "user": {"token": TOKEN}}],
            "contexts": [{"name": "fake", "context": context}],
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def writes(self, since=0):
        return [asked for asked in self.asked[since:] if asked.write]

    def start(self):
        self._server = _Server(("127.0.0.1", self.port), self)
        if self.tls:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def stop(self):
        """Go away: no new connections, and the open ones are cut."""
        self._server.shutdown()
        self._server.server_close()
        self._server.cut()
        self._thread.join()

    def cut_watches(self):
        self._server.cut()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address, api):
        self.api = api
        self.stopped = threading.Event()
        self.sockets = set()
        super().__init__(address, Handler)

    def cut(self):
        self.stopped.set()
        for one in list(self.sockets):
            with suppress(OSError):
                one.shutdown(2)
        with self.api.store.changed:
            self.api.store.changed.notify_all()
        self.sockets.clear()
        self.stopped = threading.Event()

    def handle_error(self, request, client_address):
        pass


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body sent after its headers would wait 40 ms for their acknowledgement

    def setup(self):
        super().setup()
        self.server.sockets.add(self.connection)

    def finish(self):
        self.server.sockets.discard(self.connection)
        super().finish()

    def log_message(self, format, *args):
        pass

    def date_time_string(self, timestamp=None):
        return formatdate(time.time() + self.server.api.seconds_ahead, usegmt=True)

    def do_GET(self):
        self._serve()

    do_POST = do_PATCH = do_PUT = do_DELETE = do_GET

    def _serve(self):
        api, parts = self.server.api, urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        asked = Asked(self.command, parts.path, query, self.headers.get("Content-Type", ""), body)
        api.asked.append(asked)
        self.name = ""
        try:
            if api.token and self.headers.get("Authorization") != f"Bearer {api.token}":
                raise Refused(401, "Unauthorized")
            if refusal := api.refuse(asked):
                raise refusal
            answer = self._answer(asked)
            if answer is not None:
                self._send(200, answer)
        except Refused as refusal:
            status = {
                "kind": "Status",
                "status": "Failure",
                "reason": refusal.reason,
                "message": refusal.message or refusal.reason,
                "details": {"name": self.name} if self.name else {},
                "code": refusal.status,
            }
            headers = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
            self._send(refusal.status, status, headers)

    def _send(self, status, answer, headers=None):
        content = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _answer(self, asked):
        api = self.server.api
        body = {"gitVersion": api.version} if asked.path == "/version" else discovery(asked.path)
        if body is not None:
            return body
        words = asked.path.strip("/").split("/")
        words = words[2:] if words[0] == "api" else words[3:]
        namespace = None
        if words[0] == "namespaces" and len(words) > 2:
            namespace, words = words[1], words[2:]
        plural, self.name, subresource = (*words, "", "")[:3]
        name = self.name
        verb = VERBS.get(asked.method) or ("get" if name else "watch" if asked.watch else "list")
        if (verb, f"{plural}/{subresource}" if subresource else plural) in api.denied:
            raise Refused(403, "Forbidden", f'User "me" cannot {verb} resource "{plural}"')
        if plural in api.unknown:
            return self._send(404, "404 page not found\n")
        if plural == REVIEWS:
            return self._review(asked.body)
        if subresource in ("log", "exec"):
            return self._log(asked, name) if subresource == "log" else self._execute(name)
        if name:
            namespace = namespace or ""
        store = api.store
        match asked.method:
            case "GET" if name:
                return store.get(plural, namespace, name)
            case "GET" if asked.watch:
                return self._stream(plural, namespace, asked.query)
            case "GET":
                return self._list(plural, namespace, asked.query)
            case "POST":
                return store.create(plural, namespace, asked.body)
            case "DELETE":
                store.delete(plural, namespace, name)
                return {"kind": "Status", "status": "Success"}
            case "PATCH" if "apply" in asked.content_type:
                return store.apply(plural, namespace, name, asked.body, asked.query["fieldManager"], subresource)
            case "PATCH":
                return store.patch(plural, namespace, name, asked.body, subresource)
        raise Refused(405, "MethodNotAllowed")

    def _list(self, plural, namespace, query):
        store, kind = self.server.api.store, PLURALS[plural][2]
        with store.changed:
            items = store.list(plural, namespace, query.get("labelSelector", ""))
            items = [item for item in items if has_fields(query.get("fieldSelector", ""), item)]
            version = store.version()
        first, limit = int(query.get("continue") or 0), int(query.get("limit") or len(items) or 1)
        limit = min(limit, self.server.api.page)
        more = {"continue": str(first + limit)} if first + limit < len(items) else {}
        items = items[first : first + limit]
        if "PartialObjectMetadataList" in self.headers.get("Accept", ""):
            items = [{"metadata": item["metadata"]} for item in items] or None  # as the real one
        else:
            items = [
                {name: value for name, value in item.items() if name not in ("kind", "apiVersion")} for item in items
            ]
        group, group_version, _ = PLURALS[plural]
        return {
            "kind": f"{kind}List",
            "apiVersion": f"{group}/{group_version}" if group else group_version,
            "metadata": {"resourceVersion": version, **more},
            "items": items,
        }

    def _review(self, review):
        asked = review["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
        return {**review, "status": {"allowed": (asked["verb"], resource) not in self.server.api.denied}}

    def _log(self, asked, pod):
        api = self.server.api
        if pod not in api.logs:
            raise Refused(404, "NotFound", f'pods "{pod}" not found')
        api.log_queries.append(asked.query)
        lines = api.logs[pod].splitlines(keepends=True)
        return self._send(200, "".join(lines[-int(asked.query.get("tailLines", len(lines))) :]))

    def _execute(self, pod):
        """Run a command over a WebSocket, as ``v4.channel.k8s.io`` has it: standard output, standard error, the verdict."""
        api, command = self.server.api, parse_qs(urlsplit(self.path).query)["command"]
        if not any(plural == "pods" and name == pod for plural, _, name in api.objects):
            raise Refused(404, "NotFound", f'pods "{pod}" not found')
        api.commands.append(command)
        done = api.run(pod, command)
        accepted = hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + WEBSOCKET).digest()
        self.close_connection = True
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(accepted).decode())
        self.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
        self.end_headers()
        for channel, data in ((1, done.stdout), (2, done.stderr), (3, json.dumps(_verdict(done.returncode)).encode())):
            for begin in range(0, len(data), 32_768):
                piece = bytes([channel]) + data[begin : begin + 32_768]
                self.wfile.write(b"\x82\x7e" + len(piece).to_bytes(2, "big") + piece)
        self.wfile.write(b"\x88\x00")

    def _stream(self, plural, namespace, query):
        api, stopped = self.server.api, self.server.stopped
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        since, bookmark = int(query["resourceVersion"]), time.monotonic()
        while not stopped.is_set():
            mode = api.watching
            if mode == "closing":
                return
            if mode == "gone" or since < api.store.oldest:
                self._line({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}})
                return
            if mode == "failing":
                self._line({"type": "ERROR", "object": {"kind": "Status", "code": 500, "reason": "InternalError"}})
                return
            if mode == "silent":
                stopped.wait(0.05)
                continue
            with api.store.changed:
                news = [
                    entry
                    for entry in api.store.log
                    if entry[0] > since and entry[1] == plural and namespace in (None, entry[2])
                ]
                if not news:
                    api.store.changed.wait(0.1)
            for version, _, _, kind, body in news:
                since = version
                if api.watching == "normal" and selects(query.get("labelSelector", ""), body):
                    self._line({"type": kind, "object": body})
            if time.monotonic() - bookmark > api.bookmark_seconds:
                bookmark = time.monotonic()
                self._line({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(since)}}})

    def _line(self, event):
        self.wfile.write(json.dumps(event).encode() + b"\n")
        self.wfile.flush()


def _verdict(code):
    if code == 0:
        return {"status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}


def discovery(path):
    groups = {}
    for plural, (group, version, kind) in PLURALS.items():
        verbs = ["list", "watch", "get", "patch", "create", "delete"]
        item = {
            "name": plural,
            "kind": kind,
            "singularName": kind.lower(),
            "namespaced": plural not in CLUSTER_WIDE,
            "verbs": verbs,
        }
        groups.setdefault((group, version), []).append(item)
    if path == "/api":
        return {"versions": ["v1"]}
    if path == "/apis":
        named = [{"groupVersion": f"{g}/{v}", "version": v, "name": g} for g, v in groups if g]
        return {"groups": [{"name": v["name"], "preferredVersion": v, "versions": [v]} for v in named]}
    for (group, version), resources in groups.items():
        if path == (f"/apis/{group}/{version}" if group else f"/api/{version}"):
            return {"resources": resources}
    return None
