"""What is under test: links in process and over gRPC, round stores in memory and on disk."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from link_world import PROFILE, Identities, SystemClock, World
from store_world import IDENTITY, Open

from anchorage.engine.store import DiskStore, HeldUpdates, Identity, MemoryStore, RoundStore
from anchorage.simulation.link import InProcessLink
from anchorage.transport.grpc.client import GrpcServerLink
from anchorage.transport.grpc.server import GrpcSiloLink
from anchorage_server.held_heads import HeldHeads


@pytest.fixture(scope="session")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    """Give one federation's authority with a server's certificate."""
    made = Identities(tmp_path_factory.mktemp("pki"))
    made.server()
    return made


@pytest.fixture
def serve(identities: Identities, tmp_path: Path) -> Iterator[Callable[..., tuple[GrpcSiloLink, int]]]:
    """Give a function that starts a gRPC server's end and returns it with its port."""
    links = []

    def start(**overrides: Any) -> tuple[GrpcSiloLink, int]:
        settings: dict[str, Any] = {
            "listen": "127.0.0.1:0",
            "credentials": identities.files("server"),
            "welcome": '{"federation":"derm"}',
            "admit": lambda silo, key: True,
            "renew": lambda csr_pem, silo: identities.authority.issue_silo(csr_pem, silo),
            "heads": HeldHeads(tmp_path / "audit-heads"),
            "clock": SystemClock(),
        }
        link = GrpcSiloLink(**(settings | overrides))
        port = link.start()
        links.append(link)
        return link, port

    yield start
    for link in links:
        link.stop(0)


@pytest.fixture
def dial(identities: Identities) -> Iterator[Callable[..., GrpcServerLink]]:
    """Give a function that connects a silo over gRPC."""
    links = []

    def connect(port: int, silo: str = "a", **overrides: Any) -> GrpcServerLink:
        settings: dict[str, Any] = {
            "server": f"127.0.0.1:{port}",
            "credentials": overrides.get("credentials") or identities.silo(silo),
            "profile": PROFILE,
            "longest_pause_seconds": 0.2,
        }
        links.append(GrpcServerLink(**(settings | overrides)))
        return links[-1]

    yield connect
    for link in links:
        link.close()


@pytest.fixture(params=["in process", "grpc"])
def world(request: pytest.FixtureRequest) -> World:
    """Give both implementations of the link."""
    if request.param == "grpc":
        link, port = request.getfixturevalue("serve")()
        dial = request.getfixturevalue("dial")
        return World(link, lambda silo: dial(port, silo))
    inside = InProcessLink(SystemClock(), '{"federation":"derm"}')
    return World(inside, lambda silo: inside.connect(silo, PROFILE))


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Open]:
    """Give a function that opens the store of a folder, again and again."""
    opened: list[DiskStore] = []

    def again(identity: Identity = IDENTITY, folder: Path = tmp_path / "state") -> DiskStore:
        if opened:
            opened.pop().close()
        opened.append(DiskStore(folder, identity))
        return opened[0]

    yield again
    for store in opened:
        store.close()


@pytest.fixture(params=["memory", "disk", "rounds on disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RoundStore]:
    """Give every kind of round store."""
    made: RoundStore = MemoryStore()
    if request.param != "memory":
        held = {"updates": HeldUpdates(), "sync": False} if request.param == "rounds on disk" else {}
        made = DiskStore(tmp_path / "state", IDENTITY, **held)
    yield made
    made.close()
