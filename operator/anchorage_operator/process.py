"""The operator process: threads that watch, resync, reconcile and poll, and their health checks."""

import logging
import time
from threading import Event, Thread
from typing import Literal

from anchorage.transport.kube.client import ApiError, KubeClient
from anchorage.transport.kube.resources import Json
from anchorage.transport.main_thread import WAIT_SECONDS
from anchorage.transport.probes import METRICS, Answer, ProbeServer, verdict
from anchorage.transport.retry import RANDOM, RetryPolicy
from anchorage_operator.cache import Cache, Key
from anchorage_operator.events import EventPoster
from anchorage_operator.identity import Identity
from anchorage_operator.leadership import RETRY_SECONDS, Leadership
from anchorage_operator.metrics import Metrics
from anchorage_operator.planned import Event as ClusterEvent
from anchorage_operator.poller import Poller
from anchorage_operator.reconcile import IncompleteError, Reconciler
from anchorage_operator.resync import Resync, Scope
from anchorage_operator.secret_facts import SecretFacts
from anchorage_operator.settings import OperatorSettings
from anchorage_operator.upgrades import Turns
from anchorage_operator.watch import PAUSE_SECONDS, SILENT_SECONDS, Watch
from anchorage_operator.work_queue import WorkQueue

WORKERS = 4
POLLERS = 8
STOP_SECONDS = 3.0
"""How long running work may take after the operator was told to stop; interrupting it is safe."""
MISSED_RESYNCS = 3
"""Resync intervals without a successful resync, or with the watch behind, after which the process reports itself unhealthy."""

_log = logging.getLogger(__name__)


