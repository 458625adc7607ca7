"""`KubeClient` straight over a `Store`, for tests that need no HTTP."""

from fake_api.store import Refused, Store, has_fields

from anchorage.api.errors.cluster import RESOURCES_NOT_INSTALLED
from anchorage.transport.kube.client import ApiError
from anchorage.transport.kube.resources import RESOURCES
from anchorage_operator.names import FIELD_MANAGER


def plural(kind):
    return RESOURCES[kind].plural


class StoreApi:
    """Every call is recorded as (verb, kind, name); `refuse` may raise an ApiError for a call."""

    def __init__(self, store=None):
        self.store = store or Store()
        self.calls = []
        self.refuse = lambda *call: None

    def writes(self):
        return [call for call in self.calls if call[0] not in ("get", "list")]

    def get(self, kind, namespace, name):
        try:
            return self._call("get", kind, name, self.store.get, plural(kind), namespace, name)
        except ApiError as error:
            if error.status == 404 and error.failure is not RESOURCES_NOT_INSTALLED:
                return None
            raise

    def list(self, kind, namespace, labels="", fields=""):
        objects = self._call("list", kind, "", self.store.list, plural(kind), namespace, labels)
        return (body for body in objects if has_fields(fields, body))

    def list_metadata(self, kind, namespace, labels):
        return (body["metadata"] for body in self.list(kind, namespace, labels))

    def apply(self, body):
        metadata = body["metadata"]
        where = plural(body["kind"]), metadata["namespace"], metadata["name"]
        return self._call("apply", body["kind"], metadata["name"], self.store.apply, *where, body, FIELD_MANAGER)

    def apply_status(self, body):
        metadata = body["metadata"]
        where = plural(body["kind"]), metadata["namespace"], metadata["name"]
        apply = self.store.apply
        return self._call("status", body["kind"], metadata["name"], apply, *where, body, FIELD_MANAGER, "status")

    def create(self, body):
        metadata = body["metadata"]
        where = plural(body["kind"]), metadata["namespace"]
        return self._call("create", body["kind"], metadata["name"], self.store.create, *where, body)

    def patch(self, kind, namespace, name, body):
        return self._call("patch", kind, name, self.store.patch, plural(kind), namespace, name, body)

    def delete(self, kind, namespace, name):
        self._call("delete", kind, name, self.store.delete, plural(kind), namespace, name)

    def _call(self, verb, kind, name, action, *arguments):
        self.calls.append((verb, kind, name))
        self.refuse(verb, kind, name)
        try:
            return action(*arguments)
        except Refused as refused:
            raise ApiError(refused.status, refused.reason, refused.message, refused.retry_after or 0.0) from refused
