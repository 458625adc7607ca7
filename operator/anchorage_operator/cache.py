"""The watched objects by federation, compressed: as Python objects they would take twelve times the memory."""

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Lock
from typing import Any, NamedTuple

from anchorage.transport.kube.resources import Json
from anchorage_operator.names import FEDERATION_LABEL
from anchorage_operator.observed import CHILD_KINDS

CLAIM = "PersistentVolumeClaim"


class Key(NamedTuple):
    """A federation, the unit of reconciling."""

    namespace: str
    federation: str


class Ref(NamedTuple):
    """An object of a kind that the operator watches."""

    kind: str
    namespace: str
    name: str


class _PackedObject(NamedTuple):
    uid: str
    version: str
    federation: str
    packed: bytes


class Cache:
    """The watched objects.

    Parameters
    ----------
    clock : callable
        Seconds on a scale that never goes back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pack_object: dict[Ref, _PackedObject] = {}
        self._of: defaultdict[Key, set[Ref]] = defaultdict(set)
        self._claims: defaultdict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
        self._awaited: dict[Ref, float] = {}
        self._namespaces: frozenset[str] | None = None
        self._lock = Lock()

    def limit(self, namespaces: Iterable[str] | None) -> set[Key]:
        """Keep and take objects of these namespaces only, or (None) of all; return the affected federations."""
        with self._lock:
            self._namespaces = None if namespaces is None else frozenset(namespaces)
            gone = [ref for ref in self._pack_object if not self._is_wanted(ref)]
            for ref in gone:
                self._awaited.pop(ref, None)
            return {key for ref in gone for key in self._drop(ref)}

    def add_watched(self, body: Json) -> set[Key]:
        """Store an object from the watch; return the affected federations, none if the object is already known."""
        ref = ref_of(body)
        with self._lock:
            self._awaited.pop(ref, None)
            return self._put(ref, body)

    def add_answer(self, body: Json) -> set[Key]:
        """Store an object from an API answer, which the watch is expected to deliver too. Returns as `add_watched`."""
        ref = ref_of(body)
        with self._lock:
            touched = self._put(ref, body)
            if touched:
                self._awaited.setdefault(ref, self._clock())
            return touched

    def remove(self, ref: Ref) -> set[Key]:
        """Remove a deleted object; return the affected federations."""
        with self._lock:
            self._awaited.pop(ref, None)
            return self._drop(ref)

    def renew(self, body: Json) -> set[Key]:
        """Store an object as it is now, also in place of a newer version, as after a restore. Returns as `add_watched`."""
        ref = ref_of(body)
        with self._lock:
            self._awaited.pop(ref, None)
            return self._drop(ref) | self._put(ref, body)

    def mark_stale(self, kind: str, namespace: str | None) -> None:
        """Let any version of these objects take the place of the stored one, as the API server's data went back; None: of all namespaces."""
        with self._lock:
            for ref, held in self._pack_object.items():
                if ref.kind == kind and namespace in (None, ref.namespace):
                    self._pack_object[ref] = held._replace(version="")

    def drop_stale(self, kind: str, namespace: str | None) -> set[Key]:
        """Remove the objects of which no version came since `mark_stale`; return the affected federations."""
        with self._lock:
            gone = [
                ref
                for ref, held in self._pack_object.items()
                if ref.kind == kind and namespace in (None, ref.namespace) and not held.version
            ]
            return {key for ref in gone for key in self._drop(ref)}

    def lag(self) -> float:
        """Age in seconds of the oldest stored object that the watch has not delivered yet."""
        with self._lock:
            return self._clock() - min(self._awaited.values()) if self._awaited else 0.0

    def __contains__(self, key: Key) -> bool:
        """Whether the federation, or anything of it, exists."""
        with self._lock:
            return key in self._of

    def versions(self, kind: str, namespaces: Iterable[str]) -> dict[Ref, str]:
        """Return the resourceVersion of every object of a kind, in these namespaces, or in all if none are given."""
        wanted = set(namespaces)
        with self._lock:
            return {
                ref: held.version
                for ref, held in self._pack_object.items()
                if ref.kind == kind and (not wanted or ref.namespace in wanted)
            }

    def get(self, ref: Ref) -> Json | None:
        """Return an object."""
        with self._lock:
            held = self._pack_object.get(ref)
        return _unpack(held.packed) if held else None

    def of_kind(self, kind: str) -> Iterator[Json]:
        """Yield every object of a kind."""
        for ref in self.versions(kind, ()):
            if (body := self.get(ref)) is not None:
                yield body

    def federation(self, key: Key) -> Json | None:
        """Return the Federation object."""
        return self.get(Ref("Federation", *key))

    def silos(self, key: Key) -> dict[str, Json]:
        """Return the federation's Silo objects by name."""
        return {ref.name: body for ref, body in self._all(key, {"Silo"})}

    def children(self, key: Key) -> dict[tuple[str, str], Json]:
        """Return the objects that the operator created for the federation, by kind and name."""
        return {(ref.kind, ref.name): body for ref, body in self._all(key, CHILD_KINDS)}

    def pods(self, key: Key) -> list[Json]:
        """Return the federation's pods, by name."""
        return [body for _, body in sorted(self._all(key, {"Pod"}), key=lambda item: item[0])]

    def claims(self, namespace: str) -> Mapping[str, str]:
        """Return the phase of every volume claim of a namespace by name."""
        with self._lock:
            return {name: phase for name, (phase, _) in self._claims[namespace].items()}

    def claim_sizes(self, namespace: str) -> Mapping[str, str]:
        """Return the requested size of every volume claim of a namespace by name."""
        with self._lock:
            return {name: size for name, (_, size) in self._claims[namespace].items()}

    def claim_federations(self, namespace: str) -> Mapping[str, str]:
        """Return the federation of every volume claim of a namespace that has the label of one, by name."""
        with self._lock:
            held = {name: self._pack_object[Ref(CLAIM, namespace, name)].federation for name in self._claims[namespace]}
        return {name: federation for name, federation in held.items() if federation}

    def _all(self, key: Key, kinds: Iterable[str]) -> list[tuple[Ref, Json]]:
        with self._lock:
            packed_objects = [
                (ref, self._pack_object[ref].packed) for ref in self._of.get(key, ()) if ref.kind in kinds
            ]
        return [(ref, _unpack(packed)) for ref, packed in packed_objects]

    def _is_wanted(self, ref: Ref) -> bool:
        return self._namespaces is None or ref.namespace in self._namespaces

    def _put(self, ref: Ref, body: Json) -> set[Key]:
        if not self._is_wanted(ref):
            return set()
        before, now = self._pack_object.get(ref), _pack_object(ref.kind, body)
        if before and before.uid == now.uid and _no_newer(now.version, before.version):
            return set()
        touched = self._drop(ref)
        self._pack_object[ref] = now
        if ref.kind == CLAIM:
            size = body.get("spec", {}).get("resources", {}).get("requests", {}).get("storage", "")
            self._claims[ref.namespace][ref.name] = body.get("status", {}).get("phase", ""), str(size)
        if now.federation:
            self._of[Key(ref.namespace, now.federation)].add(ref)
        return touched | self._keys_of(ref, now)

    def _drop(self, ref: Ref) -> set[Key]:
        held = self._pack_object.pop(ref, None)
        if held is None:
            return set()
        key = Key(ref.namespace, held.federation)
        if key in self._of:
            self._of[key].discard(ref)
            if not self._of[key]:
                del self._of[key]
        if ref.kind == CLAIM:
            del self._claims[ref.namespace][ref.name]
        return self._keys_of(ref, held)

    def _keys_of(self, ref: Ref, held: _PackedObject) -> set[Key]:
        if held.federation:
            return {Key(ref.namespace, held.federation)}
        return {key for key in self._of if key.namespace == ref.namespace}  # a claim that any of them may use


def ref_of(body: Json) -> Ref:
    """Return the reference of an object."""
    return Ref(body["kind"], body["metadata"]["namespace"], body["metadata"]["name"])


def _pack_object(kind: str, body: Json) -> _PackedObject:
    metadata: dict[str, Any] = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    match kind:
        case "Federation":
            federation = metadata["name"]
        case "Silo":
            federation = body.get("spec", {}).get("federation", "")
        case _:
            federation = metadata.get("labels", {}).get(FEDERATION_LABEL, "")
    packed = b"" if kind == CLAIM else _pack({**body, "metadata": metadata})
    return _PackedObject(metadata["uid"], metadata["resourceVersion"], federation, packed)


def _pack(body: Json) -> bytes:
    return zlib.compress(json.dumps(body, separators=(",", ":")).encode(), 1)


def _unpack(packed: bytes) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(zlib.decompress(packed))
    return body


def _no_newer(version: str, than: str) -> bool:
    """Return whether an object is the stored version or an older one, which a late event may deliver."""
    return version == than or (version.isdigit() and than.isdigit() and int(version) < int(than))
