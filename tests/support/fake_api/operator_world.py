"""The operator's reconciler over a store, a clock and a server that the test plays: everything but threads and networks."""

import hashlib
from dataclasses import dataclass, field

from fake_api.clock import Clock
from fake_api.memory import StoreApi

from anchorage.api.status import FederationStatus, SiloStatus
from anchorage.transport.pki import SigningRequest, key_fingerprint, make_key, silo_uri
from anchorage.transport.server_client import CertificateRequest, ServerError
from anchorage_operator.cache import Cache, Key
from anchorage_operator.events import EventPoster
from anchorage_operator.identity import Identity
from anchorage_operator.names import server_labels
from anchorage_operator.poller import Poller
from anchorage_operator.reconcile import Reconciler
from anchorage_operator.resync import Resync
from anchorage_operator.secret_facts import SecretFacts, encode_data
from anchorage_operator.settings import OperatorSettings
from anchorage_operator.upgrades import Turns
from anchorage_operator.work_queue import WorkQueue

DERM = Key("study", "derm")
SETTINGS = OperatorSettings.model_validate({"images": {"server": "example.org/s:1", "agent": "example.org/a:1"}})
SPEC = {
    "rounds": 20,
    "task": {"classification": {"classes": list("0123456789")}},
    "model": {"network": "SmallCnn", "imageSize": 8, "channels": 1, "augmentation": "Digits"},
    "method": {"name": "FedAnchor"},
    "protocol": {"minSilos": 2},
    "anchorData": {"format": "Digits", "use": "Anchors", "testPercent": 20, "anchors": 80},
}
PART = {"format": "Digits", "use": "Part", "testPercent": 20, "anchors": 80}
PARTITION = {"recipe": "PerClient", "parts": 3, "alpha": "0.5"}


@dataclass
class Server:
    """A federation's server: what it says and what it was told."""

    report: FederationStatus = field(default_factory=lambda: FederationStatus(rounds=20))
    members_known: tuple = ()
    waiting: list = field(default_factory=list)
    answers: list = field(default_factory=list)
    fails: ServerError | None = None

    def connect(self, address, port, name, context):
        self.address, self.context = address, context
        return self

    def _up(self):
        if self.fails:
            raise self.fails

    def status(self):
        self._up()
        return self.report

    def members(self):
        self._up()
        return self.members_known

    def requests(self):
        self._up()
        return tuple(self.waiting)

    def put_members(self, members, generation):
        self._up()
        self.members_known = members

    def put_answers(self, answers):
        self._up()
        self.answers += answers
        answered = {answer["id"] for answer in answers}
        self.waiting = [request for request in self.waiting if request.id not in answered]

    def close(self):
        pass


class World:
    def __init__(self, settings=SETTINGS):
        self.settings = settings
        self.clock = Clock(1_800_000_000.0)
        self.api = StoreApi()
        self.store = self.api.store
        self.server = Server()
        self.start()

    def start(self):
        """Start the operator, or start it again with nothing in its head."""
        cache = Cache(self.clock)
        facts = SecretFacts(self.api, self.clock)
        login = self.settings.tracking_login
        identity = Identity(self.api, facts, self.clock, login.key if login else None)
        polls = WorkQueue(self.clock)
        self.cache, self.identity = cache, identity
        self.woken = []
        self.poller = Poller(
            cache, identity, self.settings, polls, self.woken.append, self.clock, connect=self.server.connect
        )
        self.resync = Resync(self.api, cache, ("study",), self.woken.append, self.clock)
        self.reconciler = Reconciler(
            api=self.api,
            cache=cache,
            facts=facts,
            identity=identity,
            poller=self.poller,
            events=EventPoster(self.api, self.clock),
            settings=self.settings,
            now=self.clock,
            turns=Turns(self.settings.upgrades_at_once, self.clock),
        )
        self.resync.run()

    def look(self, key=DERM):
        """What the threads do in a few seconds: see what changed, ask the server, reconcile."""
        self.resync.run()
        if self.running():
            self.poller.poll(key)
        second = self.reconciler.reconcile(key)
        self.clock.advance(6.0)
        return second

    def settle(self, looks=8):
        for _ in range(looks):
            self.look()
        self.api.calls.clear()

    def running(self):
        return any(pod["status"].get("phase") == "Running" for pod in self.store.list("pods"))

    def federation(self, **spec):
        metadata = {"name": "derm", "namespace": "study"}
        body = {"metadata": metadata, "spec": {**SPEC, **spec}}
        return self.store.apply("federations", "study", "derm", body, "user")

    def silo(self, name, part=None):
        spec = {"federation": "derm", "labels": "None"}
        if part is not None:
            spec["managed"] = {"data": {**PART, "partition": {**PARTITION, "part": part}}}
        return self.store.apply("silos", "study", name, {"metadata": {"name": name}, "spec": spec}, "user")

    def approve(self, name, status="True"):
        moment = "2027-01-15T08:00:00Z"
        condition = {
            "type": "Approved",
            "status": status,
            "reason": "Person",
            "message": "",
            "lastTransitionTime": moment,
        }
        self.store.apply("silos", "study", name, {"status": {"conditions": [condition]}}, "fedctl", "status")

    def invite(self, name, token, expires="2027-02-01T00:00:00Z"):
        values = {"hash": hashlib.sha256(token.encode()).hexdigest(), "expires": expires}
        metadata = {"name": f"{name}-enrolment", "labels": {"anchorage.dev/federation": "derm"}}
        self.store.create("secrets", "study", {"metadata": metadata, "data": encode_data(values)})

    def run_server(self):
        """Let the server's pod run."""
        container = {"name": "server", "ready": True, "restartCount": 0, "state": {"running": {}}}
        conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]
        status = {"phase": "Running", "containerStatuses": [container], "conditions": conditions}
        stateful_sets = [
            body for body in self.store.list("statefulsets", "study") if body["metadata"]["name"] == "derm-server"
        ]
        owners = [{"uid": body["metadata"]["uid"]} for body in stateful_sets]
        body = {
            "metadata": {"name": "derm-server-0", "labels": server_labels("derm"), "ownerReferences": owners},
            "spec": {"containers": [{"name": "server"}]},
        }
        self.store.create("pods", "study", body | {"status": status})

    def connected(self, *silos):
        reports = tuple(SiloStatus(name=name, connected=True) for name in silos)
        self.server.report = FederationStatus(rounds=20, connected_silos=len(silos), silos=reports)

    def ask(self, silo, token="", key=None, kind="Enrol"):
        """Put a signing request on the server's desk; return its id and its key."""
        key = key or make_key()
        csr = SigningRequest.make(key, silo_uri("derm", silo)).decode()
        token_hash = hashlib.sha256(token.encode()).hexdigest() if token else ""
        name = hashlib.sha256(f"{kind}{silo}{csr}{token}".encode()).hexdigest()
        request = CertificateRequest(name, kind, silo, token_hash, key_fingerprint(csr.encode()), csr, self.clock.now)
        self.server.waiting.append(request)
        return name, key

    def answer(self, name):
        invitations = [answer for answer in self.server.answers if answer["id"] == name]
        return invitations[-1] if invitations else None

    def names(self, plural):
        return {body["metadata"]["name"] for body in self.store.list(plural, "study")}

    def condition(self, plural, name, kind):
        status = self.store.get(plural, "study", name).get("status", {})
        matching = [each for each in status.get("conditions", ()) if each["type"] == kind]
        return (matching[0]["status"], matching[0]["reason"]) if matching else None
