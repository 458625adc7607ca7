"""Running servers are asked every few seconds; a new answer wakes the federation, an old one does not."""

import pytest
from fake_api.clock import Clock
from fake_api.memory import StoreApi

from anchorage.api.status import Condition, FederationStatus
from anchorage.transport.kube.client import ApiError
from anchorage.transport.server_client import Member, ServerError
from anchorage_operator import poller as poller_module
from anchorage_operator.cache import Cache, Key, Ref
from anchorage_operator.identity import Identity
from anchorage_operator.names import server_labels
from anchorage_operator.observed import Unreachable
from anchorage_operator.planned import MakeAuthority
from anchorage_operator.poller import QUICK_FOR_SECONDS, Poller
from anchorage_operator.secret_facts import SecretFacts
from anchorage_operator.settings import OperatorSettings
from anchorage_operator.work_queue import WorkQueue

DERM = Key("ns", "derm")
SETTINGS = OperatorSettings.model_validate({"images": {"server": "s", "agent": "a"}})


class Server:
    """What `ServerClient` is, without a network."""

    def __init__(self, address, port, name, context):
        self.address, self.port, self.name, self.context = address, port, name, context
        self.closed = False

    report = FederationStatus(round=1)
    fails = None
    put = ()

    def status(self):
        if Server.fails:
            raise Server.fails
        return Server.report

    def members(self):
        return ()

    def requests(self):
        return ()

    def put_members(self, members, generation):
        Server.put = members

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def fresh():
    Server.report, Server.fails, Server.put = FederationStatus(round=1), None, ()


@pytest.fixture
def clock():
    return Clock(1_800_000_000.0)


@pytest.fixture
def cache(clock):
    cache = Cache(clock)
    metadata = {
        "name": "derm-server",
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": "1",
        "labels": server_labels("derm"),
    }
    cache.add_watched({"kind": "Service", "metadata": metadata, "spec": {"clusterIP": "10.0.0.7"}})
    cache.add_watched(
        {"kind": "Pod", "metadata": {**metadata, "name": "derm-server-0"}, "status": {"phase": "Running"}}
    )
    return cache


@pytest.fixture
def woken():
    return []


@pytest.fixture
def queue(clock):
    return WorkQueue(clock)


@pytest.fixture
def poller(cache, clock, queue, woken):
    api = StoreApi()
    identity = Identity(api, SecretFacts(api, clock), clock)
    identity.make_authority(DERM, MakeAuthority(None, server_labels("derm")))
    return Poller(cache, identity, SETTINGS, queue, woken.append, clock, connect=Server)


def test_a_running_server_is_polled_once_it_is_asked_about(poller, queue, cache):
    assert poller.latest(DERM, cache.pods(DERM)) is None
    assert queue.take() == DERM


def test_what_it_said_is_remembered_and_wakes_only_when_new(poller, woken, cache):
    poller.poll(DERM)
    assert poller.latest(DERM, cache.pods(DERM)).report == FederationStatus(round=1)
    Server.report = FederationStatus(round=1, last_updated_time="2027-01-15T08:00:00Z")
    poller.poll(DERM)
    assert woken == [DERM]
    Server.report = FederationStatus(round=2)
    poller.poll(DERM)
    assert woken == [DERM, DERM]


def test_an_error_of_the_operator_s_own_is_told_and_raised_again(poller, cache, woken, clock):
    begun = clock.now
    for _ in range(3):
        Server.fails = OSError("no certificate or crl found")
        with pytest.raises(OSError, match="no certificate"):
            poller.poll(DERM)
        clock.advance(5.0)
    report = poller.latest(DERM, cache.pods(DERM)).report
    assert isinstance(report, Unreachable) and (report.reason, report.since) == ("InternalError", begun)
    assert report.message.startswith("OSError: no certificate or crl found; the operator's log has more")
    assert woken == [DERM]
    Server.fails = None
    poller.poll(DERM)
    assert poller.latest(DERM, cache.pods(DERM)).report == FederationStatus(round=1)


