"""What an API server keeps: objects with versions, server-side apply good enough for tests, a log of events, garbage collection."""

import copy
import itertools
import json
import threading
import uuid
from dataclasses import dataclass, field

PLURALS = {
    "federations": ("anchorage.dev", "v1alpha1", "Federation"),
    "silos": ("anchorage.dev", "v1alpha1", "Silo"),
    "statefulsets": ("apps", "v1", "StatefulSet"),
    "networkpolicies": ("networking.k8s.io", "v1", "NetworkPolicy"),
    "services": ("", "v1", "Service"),
    "configmaps": ("", "v1", "ConfigMap"),
    "serviceaccounts": ("", "v1", "ServiceAccount"),
    "secrets": ("", "v1", "Secret"),
    "pods": ("", "v1", "Pod"),
    "persistentvolumeclaims": ("", "v1", "PersistentVolumeClaim"),
    "events": ("", "v1", "Event"),
    "namespaces": ("", "v1", "Namespace"),
    "nodes": ("", "v1", "Node"),
    "certificaterequests": ("cert-manager.io", "v1", "CertificateRequest"),
    "leases": ("coordination.k8s.io", "v1", "Lease"),
    "endpointslices": ("discovery.k8s.io", "v1", "EndpointSlice"),
    "storageclasses": ("storage.k8s.io", "v1", "StorageClass"),
    "customresourcedefinitions": ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
}
CLUSTER_WIDE = ("namespaces", "nodes", "storageclasses", "customresourcedefinitions")
LIST_MAPS = {"conditions": "type", "containers": "name", "ports": "name", "silos": "name"}


class Refused(Exception):
    def __init__(self, status, reason, message="", retry_after=None):
        super().__init__(message)
        self.status, self.reason, self.message, self.retry_after = status, reason, message, retry_after


@dataclass
class Store:
    objects: dict = field(default_factory=dict)
    log: list = field(default_factory=list)
    applied: dict = field(default_factory=dict)
    writes: list = field(default_factory=list)
    oldest: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    versions: itertools.count = field(default_factory=lambda: itertools.count(1000))

    def get(self, plural, namespace, name):
        with self.changed:
            current = self.objects.get((plural, namespace, name))
            if current is None:
                raise Refused(404, "NotFound", f'{plural} "{name}" not found')
            return copy.deepcopy(current)

    def list(self, plural, namespace=None, selector=""):
        with self.changed:
            return [
                copy.deepcopy(body)
                for (kind, where, _), body in sorted(self.objects.items())
                if kind == plural and namespace in (None, where) and selects(selector, body)
            ]

    def put(self, plural, document, namespace):
        """Place an object as it is."""
        with self.changed:
            return self._save(plural, namespace, document["metadata"]["name"], copy.deepcopy(document))

    def create(self, plural, namespace, body):
        with self.changed:
            name = body["metadata"]["name"]
            if (plural, namespace, name) in self.objects:
                raise Refused(409, "AlreadyExists", f'{plural} "{name}" already exists')
            return self._save(plural, namespace, name, copy.deepcopy(body))

    def apply(self, plural, namespace, name, body, manager, subresource=""):
        """Merge what is applied, and take away what this manager applied before and does not any more."""
        with self.changed:
            key = (plural, namespace, name)
            current = self.objects.get(key)
            if current is None and subresource:
                raise Refused(404, "NotFound", f'{plural} "{name}" not found')
            body = copy.deepcopy(body)
            if subresource:
                body = {"status": body.get("status", {})}
            else:
                body.pop("status", None)
                body.get("metadata", {}).pop("namespace", None)
            before = self.applied.get((*key, manager, subresource), {})
            others = [
                applied
                for (*which, who, part), applied in self.applied.items()
                if tuple(which) == key and (who, part) != (manager, subresource)
            ]
            merged = merge(copy.deepcopy(current) if current else {}, body, before, others)
            self.applied[(*key, manager, subresource)] = body
            return self._save(plural, namespace, name, merged)

    def patch(self, plural, namespace, name, body, subresource=""):
        with self.changed:
            current = self.get(plural, namespace, name)
            wanted = body.get("metadata", {}).get("resourceVersion")
            if wanted and wanted != current["metadata"]["resourceVersion"]:
                raise Refused(409, "Conflict", "the object has been modified")
            return self._save(plural, namespace, name, json_merge(current, body))

    def delete(self, plural, namespace, name):
        with self.changed:
            removed = self.objects.pop((plural, namespace, name), None)
            if removed is None:
                raise Refused(404, "NotFound", f'{plural} "{name}" not found')
            self._tell(
                "DELETED",
                plural,
                namespace,
                {**removed, "metadata": {**removed["metadata"], "resourceVersion": self._next()}},
            )
            for key in [key for key in self.applied if key[:3] == (plural, namespace, name)]:
                del self.applied[key]
            uid = removed["metadata"]["uid"]
            for (kind, where, owned), body in list(self.objects.items()):
                if any(owner["uid"] == uid for owner in body["metadata"].get("ownerReferences", ())):
                    self.delete(kind, where, owned)

    def compact(self):
        """Forget old events, so that a watch from an old version is told 410."""
        with self.changed:
            self.log.clear()
            self.oldest = next(self.versions)

    def version(self):
        with self.changed:
            return self._next()

    def _next(self):
        return str(next(self.versions))

    def _save(self, plural, namespace, name, body):
        group, version, kind = PLURALS[plural]
        before = self.objects.get((plural, namespace, name))
        body["apiVersion"], body["kind"] = (f"{group}/{version}" if group else version), kind
        metadata = body.setdefault("metadata", {})
        metadata.update(name=name, namespace=namespace)
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        metadata.setdefault("generation", 1)
        if before:
            metadata["resourceVersion"] = before["metadata"]["resourceVersion"]
            if json.dumps(before, sort_keys=True) == json.dumps(body, sort_keys=True):
                return copy.deepcopy(before)
            if before.get("spec") != body.get("spec"):
                metadata["generation"] = before["metadata"]["generation"] + 1
        metadata["resourceVersion"] = self._next()
        self.objects[plural, namespace, name] = body
        self._tell("MODIFIED" if before else "ADDED", plural, namespace, body)
        return copy.deepcopy(body)

    def _tell(self, kind, plural, namespace, body):
        self.log.append((int(body["metadata"]["resourceVersion"]), plural, namespace, kind, copy.deepcopy(body)))
        self.changed.notify_all()


