"""Posts Events about federations and silos; a repeated Event is counted instead of posted again."""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from anchorage.api.status import timestamp
from anchorage.transport.kube.client import ApiError, KubeClient
from anchorage.transport.kube.resources import Json
from anchorage_operator.names import FIELD_MANAGER
from anchorage_operator.planned import Event

LONGEST_MESSAGE = 1024
"""Bytes; the API server refuses more."""
REMEMBERED = 1000
"""Events that are counted when they repeat."""
REPEAT_SECONDS = 60.0
"""How often the count of a repeated event is written."""
FRESH_SECONDS = 3000.0
"""The API server forgets events after an hour; before that, one that repeats is posted anew."""


@dataclass(slots=True)
class _Posted:
    name: str
    first: float
    written: float
    count: int = 1


class EventPoster:
    """Posts Events.

    Parameters
    ----------
    api : KubeClient
        Writes them.
    now : callable
        Seconds since the epoch.
    """

    def __init__(self, api: KubeClient, now: Callable[[], float]) -> None:
        self._api = api
        self._now = now
        self._posted: OrderedDict[tuple[str, str, str], _Posted] = OrderedDict()
        self._lock = Lock()

    def post(self, event: Event) -> None:
        """Post an Event, or count it if the same one was posted recently.

        Raises
        ------
        ApiError
            It cannot be written.
        """
        now, key = self._now(), (event.about["uid"], event.reason, event.message)
        with self._lock:
            known = self._posted.get(key)
            if known and now - known.first < FRESH_SECONDS:
                known.count += 1
                if now - known.written < REPEAT_SECONDS:
                    return
                known.written = now
            else:
                known = None
        if known and self._count(event, known, now):
            return
        body = _body(event, now)
        self._api.create(body)
        with self._lock:
            self._posted[key] = _Posted(body["metadata"]["name"], now, now)
            if len(self._posted) > REMEMBERED:
                self._posted.popitem(last=False)

    def _count(self, event: Event, known: _Posted, now: float) -> bool:
        """Write the count of a repeated Event; False if the Event no longer exists."""
        body = {"count": known.count, "lastTimestamp": timestamp(now)}
        try:
            self._api.patch("Event", event.about["namespace"], known.name, body)
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return True


def last_refusal(api: KubeClient, stateful_set: Json) -> str:
    """Return why the API server would not take a StatefulSet's pod the last time; empty where it took it, or was not asked.

    Raises
    ------
    ApiError
        The Events cannot be listed, for another reason than that a role of somebody's own does not allow it.
    """
    failure = _last_failure(api, "StatefulSet", stateful_set, ("FailedCreate",), ("SuccessfulCreate",))
    return failure.rpartition(" failed error: ")[2]


def volume_failure(api: KubeClient, pod: Json) -> str:
    """Return why a pod's volumes were not attached or mounted the last time; empty where they were, or nobody tried. Raises as `last_refusal`."""
    done = ("SuccessfulAttachVolume", "Pulling", "Pulled", "Created", "Started")
    return _last_failure(api, "Pod", pod, ("FailedMount", "FailedAttachVolume"), done)


def _last_failure(api: KubeClient, kind: str, body: Json, failed: Sequence[str], done: Sequence[str]) -> str:
    """Return the message of an object's latest Event of these reasons, where that is one of a failure."""
    metadata = body["metadata"]
    fields = f"involvedObject.kind={kind},involvedObject.uid={metadata['uid']}"
    try:
        events = list(api.list("Event", metadata["namespace"], fields=fields))
    except ApiError as error:
        if error.status != 403:
            raise
        return ""
    last = max((event for event in events if event.get("reason") in (*failed, *done)), key=_moment, default=None)
    return "" if last is None or last["reason"] in done else str(last.get("message", ""))


def _moment(event: Json) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp", ""))


def _body(event: Event, now: float) -> dict[str, Any]:
    about = event.about
    name = f"{about['name'][:200]}.{secrets.token_hex(8)}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": about["namespace"]},
        "involvedObject": dict(about),
        "type": event.type,
        "reason": event.reason,
        "message": event.message.encode()[:LONGEST_MESSAGE].decode(errors="ignore"),
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "firstTimestamp": timestamp(now),
        "lastTimestamp": timestamp(now),
        "count": 1,
    }
