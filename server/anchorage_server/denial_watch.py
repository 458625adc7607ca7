"""Ends the streams of silos that are denied while a server runs outside a cluster."""

import logging
from collections.abc import Callable
from threading import Event, Thread

from anchorage_server.admission import DocumentAdmission

LOOK_SECONDS = 0.5
"""Time between two looks at who is denied."""

_log = logging.getLogger(__name__)


class DenialWatch:
    """Tells of every change of the members.

    Parameters
    ----------
    admission : DocumentAdmission
        Says who the members are.
    changed : callable
        ``changed(names)`` with the members, in their order.
    """

    def __init__(self, admission: DocumentAdmission, changed: Callable[[tuple[str, ...]], None]) -> None:
        self._admission, self._changed = admission, changed
        self._over = Event()
        self._thread = Thread(target=self._watch, args=(admission.names,), name="denials", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._over.set()
        self._thread.join()

    def _watch(self, names: tuple[str, ...]) -> None:
        while not self._over.wait(LOOK_SECONDS):
            if (now := self._admission.names) != names:
                names = now
                _log.info("members changed", extra={"members": list(names)})
                self._changed(names)
