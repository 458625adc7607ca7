"""The watch: kopf delivers objects to the cache. The only module that uses kopf.

kopf lists and watches, follows bookmarks, and detects silent streams and expired versions. Two things are added here: a pause
before streams that end at once are restarted, and a restart of kopf after an error in a stream. kopf writes nothing: no finalizers,
annotations or Events. Its indices are not used, since they keep objects that were deleted while a stream was down.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from threading import Thread
from typing import Any

import aiohttp
import kopf
from kopf._core.engines.peering import Identity
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory

from anchorage.transport.kube.access import ClusterAccess
from anchorage.transport.kube.client import PAGE
from anchorage.transport.kube.resources import RESOURCES, Json
from anchorage.transport.retry import Backoff, RetryPolicy
from anchorage_operator.cache import Cache, Key, ref_of
from anchorage_operator.resync import WATCHED, Scope

STREAM_SECONDS = 300
"""Maximum duration of one stream."""
SILENT_SECONDS = 70.0
"""Maximum time without data; the API server sends a bookmark every minute."""
PAUSE_SECONDS = 1.0
"""Between the starts of two streams of the same kind."""
LONGEST_RESTART_SECONDS = 30.0
STOP_SECONDS = 3.0

IDENTITY = Identity("anchorage-operator")
"""Who kopf is; it would look for the user's name, and a pod's user often has none."""

_log = logging.getLogger(__name__)

_Handler = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]


@dataclass(eq=False)
class Watch:
    """Watches objects for the cache, in a thread and an event loop of its own."""

    access: ClusterAccess
    """How to reach the API server."""
    cache: Cache
    """Takes the objects."""
    scopes: Sequence[Scope]
    """Namespaces to watch; nothing is watched where there are none."""
    wake: Callable[[Key], None]
    """Told every federation of which something changed."""
    _: KW_ONLY
    silent_seconds: float = SILENT_SECONDS
    """As the module's constants."""
    pause_seconds: float = PAUSE_SECONDS
    """As the module's constants."""
    _streams: dict[str, float] = field(default_factory=dict, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._started = 0.0
        self._stop, self._change = asyncio.Event(), asyncio.Event()
        self._thread = Thread(target=lambda: asyncio.run(self._run()), name="watch", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._started = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Stop watching and wait briefly for open streams to close."""
        if self._loop:
            self._loop.call_soon_threadsafe(self._end)
            self._thread.join(STOP_SECONDS)

    def watch_over(self, scopes: Sequence[Scope]) -> None:
        """Watch these namespaces from now on; all streams begin anew where they are other ones than before."""
        if tuple(scopes) == tuple(self.scopes):
            return
        self.scopes, self._started = scopes, time.monotonic()
        self._streams.clear()
        if self._loop:
            self._loop.call_soon_threadsafe(self._change.set)

    def alive(self) -> bool:
        """Return whether a stream of every kind was started recently enough to be open or about to be restarted."""
        latest = time.monotonic() - STREAM_SECONDS - 2 * self.silent_seconds
        expected = len(WATCHED) * len(self.scopes)
        begun = self._started > latest or sum(begun > latest for begun in list(self._streams.values())) >= expected
        return self._thread.is_alive() and begun

    def _end(self) -> None:
        self._stop.set()
        self._change.set()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        backoff = Backoff(RetryPolicy(self.pause_seconds, LONGEST_RESTART_SECONDS, jitter=1.0))
        while not self._stop.is_set():
            begun, self._change = time.monotonic(), asyncio.Event()
            watching = asyncio.create_task(self._operator() if self.scopes else self._change.wait())
            await asyncio.wait((watching,))
            if error := watching.exception():
                _log.warning("the watch ended", extra={"error": f"{type(error).__name__}: {error}"[:500]})
            if self._change.is_set():
                continue
            if time.monotonic() - begun > LONGEST_RESTART_SECONDS:
                backoff.reset()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), backoff.next())

    async def _operator(self) -> None:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        for kind in WATCHED:
            kopf.on.event(*_selector(kind), registry=registry)(self._take_in)
        await kopf.operator(
            registry=registry,
            settings=_settings(self.silent_seconds, self.pause_seconds),
            stop_flag=self._change,
            standalone=True,
            identity=IDENTITY,
            memories=_Forgetful(),
            clusterwide=None in self.scopes,
            namespaces=[scope for scope in self.scopes if scope is not None],
        )

    async def _take_in(self, **given: Any) -> None:
        raw = given["event"]
        body: Json = raw["object"]
        if None not in self.scopes and body["metadata"]["namespace"] not in self.scopes:
            return  # of a stream that is about to end
        touched = self.cache.remove(ref_of(body)) if raw["type"] == "DELETED" else self.cache.add_watched(body)
        for key in touched:
            self.wake(key)

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        connector = aiohttp.TCPConnector(limit=0, ssl=self.access.tls() or True)
        session = aiohttp.ClientSession(connector=connector, middlewares=(self._pace,))
        return kopf.AiohttpSession(server=self.access.server, aiohttp_session=session)

    async def _pace(self, request: aiohttp.ClientRequest, handler: _Handler) -> aiohttp.ClientResponse:
        """Add the current token, and limit how fast streams that end at once are restarted."""
        if token := self.access.authorization():
            request.headers["Authorization"] = token
        if "watch" in request.url.query:
            path = request.url.path
            await asyncio.sleep(self._streams.get(path, 0.0) + self.pause_seconds - time.monotonic())
            self._streams[path] = time.monotonic()
        return await handler(request)


class _Forgetful(ResourceMemories):
    """Keeps nothing for handlers about every object: the one here has no use for it, and it takes a kilobyte each."""

    async def recall(self, raw_body: Any, **given: Any) -> ResourceMemory:
        return await super().recall(raw_body, **{**given, "ephemeral": True})


def _settings(silent_seconds: float, pause_seconds: float) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.process.ultimate_exiting_timeout = None  # by default it kills the process some time after a stream's error
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.watching.chunk_size = PAGE
    settings.watching.inactivity_timeout = silent_seconds
    settings.watching.server_timeout = STREAM_SECONDS
    settings.watching.connect_timeout = 10
    settings.watching.reconnect_backoff = pause_seconds
    settings.networking.request_timeout = 30
    settings.networking.error_backoffs = (1, 2, 5)
    settings.queueing.idle_timeout = 1.0
    settings.queueing.exit_timeout = 0.5
    for kind, labels in WATCHED.items():
        if labels:
            settings.watching.label_selectors[_selector(kind)] = labels
    return settings


def _selector(kind: str) -> tuple[str, str, str]:
    resource = RESOURCES[kind]
    return resource.group, resource.version, resource.plural


def silence_kopf() -> None:
    """Suppress kopf's log lines per event and its warning about unused signal handlers."""
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
