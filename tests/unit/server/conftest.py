"""Fixtures of the server's unit tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from server_stores import IDENTITY, Open

from anchorage_server.checkpoints import Identity
from anchorage_server.store import DiskRoundStore


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Open]:
    opened: list[DiskRoundStore] = []

    def again(identity: Identity = IDENTITY, folder: Path = tmp_path / "state") -> DiskRoundStore:
        if opened:
            opened.pop().close()
        opened.append(DiskRoundStore(folder, identity))
        return opened[0]

    yield again
    for store in opened:
        store.close()
