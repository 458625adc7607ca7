"""The API server's lists and watches in the event loop of the test, so that both ends live in its time."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import web
from fake_api.server import discovery
from fake_api.store import PLURALS, Store, selects

BOOKMARK_SECONDS = 60.0


@dataclass
class Asked:
    time: float
    path: str
    watch: bool


class Streams:
    """`watching` is what streams do: normal, silent, closing, gone or failing; `cut` ends the open ones."""

    def __init__(self):
        self.store = Store()
        self.asked: list[Asked] = []
        self.watching = "normal"
        self._news = asyncio.Event()
        self._cut = asyncio.Event()

    async def start(self):
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return "http://{}:{}".format(*self._runner.addresses[0])

    async def stop(self):
        self.cut()
        await self._runner.cleanup()

    def apply(self, plural, name, body):
        self.store.apply(plural, "study", name, {"metadata": {"name": name}, **body}, "user")
        self.tell()

    def tell(self):
        self._news.set()
        self._news = asyncio.Event()

    def cut(self):
        self._cut.set()
        self._cut = asyncio.Event()
        self.tell()

    def watches(self, since=0.0):
        return [asked for asked in self.asked if asked.watch and asked.time >= since]

    async def _answer(self, request):
        watch = "watch" in request.query
        self.asked.append(Asked(asyncio.get_running_loop().time(), request.path, watch))
        if (found := discovery(request.path)) is not None:
            return web.json_response(found)
        words = request.path.strip("/").split("/")
        plural = words[-1]
        return await self._stream(request, plural) if watch else self._list(request, plural)

    def _list(self, request, plural):
        group, version, kind = PLURALS[plural]
        items = self.store.list(plural, "study", request.query.get("labelSelector", ""))
        answer = {"kind": f"{kind}List", "apiVersion": f"{group}/{version}" if group else version, "items": items}
        return web.json_response(answer | {"metadata": {"resourceVersion": self.store.version()}})

    async def _stream(self, request, plural):
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        selector, since, cut = request.query.get("labelSelector", ""), int(request.query["resourceVersion"]), self._cut
        while not cut.is_set():
            news = self._news
            if self.watching == "closing":
                break
            if self.watching in ("gone", "failing") or since < self.store.oldest:
                code = 500 if self.watching == "failing" else 410
                await _line(response, "ERROR", {"kind": "Status", "code": code, "reason": "Reason"})
                break
            if self.watching == "normal":
                for version, kind_of, _, event, body in list(self.store.log):
                    if version > since and kind_of == plural and selects(selector, body):
                        await _line(response, event, body)
                        since = version
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), BOOKMARK_SECONDS)
                continue
            if self.watching == "normal":
                await _line(response, "BOOKMARK", {"metadata": {"resourceVersion": str(since)}})
        return response


async def _line(response, kind, body):
    await response.write(json.dumps({"type": kind, "object": body}).encode() + b"\n")
