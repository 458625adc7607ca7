"""What happens while the engine waits for a quorum, kept until it goes on."""

from anchorage.transport.messages import Announced, Arrived, Evaluated, Event, Joined, Left, TaskFailed


class EarlyEvents:
    """Events in order, the newest of each kind, silo and task; bounded by these.

    Such as the announcement that a silo says again to a server that came back, or an upload that was complete after other silos had left.
    """

    def __init__(self) -> None:
        self._events: dict[tuple[str, ...], Event] = {}

    def keep(self, event: Event) -> None:
        """Keep an event about a task or about a silo's presence; others need no second look."""
        key: tuple[str, ...]
        match event:
            case Announced(silo, announcement):
                key = ("announced", silo, announcement.task)
            case Evaluated(silo, evaluation):
                key = ("evaluated", silo, evaluation.task)
            case Arrived(silo, task):
                key = ("arrived", silo, task)
            case TaskFailed(silo, task):
                key = ("failed", silo, task)
            case Joined(silo) | Left(silo):
                key = ("presence", silo)
            case _:
                return
        self._events.pop(key, None)
        self._events[key] = event

    def take(self) -> list[Event]:
        """Return what was kept, and forget it."""
        kept, self._events = list(self._events.values()), {}
        return kept