class Operator:
    """Runs until it is stopped.

    Parameters
    ----------
    settings : OperatorSettings
        The operator's settings.
    api : KubeClient
        The cluster.
    metrics : Metrics
        Told what happens.
    pod : Json, optional
        The operator's own pod, as ``involvedObject`` takes it; Events about namespaces are about it.
    leadership : Leadership, optional
        This replica's part in the election; without it there is no other replica. All replicas watch, one acts.
    silent_seconds, pause_seconds : float, optional
        Of the watch.
    """

    def __init__(
        self,
        settings: OperatorSettings,
        api: KubeClient,
        metrics: Metrics,
        *,
        pod: Json | None = None,
        leadership: Leadership | None = None,
        silent_seconds: float = SILENT_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        clock = time.monotonic
        self._leadership = leadership
        self._leads = leadership.leads if leadership else lambda: True
        self._settings = settings
        self._metrics = metrics
        self._stopped = Event()
        self._filled = Event()
        self._queue: WorkQueue[Key] = WorkQueue(clock)
        self._polls: WorkQueue[Key] = WorkQueue(clock)
        self.cache = Cache(clock)
        self._events = EventPoster(api, time.time)
        self._pod = pod
        self._denied: set[Scope] = set()
        self._known: set[Scope] = set()
        self._unlisted = False
        self._facts = facts = SecretFacts(api, clock)
        self._identity = identity = Identity(
            api, facts, login_key=settings.tracking_login.key if settings.tracking_login is not None else None
        )
        self._poller = Poller(self.cache, identity, settings, self._polls, self._queue.add, time.time)
        self._acting = leadership is None
        if leadership:
            self._poller.before_write = leadership.require
            self._queue.hold()
            self._polls.hold()
        turns = Turns(settings.upgrades_at_once, clock)
        self._reconciler = Reconciler(
            api=api,
            cache=self.cache,
            facts=facts,
            identity=identity,
            poller=self._poller,
            events=self._events,
            settings=settings,
            now=time.time,
            turns=turns,
            contested=metrics.count_contested,
            installation=f"{pod['namespace']}/{settings.lease}" if pod and settings.lease else "",
        )
        self._resync = Resync(api, self.cache, settings.watch, self._queue.add, clock, settings.watch_labels)
        self._watch = Watch(
            api,
            self.cache,
            self._queue.add,
            on_restore=self._forget,
            defect=lambda: metrics.defect("watch"),
            silent_seconds=silent_seconds,
            pause_seconds=pause_seconds,
        )
        answers = {
            "/healthz": lambda: _verdict(self.unhealthy()),
            "/readyz": lambda: _verdict(self.unready()),
            "/metrics": lambda: (200, METRICS, metrics.exposition()),
        }
        self._probes = ProbeServer(settings.listen, answers)
        metrics.observe_depth(self._queue.__len__, self._polls.__len__)
        metrics.observe_watch(self._watch.alive, self.cache.lag)
        metrics.observe_leadership(self._leads)
        metrics.observe_upgrades(lambda: turns.waiting() if self._leads() else 0)
        metrics.observe_federations(lambda kind: self.cache.of_kind(kind) if self._leads() else iter(()))

    def run(self) -> None:
        """Run until `stop` is called, then end within seconds."""
        self._probes.start()
        threads = [Thread(target=self._resync_repeatedly, name="resync", daemon=True)]
        threads += [Thread(target=self._work, name=f"reconcile-{n}", daemon=True) for n in range(WORKERS)]
        threads += [Thread(target=self._poll, name=f"poll-{n}", daemon=True) for n in range(POLLERS)]
        threads += [Thread(target=self._take_turns, name="leadership", daemon=True)] if self._leadership else []
        threads[0].start()
        while not self._stopped.is_set() and not self._filled.wait(0.2):
            pass
        if self._filled.is_set():
            for thread in threads[1:]:
                thread.start()
        while not self._stopped.wait(WAIT_SECONDS):
            pass
        self._queue.close()
        self._polls.close()
        self._watch.stop()
        deadline = time.monotonic() + STOP_SECONDS
        for thread in threads:
            if thread.is_alive():
                thread.join(max(deadline - time.monotonic(), 0.0))
        if self._leadership:
            self._leadership.release()
        self._probes.stop()

    def stop(self) -> None:
        """Let `run` end."""
        self._stopped.set()

    def unhealthy(self) -> str:
        """Return a problem that a restart may fix; empty if there is none. One that the API server names is none."""
        longest = self._longest_silence
        if self._resync.silence > longest:
            return f"the API server has not answered a resync for {self._resync.silence:.0f} s"
        if self._filled.is_set() and not self._watch.alive():
            return "the watch has stopped"
        if self.cache.lag() > longest:
            return f"the watch is {self.cache.lag():.0f} s behind"
        if (late := self._queue.overdue()) > longest:
            return f"a federation has been waiting for {late:.0f} s to be reconciled"
        return ""

    def unready(self) -> str:
        """Return why the operator is not ready; empty if it is."""
        if not self._filled.is_set():
            return "nothing has been read from the API server yet"
        if self._resync.age > self._longest_silence:
            return f"the last successful resync was {self._resync.age:.0f} s ago"
        if self._leadership and self._leadership.problem:
            return f"cannot hold the Lease: {self._leadership.problem}"
        return self.unhealthy()

    @property
    def _longest_silence(self) -> float:
        return float(MISSED_RESYNCS * self._settings.resync_seconds)

    def _resync_repeatedly(self) -> None:
        """Fill the cache, then compare it with the API server's lists at regular intervals."""
        retry, failures = RetryPolicy(1.0, self._settings.resync_seconds, jitter=0.2), 0
        while not self._stopped.is_set():
            try:
                corrected = self._resync.run()
                if self._resync.readable:
                    self._metrics.record_resync(time.time(), corrected)
                self._look_after_namespaces()
                failures = 0
                pause = self._settings.resync_seconds * (0.8 + 0.2 * RANDOM.random())
            except ApiError as error:
                failures += 1
                pause = retry.pause(failures, error.retry_after)
                _log.warning("cannot list", extra={"error": str(error), "again": round(pause, 1)})
            except Exception:  # noqa: BLE001 logged; of one object or turn, and the others go on
                failures += 1
                pause = retry.pause(failures)
                self._metrics.defect("resync")
                _log.exception("internal error of the operator")
            self._stopped.wait(pause)

    def _look_after_namespaces(self) -> None:
        """Watch the namespaces that can be read, and tell of every one that no longer can, or can again."""
        denied, scopes = dict(self._resync.denied), self._resync.readable
        self._watch.watch_over(scopes)
        if (scopes or not self._resync.scopes) and not self._filled.is_set():
            self._filled.set()
            _log.info("watching", extra={"namespaces": [scope or "all" for scope in scopes]})
        for gone in self._known.difference(self._resync.scopes):
            self._metrics.drop_namespace(str(gone))
            self._denied.discard(gone)
        self._known = set(self._resync.scopes)
        self._look_after_selection()
        for scope in self._resync.scopes:
            name, why = scope or "all namespaces", denied.get(scope, "")
            self._metrics.namespace(name, readable=not why)
            if not self._leads():
                continue
            if why and scope not in self._denied:
                self._denied.add(scope)
                self._tell("Warning", "NamespaceDenied", f"the federations of {name} are left alone: {why}")
            elif not why and scope in self._denied:
                self._denied.remove(scope)
                self._tell("Normal", "NamespaceReadable", f"the federations of {name} are looked after again")

    def _look_after_selection(self) -> None:
        """Tell when namespaces can no longer be listed by their labels; those that are known are looked after still."""
        why = self._resync.unlisted
        if why and not self._unlisted and self._leads():
            self._tell(
                "Warning", "NamespacesNotListed", f"new namespaces with {self._resync.selector} go unnoticed: {why}"
            )
        self._unlisted = bool(why) and (self._unlisted or self._leads())

    def _tell(self, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        _log.warning(message, extra={"reason": reason})
        if self._pod is None:
            return
        try:
            self._events.post(ClusterEvent(self._pod, kind, reason, message))
        except ApiError as error:
            _log.warning("cannot post an Event", extra={"error": str(error)})

    def _take_turns(self) -> None:
        """Take part in the election, and let the workers work while this replica leads."""
        while self._leadership and not self._stopped.is_set():
            try:
                leads = self._leadership.turn()
            except Exception:  # noqa: BLE001 logged; of one object or turn, and the others go on
                self._metrics.defect("lease")
                _log.exception("internal error of the operator")
                leads = self._leads()
            if leads != self._acting:
                self._acting = leads
                _log.info("leading" if leads else "standing by")
                if leads:
                    self._forget()
                for queue in (self._queue, self._polls):
                    queue.open() if leads else queue.hold()
            self._stopped.wait(RETRY_SECONDS)

    def _forget(self) -> None:
        """Forget what may be otherwise now, by another replica or a restore: what Secrets held and servers said."""
        self._facts.clear()
        for ref in self.cache.versions("Federation", ()):
            self._identity.forget(Key(ref.namespace, ref.name))
            self._poller.forget(Key(ref.namespace, ref.name))

    def _work(self) -> None:
        while (key := self._queue.wait()) is not None:
            begun = time.monotonic()
            try:
                requeue_after = self._reconciler.reconcile(key)
            except (ApiError, IncompleteError) as error:
                self._metrics.count_reconcile("error", time.monotonic() - begun)
                pause = self._queue.failed(key, error.retry_after)
                _log.warning(
                    "reconcile failed", extra={"federation": key, "error": str(error), "again": round(pause, 1)}
                )
            except Exception as error:  # noqa: BLE001 logged; of one object or turn, and the others go on
                self._metrics.count_reconcile("defect", time.monotonic() - begun)
                self._metrics.defect("reconcile")
                self._queue.failed(key)
                _log.exception("internal error of the operator", extra={"federation": key})
                self._reconciler.tell_failure(key, error)
            else:
                self._metrics.count_reconcile("success", time.monotonic() - begun)
                self._queue.done(key, requeue_after)

    def _poll(self) -> None:
        while (key := self._polls.wait()) is not None:
            try:
                self._polls.done(key, self._poller.poll(key))
            except ApiError as error:
                self._polls.failed(key, error.retry_after)
                _log.warning("cannot poll the server", extra={"federation": key, "error": str(error)})
            except Exception:  # noqa: BLE001 logged; of one object or turn, and the others go on
                self._metrics.defect("poll")
                self._polls.failed(key)
                _log.exception("internal error of the operator", extra={"federation": key})


def _verdict(wrong: str) -> Answer:
    return verdict(not wrong, wrong or "ok")