def test_it_is_asked_at_the_service_s_address_under_its_name(poller):
    client = poller.client(DERM)
    assert (client.address, client.port, client.name) == ("10.0.0.7", 8445, "derm-server.ns.svc")
    assert poller.client(DERM) is client


def test_a_new_address_means_a_new_connection(poller, cache):
    client = poller.client(DERM)
    cache.remove(Ref("Service", "ns", "derm-server"))
    second = poller.client(DERM)
    assert second.address == "derm-server.ns.svc.cluster.local" and client.closed


def test_it_is_asked_often_at_first_then_as_the_settings_say_and_seldom_once_over(poller, clock):
    assert poller.poll(DERM) == 1.0
    clock.advance(QUICK_FOR_SECONDS + 1)
    assert poller.poll(DERM) == SETTINGS.poll_seconds
    done = Condition(type="Succeeded", status="True", reason="Succeeded", last_transition_time="2027-01-15T08:00:00Z")
    sending = done.model_copy(update={"type": "Tracked", "status": "Unknown", "reason": "Sending"})
    Server.report = FederationStatus(round=15, conditions=(done, sending))
    assert poller.poll(DERM) == SETTINGS.poll_seconds, "what comes of it shows soon"
    Server.report = FederationStatus(round=15, conditions=(done, sending.model_copy(update={"status": "True"})))
    assert poller.poll(DERM) == SETTINGS.resync_seconds


def test_silence_is_told_with_its_beginning(poller, clock, woken, cache):
    poller.poll(DERM)
    Server.fails = ServerError("Timeout", "derm-server.ns.svc/status: timed out")
    begun = clock.now
    for _ in range(3):
        poller.poll(DERM)
        clock.advance(5.0)
    answer = poller.latest(DERM, cache.pods(DERM))
    assert answer.report == Unreachable("Timeout", "derm-server.ns.svc/status: timed out", begun)
    assert answer.members is None
    assert len(woken) == 2


def test_without_an_authority_there_is_nobody_to_ask(cache, clock, queue, woken):
    api = StoreApi()
    poller = Poller(
        cache, Identity(api, SecretFacts(api, clock), clock), SETTINGS, queue, woken.append, clock, connect=Server
    )
    poller.poll(DERM)
    assert poller.latest(DERM, cache.pods(DERM)).report.reason == "AuthorityUnusable"


def test_a_server_whose_pod_is_gone_is_not_asked(poller, cache):
    client = poller.client(DERM)
    cache.remove(Ref("Pod", "ns", "derm-server-0"))
    assert poller.poll(DERM) is None
    assert poller.latest(DERM, cache.pods(DERM)) is None
    assert client.closed


def test_members_that_were_put_are_known_before_the_next_poll(poller, cache):
    poller.poll(DERM)
    members = (Member("a", "None", "f" * 64),)
    poller.put_members(DERM, members, 3)
    assert Server.put == members
    assert poller.latest(DERM, cache.pods(DERM)).members == members


def test_a_server_is_told_nothing_by_who_does_not_lead(poller):
    def refuse():
        raise ApiError(0, "NotLeading", "another one does")

    poller.before_write = refuse
    assert poller.poll(DERM)
    for tell in (
        lambda: poller.put_members(DERM, (Member("a", "None", "f" * 64),), 3),
        lambda: poller.put_answers(DERM, []),
    ):
        with pytest.raises(ApiError, match="another one does"):
            tell()
    assert Server.put == ()


def test_a_server_that_is_not_trusted_is_asked_with_a_new_certificate(poller):
    before = poller.client(DERM).context
    Server.fails = ServerError("CertificateNotTrusted", "self-signed")
    poller.poll(DERM)
    assert poller.client(DERM).context is not before


def test_constants_are_in_order():
    assert poller_module.QUICK_SECONDS <= SETTINGS.poll_seconds <= SETTINGS.resync_seconds