def selects(selector, body):
    labels = body["metadata"].get("labels") or {}
    for part in filter(None, selector.split(",")):
        name, equals, value = part.partition("=")
        if name not in labels or (equals and labels[name] != value):
            return False
    return True


def has_fields(selector, body):
    for part in filter(None, selector.split(",")):
        path, _, value = part.partition("=")
        current = body
        for name in path.split("."):
            current = current.get(name) if isinstance(current, dict) else None
        if current != value:
            return False
    return True


def merge(current, wanted, before, others):
    """Merge; what this manager applied before and does not any more goes, unless another manager applied it too."""
    for name in set(before) - set(wanted):
        if not any(name in other for other in others):
            current.pop(name, None)
    for name, value in wanted.items():
        old = before.get(name)
        below = [other[name] for other in others if name in other]
        if isinstance(value, dict):
            there = current.get(name)
            old = old if isinstance(old, dict) else {}
            current[name] = merge(
                there if isinstance(there, dict) else {}, value, old, [one for one in below if isinstance(one, dict)]
            )
        elif name in LIST_MAPS and isinstance(value, list):
            current[name] = merge_list(current.get(name) or [], value, old or [], below, LIST_MAPS[name])
        else:
            current[name] = value
    return current


def merge_list(current, wanted, before, others, key):
    keys = {item.get(key) for other in others for item in other}
    gone = {item.get(key) for item in before} - {item.get(key) for item in wanted} - keys
    by_key = {item.get(key): item for item in current if item.get(key) not in gone}
    for item in wanted:
        by_key[item.get(key)] = merge(by_key.get(item.get(key), {}), item, {}, [])
    return list(by_key.values())


def json_merge(current, patch):
    if not isinstance(patch, dict):
        return patch
    current = dict(current) if isinstance(current, dict) else {}
    for name, value in patch.items():
        if value is None:
            current.pop(name, None)
        else:
            current[name] = json_merge(current.get(name), value)
    return current
