"""The watch: streams of events, one for each kind and namespace, that deliver objects to the cache.

A stream begins with a list of what exists, and again where the API server no longer knows the events after the version that was seen
last, or has gone back behind it, as after a restore of its data. What was deleted while no stream was open is noticed by the resync.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field
from threading import Event, Lock, Thread

from anchorage.transport.kube.client import ApiError, EventStream, KubeClient
from anchorage.transport.kube.resources import Json
from anchorage.transport.retry import RetryPolicy
from anchorage_operator.cache import Cache, Key, ref_of
from anchorage_operator.resync import WATCHED, Scope

STREAM_SECONDS = 300
"""Time after which the API server ends a stream."""
SILENT_SECONDS = 70.0
"""Maximum time without data; the API server sends a bookmark every minute."""
PAUSE_SECONDS = 1.0
"""Shortest time between the end of a stream and the start of the next one."""
LONGEST_PAUSE_SECONDS = 30.0
"""Limit of its growth while streams end soon; a stream that lasts longer ends the growth."""
STOP_SECONDS = 3.0
GONE = 410
"""HTTP status: the API server's memory of events does not reach back far enough."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Stream:
    """Follows the objects of one kind in one scope, stream after stream, until `end` is called."""

    api: KubeClient
    kind: str
    scope: Scope
    take_in: Callable[[str, Json], None]
    """Takes the type of an event and its object."""
    _: KW_ONLY
    before_relist: Callable[[], None] = lambda: None
    """Called before everything is listed again because the API server went back: what is stored may be newer than what is there."""
    after_relist: Callable[[], None] = lambda: None
    """Called after that: what was not listed is no more."""
    defect: Callable[[], None] = lambda: None
    """Called at every error of the operator's own."""
    clock: Callable[[], float] = time.monotonic
    silent_seconds: float = SILENT_SECONDS
    """As `SILENT_SECONDS`."""
    pause_seconds: float = PAUSE_SECONDS
    """As `PAUSE_SECONDS`."""
    listing: Lock = field(default_factory=Lock)
    """Held while a list is read; streams that share it never hold two pages of objects in memory at once."""
    ended: Event = field(default_factory=Event)
    """Set by `end`."""

    def __post_init__(self) -> None:
        self.last_event_time = self.clock()
        """When an attempt was begun or an event received last."""
        self._version, self._broken = "", False
        self._open: EventStream | None = None

    def run(self) -> None:
        """Follow the objects, whatever error ends a stream."""
        policy, failures = RetryPolicy(self.pause_seconds, LONGEST_PAUSE_SECONDS, jitter=0.5), 0
        while not self.ended.is_set():
            begun, wish = self.clock(), 0.0
            try:
                self._follow()
            except ApiError as error:
                wish = min(error.retry_after, LONGEST_PAUSE_SECONDS)
                self._handle(error, failures)
            except Exception:  # noqa: BLE001 logged; of one object or turn, and the others go on
                if not self.ended.is_set():  # else it was shut down in the middle
                    self.defect()
                    _log.exception("internal error of the operator", extra={"kind": self.kind, "scope": self.scope})
            failures = 1 if self.clock() - begun > LONGEST_PAUSE_SECONDS else failures + 1
            self.ended.wait(policy.pause(failures, wish))

    def end(self) -> None:
        """Let `run` return, also while it waits for an event."""
        self.ended.set()
        if self._open:
            self._open.shutdown()

    def _follow(self) -> None:
        """List the objects unless a version is known, and take in events after it until the stream ends."""
        self.last_event_time = self.clock()
        labels, back = WATCHED[self.kind], self._broken and self._went_back()
        self._broken = False
        if back:
            _log.warning(
                "the API server's data is older than what was seen, as after a restore: reading everything again",
                extra={"kind": self.kind, "scope": self.scope},
            )
            self.before_relist()
        if back or not self._version:
            with self.listing:
                self._version = self._list(labels)
        if back:
            self.after_relist()
        self._open = self.api.watch(
            self.kind, self.scope, labels, self._version, seconds=STREAM_SECONDS, silent_seconds=self.silent_seconds
        )
        if self.ended.is_set():  # before there was a stream to shut down
            self._open.shutdown()
        with closing(self._open.events) as events:
            for change, body in events:
                self._version = body["metadata"]["resourceVersion"]
                self._receive(change, body)

    def _went_back(self) -> bool:
        """Return whether the API server, which may have been away, no longer has the version that was seen last."""
        latest = self.api.latest_version(self.kind, self.scope)
        return self._version.isdigit() and latest.isdigit() and int(latest) < int(self._version)

    def _list(self, labels: str) -> str:
        """Take in the objects that exist; return the version of the list."""
        listed = ""
        for version, items in self.api.pages(self.kind, self.scope, labels):
            listed = version
            for body in items:
                self._receive("ADDED", body)
        return listed

    def _receive(self, change: str, body: Json) -> None:
        self.last_event_time = self.clock()
        if change != "BOOKMARK" and not self.ended.is_set():
            self.take_in(change, body)

    def _handle(self, error: ApiError, failures: int) -> None:
        if error.status == GONE:
            self._version = ""
            return
        self._broken = True
        if failures == 0 and not self.ended.is_set():
            _log.warning("a stream ended", extra={"kind": self.kind, "scope": self.scope, "error": str(error)})


