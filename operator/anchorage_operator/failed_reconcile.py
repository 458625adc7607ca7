"""What users see of a federation that the operator could not reconcile: its condition Ready, and an Event when that changes."""

from anchorage.api.status import ConditionType, timestamp
from anchorage.transport.kube.client import ApiError, KubeClient
from anchorage.transport.kube.resources import kube_object
from anchorage_operator import reasons
from anchorage_operator.cache import Cache, Key
from anchorage_operator.conditions import clip_message, find, find_written
from anchorage_operator.events import EventPoster
from anchorage_operator.names import involved_object
from anchorage_operator.planned import Event


def failure_message(error: Exception) -> str:
    """Say on one line why a reconcile failed, and where more is said."""
    if isinstance(error, ApiError):
        return clip_message(f"{error.message}; the operator tries again every 30 seconds")
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return clip_message(f"{what}; the operator's log has more (kubectl logs), and it tries again every 30 seconds")


def tell_failed_reconcile(
    api: KubeClient, cache: Cache, events: EventPoster, key: Key, error: Exception, now: float
) -> None:
    """Write why a federation could not be reconciled into its condition Ready, unless that is there; the rest of the status stays as it was.

    Raises
    ------
    ApiError
        It cannot be written.
    """
    federation, message = cache.federation(key), failure_message(error)
    if federation is None:
        return
    status = federation.get("status") or {}
    before = find(status, ConditionType.READY)
    if before is not None and (before.reason, before.message) == (reasons.RECONCILE_FAILED, message):
        return
    other_conditions = [each for each in status.get("conditions", ()) if each["type"] != ConditionType.READY]
    was = find_written(status, ConditionType.READY)
    ready = {
        "type": ConditionType.READY,
        "status": "False",
        "reason": reasons.RECONCILE_FAILED,
        "message": message,
        "lastTransitionTime": was["lastTransitionTime"] if was and was["status"] == "False" else timestamp(now),
        "observedGeneration": int(federation["metadata"].get("generation", 0)),
    }
    metadata = {"name": key.federation, "namespace": key.namespace}
    written = {**status, "conditions": [*other_conditions, ready], "lastUpdatedTime": timestamp(now)}
    cache.add_answer(api.apply_status(kube_object("Federation", metadata, status=written)))
    if before is None or before.reason != reasons.RECONCILE_FAILED:
        events.post(Event(involved_object(federation), "Warning", reasons.RECONCILE_FAILED, message))
