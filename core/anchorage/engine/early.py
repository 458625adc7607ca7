"""What happens while the engine waits for a quorum, kept until it goes on."""

from anchorage.transport.events import key_of
from anchorage.transport.messages import Announced, Arrived, Evaluated, Event, Joined, Left, TaskFailed

BUFFERED_EVENTS = (Announced, Evaluated, Arrived, TaskFailed, Joined, Left)
"""Events about a task or about a silo's presence; others need no second look."""


class EarlyEvents:
    """Events in order, the newest of each kind, silo and task; bounded by these.

    Such as the announcement that a silo says again to a server that came back, or an upload that was complete after other silos had left.
    """

    def __init__(self) -> None:
        self._events: dict[tuple[str, ...], Event] = {}

    def keep(self, event: Event) -> None:
        """Keep an event of `BUFFERED_EVENTS`."""
        if isinstance(event, BUFFERED_EVENTS):
            self._events.pop(key_of(event), None)
            self._events[key_of(event)] = event

    def take(self) -> list[Event]:
        """Return what was kept, and forget it."""
        events, self._events = list(self._events.values()), {}
        return events
