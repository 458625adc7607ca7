"""The queue of events for the engine. It never blocks, and its size is bounded by the number of silos and tasks."""

from anchorage.transport import messages


class EventQueue:
    """Events in order of arrival, at most one per silo, kind and task: a newer event replaces the one that it supersedes.

    Of progress only the newest is kept. For a silo that connects and disconnects repeatedly at most two unread events
    are kept, the last of which tells whether it is connected. Not thread-safe.
    """

    def __init__(self) -> None:
        self._events: dict[tuple[str, ...], messages.Event] = {}

    def __len__(self) -> int:
        return len(self._events)

    def post(self, event: messages.Event) -> None:
        """Add an event, or replace the one that it supersedes."""
        match event:
            case messages.Joined(silo) | messages.Left(silo):
                self._post_presence(silo, event)
            case messages.MembersChanged(silos, gone):  # it comes after the joins and leaves that it is about
                unread = self._events.pop(key_of(event), None)
                earlier = unread.gone if isinstance(unread, messages.MembersChanged) else frozenset()
                self._events[key_of(event)] = messages.MembersChanged(silos, earlier | gone)
            case messages.Broken():
                self._events.setdefault(key_of(event), event)
            case _:
                self._events[key_of(event)] = event

    def pop(self) -> messages.Event | None:
        """Remove and return the oldest event; None when there is none."""
        return self._events.pop(next(iter(self._events))) if self._events else None

    def _post_presence(self, silo: str, event: messages.Joined | messages.Left) -> None:
        places = ("presence 1", silo), ("presence 2", silo)
        unread = [place for place in places if place in self._events]
        if len(unread) == 2:  # the older first
            unread = [place for place in self._events if place in places]
        if len(unread) == 2 and type(event) is type(self._events[unread[0]]):
            del self._events[unread.pop()]
        if unread and type(event) is type(self._events[unread[-1]]):
            self._events[unread[-1]] = event
        else:
            self._events[next(place for place in places if place not in unread)] = event


def key_of(event: messages.Event) -> tuple[str, ...]:
    """Return what two events share of which only the newer one needs to be read: their kind, silo and task."""
    match event:
        case messages.Joined(silo) | messages.Left(silo):
            return ("presence", silo)
        case messages.Announced(silo, messages.Announcement(task)) | messages.Evaluated(
            silo, messages.Evaluation(task)
        ):
            return (type(event).__name__, silo, task)
        case messages.Arrived(silo, task) | messages.TaskFailed(silo, task):
            return (type(event).__name__, silo, task)
        case messages.Progressed(silo):
            return ("Progressed", silo)
        case _:
            return (type(event).__name__,)
