"""Compares the cache with the API server's lists, to correct what the watch missed and to detect a stopped watch."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from anchorage.transport.kube.client import ApiError, KubeClient
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
DENIED = (403, 404)
"""HTTP statuses of a namespace that was deleted, or in which the operator has not the rights that it needs."""

Scope = str | None
"""A namespace; None stands for all namespaces at once."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Resync:
    """Lists all watched objects, namespace by namespace.

    A namespace that may not be read, or is gone, keeps no other one waiting: its objects are forgotten until it can be read again.
    """

    api: KubeClient
    """Lists."""
    cache: Cache
    """Is corrected."""
    namespaces: Sequence[str]
    """Namespaces to look after; neither these nor `labels`: all."""
    wake: Callable[[Key], None]
    """Told every federation of which something was found otherwise than known."""
    clock: Callable[[], float]
    """Seconds on a scale that never goes back."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of further namespaces to look after, as long as they have them."""

    def __post_init__(self) -> None:
        self._last_answer_time = self._last = self.clock()
        self.denied: dict[Scope, str] = {}
        """What the API server says of each namespace that cannot be read."""
        self.readable: tuple[Scope, ...] = ()
        """The others; none before the first run."""
        self.unlisted = ""
        """Why namespaces cannot be listed by their labels; empty if they can."""
        self._labelled: tuple[str, ...] = ()

    @property
    def selector(self) -> str:
        """The labels as the API server takes them."""
        return ",".join(f"{name}={value}" for name, value in self.labels.items())

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Every namespace to look after."""
        if not self.namespaces and not self.labels:
            return (None,)
        return tuple(dict.fromkeys((*self.namespaces, *self._labelled)))

    @property
    def age(self) -> float:
        """Seconds since the last run in which at least one namespace could be read, or since the start."""
        return self.clock() - self._last

    @property
    def silence(self) -> float:
        """Seconds since the API server, in the end of a run, said anything at all, if only that it refuses; or since the start."""
        return self.clock() - self._last_answer_time

    def run(self) -> int:
        """Compare and correct the cache; return the number of corrected objects, not counting namespaces that are read anew.

        Raises
        ------
        ApiError
            A kind cannot be listed, for another reason than `DENIED`.
        """
        corrected, readable = 0, list(self.readable)
        try:
            self._select()
            readable = [scope for scope in readable if scope in self.scopes]
            for scope in self.scopes:
                try:
                    if scope in readable:
                        corrected += sum(self._compare(kind, labels, scope) for kind, labels in WATCHED.items())
                    else:
                        self._fill(scope)
                        readable.append(scope)
                    self.denied.pop(scope, None)
                except ApiError as error:
                    if error.status not in DENIED:
                        raise
                    if scope in readable:
                        readable.remove(scope)
                    self._select()  # a namespace that is being deleted loses its RoleBindings first
                    if scope in self.scopes:
                        self.denied[scope] = error.message
                        self._forget(scope)
        except ApiError as error:
            if error.status not in (0, 401):
                self._last_answer_time = self.clock()
            raise
        finally:
            self.readable = tuple(readable)
        self._last_answer_time = self.clock()
        if readable or not self.scopes:
            self._last = self._last_answer_time
        if corrected:
            _log.info("the watch was behind", extra={"objects": corrected})
        return corrected

    def _select(self) -> None:
        """Find the namespaces with the labels, and forget what is in those that were among them."""
        if not self.labels:
            return
        try:
            namespaces = self.api.list_metadata("Namespace", None, self.selector)
            self._labelled = tuple(sorted(each["name"] for each in namespaces if "deletionTimestamp" not in each))
            self.unlisted = ""
        except ApiError as error:
            if error.status not in DENIED:
                raise
            self.unlisted = error.message
        self.denied = {scope: why for scope, why in self.denied.items() if scope in self.scopes}
        self._touch(self.cache.limit(scope for scope in self.scopes if scope is not None))

    def _fill(self, scope: Scope) -> None:
        """Take in a namespace, and wake its federations when all of it is known: a federation without its Silos would dismiss them."""
        touched: set[Key] = set()
        try:
            for kind, labels in WATCHED.items():
                for body in self.api.list(kind, scope, labels):
                    touched |= self.cache.add_watched(body)
        except ApiError:
            self._forget(scope)
            raise
        self._touch(touched)

    def _forget(self, scope: Scope) -> None:
        for kind in WATCHED:
            for ref in self.cache.versions(kind, () if scope is None else (scope,)):
                self._touch(self.cache.remove(ref))

    def _compare(self, kind: str, labels: str, scope: Scope) -> int:
        known = self.cache.versions(kind, () if scope is None else (scope,))
        versions = {
            Ref(kind, metadata["namespace"], metadata["name"]): metadata["resourceVersion"]
            for metadata in self.api.list_metadata(kind, scope, labels)
        }
        changed = [ref for ref, version in versions.items() if known.get(ref) != version]
        gone = [ref for ref in known if ref not in versions]
        return sum(map(self._correct, [*changed, *gone]))

    def _correct(self, ref: Ref) -> bool:
        body = self.api.get(*ref)
        touched = self.cache.remove(ref) if body is None else self.cache.add_answer(body)
        self._touch(touched)
        return bool(touched)

    def _touch(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.wake(key)
