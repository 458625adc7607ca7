"""The version promise: a server and an agent of neighbouring releases work together, all others say which side to upgrade."""

from types import ModuleType

import grpc
import pytest
from link_world import PROFILE, order_of, train_task
from link_world import model_of as model_of_size

from anchorage import __version__
from anchorage.api.errors import AnchorageError, transfer
from anchorage.transport import versions
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc import convert, server
from anchorage.transport.grpc.client import GrpcServerLink
from anchorage.transport.grpc.connection import Connection
from anchorage.transport.grpc.refusals import refusal_of
from anchorage.transport.grpc.server import GrpcSiloLink
from anchorage.transport.grpc.single_calls import describe
from anchorage.transport.messages import Assigned

OURS = 5
MODEL = model_of_size(0.1)


@pytest.fixture(autouse=True)
def our_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this release be the fifth, so that there are older ones than its neighbour."""
    modules: tuple[ModuleType, ...] = (versions, convert, server)
    for module in modules:
        monkeypatch.setattr(module, "PROTOCOL", OURS)


def hello(protocol: int, version: str = "0.9.9") -> pb.Hello:
    """What an agent of another release says first; one from before there were numbers says none."""
    return pb.Hello(labels="None", samples=12, version=version, protocol=protocol)


def welcomed(connection: Connection, request: pb.Hello) -> pb.Welcome:
    """Return the server's answer to a Hello, or raise its refusal."""
    try:
        return convert.parse(pb.Order, next(connection.open(request))).welcome
    except grpc.RpcError as error:
        raise refusal_of(error, "server") or AssertionError(f"would try for ever: {error}") from None
    finally:
        connection.close()


@pytest.mark.parametrize("protocol", [OURS - 1, OURS, OURS + 1])
def test_a_server_serves_agents_of_neighbouring_releases_and_says_its_own(serve, identities, protocol: int) -> None:
    _, port = serve()
    connection = Connection(f"127.0.0.1:{port}", identities.silo("a"))
    welcome = welcomed(connection, hello(protocol))
    assert (welcome.protocol, welcome.version) == (OURS, __version__)
    assert welcome.session and welcome.run


@pytest.mark.parametrize(
    ("protocol", "failure", "advice"),
    [
        (0, transfer.AGENT_TOO_OLD, "upgrade the agent"),
        (OURS - 2, transfer.AGENT_TOO_OLD, "upgrade the agent"),
        (OURS + 2, transfer.SERVER_TOO_OLD, "upgrade the server"),
        (2**32 - 1, transfer.SERVER_TOO_OLD, "upgrade the server"),
    ],
)
def test_a_server_refuses_other_agents_before_they_join(serve, identities, protocol: int, failure, advice: str) -> None:
    link, port = serve()
    connection = Connection(f"127.0.0.1:{port}", identities.silo("a"))
    with pytest.raises(AnchorageError, match=advice) as refused:
        welcomed(connection, hello(protocol))
    assert refused.value.failure is failure
    assert "0.9.9" in refused.value.message and __version__ in refused.value.message
    assert link.next_event(0.0) is None


def test_what_an_agent_calls_its_version_is_not_repeated_unless_it_is_one(serve, identities) -> None:
    _, port = serve()
    connection = Connection(f"127.0.0.1:{port}", identities.silo("a"))
    with pytest.raises(AnchorageError, match="the agent is of an unknown version") as refused:
        welcomed(connection, hello(1, "1\nANC-0000 Nothing: all is well"))
    assert "well" not in refused.value.message


def played(link: GrpcSiloLink, protocol: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a server be of another release, and refuse nobody."""
    monkeypatch.setattr(server, "require_neighbour", lambda *arguments: None)

    def greeting(session: str = "", head: object = None) -> pb.Welcome:
        return pb.Welcome(session=session, run="{}", version="0.8.8", protocol=protocol)

    monkeypatch.setattr(link, "_greeting", greeting)


@pytest.mark.parametrize("protocol", [OURS - 1, OURS, OURS + 1])
def test_an_agent_works_with_servers_of_neighbouring_releases(
    serve, dial, identities, monkeypatch, protocol: int
) -> None:
    link, port = serve()
    played(link, protocol, monkeypatch)
    assert describe(f"127.0.0.1:{port}", identities.silo("a")) == "{}"
    silo, task = dial(port), train_task(MODEL)
    link.offer(MODEL)
    assert silo.welcome() == "{}"
    link.assign("a", task)
    assert order_of(silo) == Assigned(task)


@pytest.mark.parametrize(
    ("protocol", "failure"),
    [
        (0, transfer.SERVER_TOO_OLD),
        (OURS - 2, transfer.SERVER_TOO_OLD),
        (OURS + 2, transfer.AGENT_TOO_OLD),
    ],
)
def test_an_agent_leaves_other_servers(serve, dial, identities, monkeypatch, protocol: int, failure) -> None:
    link, port = serve()
    played(link, protocol, monkeypatch)
    credentials = identities.silo("a")
    with pytest.raises(AnchorageError, match=r"0\.8\.8") as caught:
        describe(f"127.0.0.1:{port}", credentials)
    assert caught.value.failure is failure
    silo: GrpcServerLink = dial(port, credentials=credentials)
    with pytest.raises(AnchorageError) as caught:
        silo.welcome()
    assert caught.value.failure is failure, "and it does not try again"


def test_both_ends_say_the_same_number(serve, dial) -> None:
    sent = convert.profile_to_proto(PROFILE)
    assert (sent.protocol, sent.version) == (OURS, PROFILE.version)
    _, port = serve()
    assert dial(port).welcome()