@dataclass(eq=False)
class Watch:
    """Watches objects for the cache, with a thread for every stream."""

    api: KubeClient
    """Lists and opens the streams."""
    cache: Cache
    """Takes the objects."""
    wake: Callable[[Key], None]
    """Told every federation of which something changed."""
    _: KW_ONLY
    on_restore: Callable[[], None] = lambda: None
    """Called where the API server's data turned out to be older than what was seen."""
    defect: Callable[[], None] = lambda: None
    """As of `Stream`."""
    silent_seconds: float = SILENT_SECONDS
    """As `SILENT_SECONDS`."""
    pause_seconds: float = PAUSE_SECONDS
    """As `PAUSE_SECONDS`."""

    def __post_init__(self) -> None:
        self._threads: dict[tuple[Scope, str], tuple[Stream, Thread]] = {}
        self._stopped = False
        self._lock, self._listing = Lock(), Lock()

    def watch_over(self, scopes: Sequence[Scope]) -> None:
        """Watch these namespaces from now on, and end the streams of others."""
        with self._lock:
            wanted = [] if self._stopped else [(scope, kind) for scope in scopes for kind in WATCHED]
            for which in self._threads.keys() - set(wanted):
                self._threads.pop(which)[0].end()
            for which in wanted:
                if which not in self._threads:
                    self._threads[which] = self._begin(*which)

    def stop(self) -> None:
        """Stop watching for good, and wait briefly for the streams to end."""
        with self._lock:
            self._stopped, streams = True, list(self._threads.values())
        self.watch_over(())
        deadline = time.monotonic() + STOP_SECONDS
        for _, thread in streams:
            thread.join(max(deadline - time.monotonic(), 0.0))

    def alive(self) -> bool:
        """Return whether every stream was heard of recently enough to be open or about to be restarted."""
        latest = time.monotonic() - 2 * (self.silent_seconds + LONGEST_PAUSE_SECONDS)
        with self._lock:
            return all(
                thread.is_alive() and stream.last_event_time > latest for stream, thread in self._threads.values()
            )

    def _begin(self, scope: Scope, kind: str) -> tuple[Stream, Thread]:
        stream = Stream(
            self.api,
            kind,
            scope,
            self._take_in,
            before_relist=lambda: self.cache.mark_stale(kind, scope),
            after_relist=lambda: self._after_relist(kind, scope),
            defect=self.defect,
            silent_seconds=self.silent_seconds,
            pause_seconds=self.pause_seconds,
            listing=self._listing,
        )
        thread = Thread(target=stream.run, name=f"watch-{kind}", daemon=True)
        thread.start()
        return stream, thread

    def _take_in(self, change: str, body: Json) -> None:
        self._wake(self.cache.remove(ref_of(body)) if change == "DELETED" else self.cache.add_watched(body))

    def _after_relist(self, kind: str, scope: Scope) -> None:
        self.on_restore()
        self._wake(self.cache.drop_stale(kind, scope))

    def _wake(self, touched: Iterable[Key]) -> None:
        for key in touched:
            self.wake(key)
