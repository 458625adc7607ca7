"""An API server over HTTP in a thread: discovery, the verbs that the operator uses, watches, and faults on demand."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from fake_api.store import PLURALS, Refused, Store, selects

WRITES = ("POST", "PATCH", "PUT", "DELETE")


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
        return self.method in WRITES


class FakeApi:
    """Runs on a port of its own. `refuse` may answer a request with a Refused; `watching` is normal, silent, closing or gone."""

    def __init__(self):
        self.store = Store()
        self.asked: list[Asked] = []
        self.refuse: Callable[[Asked], Refused | None] = lambda asked: None
        self.watching = "normal"
        self.bookmark_seconds = 0.5
        self._server = None
        self.port = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def writes(self, since=0):
        return [asked for asked in self.asked[since:] if asked.write]

    def start(self):
        self._server = _Server(("127.0.0.1", self.port), self)
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
        super().__init__(address, _Handler)

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


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.sockets.add(self.connection)

    def finish(self):
        self.server.sockets.discard(self.connection)
        super().finish()

    def log_message(self, format, *args):
        pass

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
        try:
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
                "code": refusal.status,
            }
            headers = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
            self._send(refusal.status, status, headers)

    def _send(self, status, answer, headers=None):
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _answer(self, asked):
        found = discovery(asked.path)
        if found is not None:
            return found
        words = asked.path.strip("/").split("/")
        words = words[2:] if words[0] == "api" else words[3:]
        namespace = None
        if words[0] == "namespaces" and len(words) > 2:
            namespace, words = words[1], words[2:]
        plural, name, subresource = (*words, "", "")[:3]
        store = self.server.api.store
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
            version = store.version()
        first, limit = int(query.get("continue") or 0), int(query.get("limit") or len(items) or 1)
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


def discovery(path):
    groups = {}
    for plural, (group, version, kind) in PLURALS.items():
        verbs = ["list", "watch", "get", "patch", "create", "delete"]
        item = {
            "name": plural,
            "kind": kind,
            "singularName": kind.lower(),
            "namespaced": kind != "Namespace",
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
