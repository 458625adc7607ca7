"""What the operator reads in a cluster, where anybody with the right to may write: Secrets, ConfigMaps, and its own statuses."""

import json
from contextlib import suppress
from functools import cache
from pathlib import Path

from fake_api.operator_world import DERM, World
from pydantic import ValidationError

from anchorage.api.status import FederationStatus
from anchorage.transport.kube.client import ApiError
from anchorage_operator.reconcile import IncompleteError
from anchorage_operator.secret_facts import decode_value, encode_data

SECRETS = {
    "derm-authority": ("ca.key", "ca.pem", "origin", "previous.key", "endorsements.pem"),
    "derm-server-tls": ("tls.crt", "tls.key", "ca.pem", "issuer"),
    "a-enrolment": ("token", "hash", "expires", "key", "nextKey", "notAfter", "issuer"),
}
"""What is in each of a federation's Secrets."""


@cache
def _world() -> World:
    """Return a federation that trains."""
    world = World()
    world.federation()
    world.silo("a", part=0)
    world.settle(4)
    world.run_server()
    world.connected("a")
    world.settle(4)
    return world


def _look(world: World) -> None:
    """Look twice as an operator that was started anew; what the API server or a failure of the catalogue keeps it from is told."""
    world.start()
    for _ in range(2):
        with suppress(ApiError, IncompleteError):
            world.look(DERM)


def secrets() -> tuple[bytes, ...]:
    """Return what the Secrets of a federation hold."""
    secrets = {name: _world().store.get("secrets", "study", name) for name in SECRETS}
    held = (decode_value(secrets[name], key) for name, keys in SECRETS.items() for key in keys)
    return (*held, b"0001-01-01T00:00:00", b"9999-12-31T23:59:59Z")


def feed_secrets(data: bytes, folder: Path) -> None:
    """Feed each value of each Secret with the bytes."""
    world = _world()
    for name, keys in SECRETS.items():
        secret_data = dict(world.store.get("secrets", "study", name)["data"])
        for key in keys:
            world.store.patch("secrets", "study", name, {"data": encode_data({key: data})})
            _look(world)
            world.store.patch("secrets", "study", name, {"data": {key: None, **secret_data}})


def configurations() -> tuple[bytes, ...]:
    """Return what the operator keeps in ConfigMaps."""
    maps = [_world().store.get("configmaps", "study", name) for name in ("derm-server", "a-silo")]
    texts = [text for each in maps for text in (*each["data"].values(), *each["metadata"]["annotations"].values())]
    return tuple(text.encode() for text in texts)


def feed_configurations(data: bytes, folder: Path) -> None:
    """Feed each file and annotation of both ConfigMaps with the bytes."""
    world, text = _world(), data.decode(errors="replace")
    for name, files in (("derm-server", ("federation.yaml", "server.yaml")), ("a-silo", ("silo.yaml",))):
        changed = {"data": dict.fromkeys(files, text)}
        changed["metadata"] = {"annotations": {"anchorage.dev/accepted-spec": text}}
        world.store.patch("configmaps", "study", name, changed)
        _look(world)


def statuses() -> tuple[bytes, ...]:
    """Return the status of a federation that trains."""
    status = _world().store.get("federations", "study", "derm")["status"]
    return (json.dumps(status).encode(),)


def feed_statuses(data: bytes, folder: Path) -> None:
    """Feed the status of the Federation with what the API server lets pass."""
    world = _world()
    with suppress(ValidationError):
        status = FederationStatus.model_validate_json(data).model_dump(mode="json", by_alias=True, exclude_none=True)
        world.store.patch("federations", "study", "derm", {"status": None})
        world.store.patch("federations", "study", "derm", {"status": status})
        _look(world)
