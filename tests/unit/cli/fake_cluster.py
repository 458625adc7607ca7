"""An API server in this process for fedctl: objects in the operator tests' store, logs from texts, commands of pods from a function."""

import asyncio
import base64
import copy
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from fake_api.store import Refused, Store, selects

Json = dict[str, Any]
Ran = subprocess.CompletedProcess[bytes]


class FakeCluster:
    """Answers as a Kubernetes API server does, for what fedctl asks.

    Parameters
    ----------
    run : callable
        Carries out a command in a pod.
    """

    def __init__(self, run: Callable[[str, Sequence[str]], Ran] | None = None) -> None:
        self.store = Store()
        self.logs: dict[str, str] = {}
        self.denied: set[tuple[str, str]] = set()  # verb, resource or resource/subresource
        self.unknown: set[str] = set()  # plurals that are not installed
        self.seconds_ahead = 0.0
        self.version = "v1.34.4"
        self.writes: list[tuple[str, str, Mapping[str, str], Any]] = []
        self.commands: list[Sequence[str]] = []
        self.reads: list[Mapping[str, str]] = []  # queries of logs
        self.url = ""
        self.run = run

    @property
    def objects(self) -> dict[tuple[str, str, str], Json]:
        """What is kept, by plural, namespace and name."""
        return self.store.objects

    def put(self, plural: str, document: Json, namespace: str = "anchorage") -> Json:
        """Place an object as it is."""
        name = document["metadata"]["name"]
        metadata = {
            "namespace": namespace,
            "uid": f"uid-of-{name}",
            "generation": 1,
            "resourceVersion": "1",
            **document["metadata"],
        }
        stored = copy.deepcopy({**document, "metadata": metadata})
        self.objects[plural, namespace, name] = stored
        return stored

    def get(self, plural: str, name: str, namespace: str = "anchorage") -> Json | None:
        return self.objects.get((plural, namespace, name))

    @contextmanager
    def serving(self) -> Iterator["FakeCluster"]:
        loop, started = asyncio.new_event_loop(), threading.Event()

        async def serve() -> None:
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", self._answer)
            runner = web.AppRunner(app, shutdown_timeout=1.0)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            self.url = f"http://{host}:{port}"
            started.set()
            await self._stop.wait()
            await runner.cleanup()

        def work() -> None:
            asyncio.set_event_loop(loop)
            self._stop = asyncio.Event()
            loop.run_until_complete(serve())
            loop.close()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert started.wait(10)
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(self._stop.set)
            thread.join(10)

    def kubeconfig(self, path: Path, *, namespace: str | None = "anchorage") -> Path:
        context = {"cluster": "here", "user": "me"} | ({"namespace": namespace} if namespace else {})
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "fake",
                    "clusters": [{"name": "here", "cluster": {"server": self.url}}],
                    "users": [{"name": "me", "user": {"token": "secret-token"}}],
                    "contexts": [{"name": "fake", "context": context}],
                }
            )
        )
        return path

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("authorization") != "Bearer secret-token":
            return _status(401, "Unauthorized", "Unauthorized")
        if request.path == "/version":
            return web.json_response({"gitVersion": self.version}, headers={"Date": self._date()})
        parts = request.path.strip("/").split("/")
        rest = parts[3:] if parts[0] == "apis" else parts[2:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, sub = (*rest, "", "")[:3]
        verb = _verb(request.method, name)
        if (verb, f"{plural}/{sub}" if sub else plural) in self.denied:
            return _status(403, "Forbidden", f'User "me" cannot {verb} resource "{plural}"')
        if plural in self.unknown:
            return web.Response(status=404, text="404 page not found\n")
        if plural == "selfsubjectaccessreviews":
            return self._review(await request.json())
        if sub == "log":
            return await self._log(request, name)
        if sub == "exec":
            return await self._exec(request, name)
        return await self._object(request, plural, namespace, name, sub)

    def _date(self) -> str:
        return formatdate(time.time() + self.seconds_ahead, usegmt=True)

    def _review(self, review: Json) -> web.Response:
        wanted = review["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (wanted["resource"], wanted.get("subresource"))))
        review["status"] = {"allowed": (wanted["verb"], resource) not in self.denied}
        return web.json_response(review, status=201)

    async def _object(
        self, request: web.Request, plural: str, namespace: str, name: str, sub: str
    ) -> web.StreamResponse:
        if request.method == "GET" and not name:
            return self._list(request, plural, namespace)
        body = json.loads(await request.text()) if request.method in ("POST", "PATCH") else None
        if request.method != "GET":
            self.writes.append((request.method, request.path, dict(request.query), body))
        try:
            return web.json_response(self._carried_out(request, plural, namespace, name, sub, body))
        except Refused as refused:
            return _status(refused.status, refused.reason, refused.message, name)

    def _carried_out(self, request: web.Request, plural: str, namespace: str, name: str, sub: str, body: Any) -> Any:
        match request.method:
            case "POST":
                return self.store.create(plural, namespace, body)
            case "DELETE":
                self.store.delete(plural, namespace, name)
                return {"status": "Success"}
            case "PATCH" if "apply" in request.headers["content-type"]:
                return self.store.apply(plural, namespace, name, body, request.query["fieldManager"], sub)
            case "PATCH":
                return self.store.patch(plural, namespace, name, body, sub)
            case _:
                return self.store.get(plural, namespace, name)

    def _list(self, request: web.Request, plural: str, namespace: str) -> web.Response:
        items = [
            item
            for (kind, space, _), item in sorted(self.objects.items())
            if kind == plural and namespace in ("", space) and selects(request.query.get("labelSelector", ""), item)
        ]
        begin = int(request.query.get("continue", "0"))
        limit = min(2, int(request.query["limit"]))  # pages are small, so that every test turns them
        more = {"continue": str(begin + limit)} if begin + limit < len(items) else {}
        return web.json_response({"items": items[begin : begin + limit], "metadata": more})

    async def _log(self, request: web.Request, pod: str) -> web.StreamResponse:
        if pod not in self.logs:
            return _status(404, "NotFound", f'pods "{pod}" not found', pod)
        lines = self.logs[pod].splitlines(keepends=True)
        self.reads.append(dict(request.query))
        return web.Response(text="".join(lines[-int(request.query.get("tailLines", len(lines))) :]))

    async def _exec(self, request: web.Request, pod: str) -> web.StreamResponse:
        if self.get("pods", pod) is None:
            return _status(404, "NotFound", f'pods "{pod}" not found', pod)
        command = request.query.getall("command")
        self.commands.append(command)
        assert self.run is not None
        done = await asyncio.to_thread(self.run, pod, command)
        socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
        await socket.prepare(request)
        for channel, data in ((1, done.stdout), (2, done.stderr)):
            for begin in range(0, len(data), 32_768):
                await socket.send_bytes(bytes([channel]) + data[begin : begin + 32_768])
        await socket.send_bytes(b"\x03" + json.dumps(_ended(done.returncode)).encode())
        await socket.close()
        return socket


def _ended(code: int) -> Json:
    if code == 0:
        return {"status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}


def _verb(method: str, name: str) -> str:
    return {"POST": "create", "PATCH": "patch", "DELETE": "delete"}.get(method, "get" if name else "list")


def _status(code: int, reason: str, message: str, name: str = "") -> web.Response:
    details = {"name": name} if name else {}
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "details": details}
    return web.json_response({**body, "code": code}, status=code)


def encoded(**values: str) -> dict[str, str]:
    """Write values as a Secret's data."""
    return {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
