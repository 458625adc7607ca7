"""The operator's loops, played one after the other in fake time."""

import threading
from types import SimpleNamespace

from fake_api.memory import StoreApi, plural
from fake_api.operator_world import PART, PARTITION, SPEC

from anchorage.transport.kube.client import ApiError
from anchorage_operator.metrics import Metrics
from anchorage_operator.process import Operator
from anchorage_operator.resync import WATCHED
from anchorage_operator.settings import OperatorSettings
from anchorage_operator.work_queue import WorkQueue

RESYNC_SECONDS = 300
IMAGES = {"server": "example.org/s:1", "agent": "example.org/a:1"}
POD = {"apiVersion": "v1", "kind": "Pod", "name": "operator-x", "namespace": "anchorage", "uid": "1"}


class TurningQueue(WorkQueue):
    """Who waits for a key turns the clock to when one is due, up to an end."""

    end = 0.0

    def wait(self):
        while (key := self.take()) is None:
            if self._held or not self._heap or self._heap[0][0] > self.end:
                return None
            self._clock.now = max(self._clock.now, self._heap[0][0])
        return key


class TurningEvent(threading.Event):
    """Who waits for it turns the clock; it is set once the clock has reached an end."""

    clock, end = None, float("inf")

    def wait(self, timeout=None):
        self.clock.advance(timeout)

    def is_set(self):
        return super().is_set() or self.clock.now >= self.end


class Scene:
    def __init__(self, clock, api=None, leadership=None, **more):
        self.clock, self.api, self.attempts = clock, api or StoreApi(), []
        watched = ("study", "other")
        operator_settings = {
            "images": IMAGES,
            "listen": "127.0.0.1:0",
            "resyncSeconds": RESYNC_SECONDS,
            "watch": watched,
            **more,
        }
        self.metrics, self.over = Metrics(), []
        settings = OperatorSettings.model_validate(operator_settings)
        self.operator = Operator(settings, self.api, self.metrics, pod=POD, leadership=leadership)
        self.operator._stopped = TurningEvent()
        self.operator._stopped.clock = clock
        self.operator._watch = SimpleNamespace(alive=lambda: True, watch_over=self.over.append)

    def federation(self, name="derm", namespace="study"):
        self.api.store.apply("federations", namespace, name, {"metadata": {"name": name}, "spec": SPEC}, "user")
        managed = {"data": {**PART, "partition": {**PARTITION, "part": 0}}}
        spec = {"federation": name, "labels": "None", "managed": managed}
        self.api.store.apply("silos", namespace, "a", {"metadata": {"name": "a"}, "spec": spec}, "user")

    def namespace(self, name, **metadata):
        """Make a namespace, or change its labels or other metadata."""
        return self.api.store.put("namespaces", {"metadata": {"name": name, **metadata}}, "")

    def refuse(self, until, status, retry_after=0.0, verbs=("apply", "status", "create", "patch", "delete")):
        def refuse(verb, kind, name):
            if verb in verbs:
                self.attempts.append(self.clock.now)
                if self.clock.now < until:
                    raise ApiError(status, "Reason", "no", retry_after)

        self.api.refuse = refuse

    def resync(self, seconds):
        """Play the thread that lists."""
        self.operator._stopped.end = self.clock.now + seconds
        self.operator._resync_repeatedly()
        self.operator._stopped.end = float("inf")

    def turns(self, seconds):
        """Play the thread that takes part in the election."""
        self.operator._stopped.end = self.clock.now + seconds
        self.operator._take_turns()
        self.operator._stopped.end = float("inf")

    def work(self, seconds):
        """Play a thread that looks at federations."""
        self.operator._queue.end = self.clock.now + seconds
        self.operator._work()

    def go_on(self, intervals):
        """Play both for so many intervals between resyncs."""
        for _ in range(intervals):
            self.resync(RESYNC_SECONDS)
            self.work(0.0)

    def hear(self):
        """Let the watch bring everything."""
        for kind in WATCHED:
            for body in self.api.store.list(plural(kind)):
                self.operator.cache.add_watched(body)

    def condition(self, name, namespace):
        """Return the reason of a federation's condition Ready."""
        conditions = self.api.store.get("federations", namespace, name)["status"]["conditions"]
        return next(each["reason"] for each in conditions if each["type"] == "Ready")

    def built(self, namespace="study"):
        return {"derm-server", "a-silo"} <= {
            body["metadata"]["name"] for body in self.api.store.list("statefulsets", namespace)
        }
