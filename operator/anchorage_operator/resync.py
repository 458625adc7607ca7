"""Compares the cache with the API server's lists, to correct what the watch missed and to detect a stopped watch."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from anchorage.transport.kube.client import KubeClient
from anchorage_operator.cache import Cache, Key, Ref
from anchorage_operator.names import FEDERATION_LABEL, FIELD_MANAGER, MANAGED_BY_LABEL
from anchorage_operator.observed import CHILD_KINDS

_MANAGED = f"{MANAGED_BY_LABEL}={FIELD_MANAGER}"
WATCHED: Mapping[str, str] = {
    "Federation": "",
    "Silo": "",
    **dict.fromkeys(CHILD_KINDS, _MANAGED),
    "Pod": FEDERATION_LABEL,
    "PersistentVolumeClaim": "",
}
"""Label selector of every kind that is watched."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Resync:
    """Lists all watched objects."""

    api: KubeClient
    """Lists."""
    cache: Cache
    """Is corrected."""
    namespaces: Sequence[str]
    """Namespaces to look after; none: all."""
    wake: Callable[[Key], None]
    """Told every federation of which something was found otherwise than known."""
    clock: Callable[[], float]
    """Seconds on a scale that never goes back."""

    def __post_init__(self) -> None:
        self._last = self.clock()

    @property
    def age(self) -> float:
        """Seconds since the last successful resync, or since the start."""
        return self.clock() - self._last

    def fill(self) -> None:
        """Read everything once, before the watch starts.

        Raises
        ------
        ApiError
            A kind cannot be listed.
        """
        for kind, labels in WATCHED.items():
            for namespace in self._scopes():
                for body in self.api.list(kind, namespace, labels):
                    self._touch(self.cache.add_watched(body))
        self._last = self.clock()

    def run(self) -> int:
        """Compare and correct the cache; return the number of corrected objects.

        Raises
        ------
        ApiError
            A kind cannot be listed.
        """
        corrected = sum(self._compare(kind, labels) for kind, labels in WATCHED.items())
        if corrected:
            _log.info("the watch was behind", extra={"objects": corrected})
        self._last = self.clock()
        return corrected

    def _compare(self, kind: str, labels: str) -> int:
        known = self.cache.versions(kind, self.namespaces)
        found = {
            Ref(kind, metadata["namespace"], metadata["name"]): metadata["resourceVersion"]
            for namespace in self._scopes()
            for metadata in self.api.list_metadata(kind, namespace, labels)
        }
        changed = [ref for ref, version in found.items() if known.get(ref) != version]
        gone = [ref for ref in known if ref not in found]
        return sum(map(self._correct, [*changed, *gone]))

    def _correct(self, ref: Ref) -> bool:
        body = self.api.get(*ref)
        touched = self.cache.remove(ref) if body is None else self.cache.add_answer(body)
        self._touch(touched)
        return bool(touched)

    def _touch(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.wake(key)

    def _scopes(self) -> Iterator[str | None]:
        return iter(self.namespaces or (None,))
