"""Updates on their way in and contributions: what of them outlives a killed server."""

import math
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from store_world import Open, announce, commit, content, fill, model, play_round

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import (
    CONTRIBUTION_DAMAGED,
)

KILLED = """
import os, sys
sys.path.insert(0, sys.argv[1])
import store_world as t
from pathlib import Path
store = t.DiskStore(Path(sys.argv[2]), t.IDENTITY)
for number in range(3):
    t.commit(store, number)
for silo in ("a", "b", "c"):
    made = t.model(ord(silo))
    sink = store.spool(silo, 3, t.announce(made))
    if silo == "c":
        sink.write(1, made.chunk(1))
        continue
    t.fill(sink, made)
    store.keep(silo, 3, t.announce(made))
os.kill(os.getpid(), 9)
"""


def test_whole_updates_of_the_open_round_outlive_a_killed_server(open_store: Open, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(Path(__file__).parent), str(folder)], check=False)
    assert killed.returncode == -signal.SIGKILL
    store = open_store()
    latest = store.latest()
    assert latest is not None
    assert latest.record.round == 2
    updates = store.load_updates(3)
    assert sorted(updates) == ["a", "b"]
    announcement, update = updates["a"]
    assert content(update) == b"".join(model(ord("a")).chunks)
    assert announcement.samples == {"train": 3}
    np.testing.assert_array_equal(announcement.auxiliary_data["similarity"], [0.5, math.nan])
    assert len(store.spool("c", 3, announce(model(ord("c")))).missing()) == 2


def test_a_kept_update_that_was_damaged_is_not_used(open_store: Open, tmp_path: Path) -> None:
    store, made = open_store(), model(1.0)
    for silo in ("a", "b"):
        fill(store.spool(silo, 0, announce(made)), made)
        store.keep(silo, 0, announce(made))
    file = tmp_path / "state" / "spool" / "0001.bin"
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    (tmp_path / "state" / "spool" / "0007.json").write_text("")
    assert list(open_store().load_updates(0)) == ["a"]


def test_a_kept_update_whose_description_was_damaged_is_not_used(open_store: Open, tmp_path: Path) -> None:
    """Whatever bit of it is flipped: another number of images would be another weight."""
    store, made = open_store(), model(1.0)
    for silo in ("a", "b"):
        fill(store.spool(silo, 0, announce(made)), made)
        store.keep(silo, 0, announce(made))
    path = tmp_path / "state" / "spool" / "0001.json"
    content = path.read_bytes()
    for at in range(0, content.index(b'"checksum"'), 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        assert list(open_store().load_updates(0)) == ["a"]
        assert not path.exists()


def test_spool_files_are_used_again_after_release(open_store: Open, tmp_path: Path) -> None:
    store, made = open_store(), model(1.0)
    for number in range(1, 5):
        for silo in ("a", "b"):
            fill(store.spool(silo, number, announce(made)), made)
            store.keep(silo, number, announce(made))
        store.release(number)
    assert sorted(p.name for p in (tmp_path / "state" / "spool").iterdir()) == ["0000.bin", "0001.bin"]


def test_updates_of_committed_rounds_are_forgotten_at_a_restart(open_store: Open, tmp_path: Path) -> None:
    store, made = open_store(), model(1.0)
    commit(store, 0)
    fill(store.spool("a", 1, announce(made)), made)
    store.keep("a", 1, announce(made))
    commit(store, 1)
    assert open_store().load_updates(1) == {}
    assert not list((tmp_path / "state" / "spool").glob("*.json"))


def test_contributions_replace_each_other_at_a_commit(open_store: Open, tmp_path: Path) -> None:
    store = open_store()
    commit(store, 0)
    for number in range(1, 6):
        made = model(float(number))
        fill(store.spool("a", number, announce(made)), made)
        store.keep("a", number, announce(made))
        store.contribute("a", number, number / 2)
        assert store.contributions()["a"][0] == number / 2
        if number < 5:
            commit(store, number)
    ((weight, update),) = open_store().contributions().values()
    assert weight == 2.0
    assert content(update) == b"".join(model(4.0).chunks)
    assert len(list((tmp_path / "state" / "spool").glob("*.bin"))) == 3, "the one before stays until the next commit"


def test_a_damaged_contribution_is_refused(open_store: Open, tmp_path: Path) -> None:
    store = open_store()
    play_round(store, 0)
    file = tmp_path / "state" / "spool" / "0000.bin"
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(AnchorageError) as raised:
        open_store().contributions()
    assert raised.value.failure is CONTRIBUTION_DAMAGED
    file.with_suffix(".json").unlink()
    with pytest.raises(AnchorageError) as raised:
        open_store()
    assert raised.value.failure is CONTRIBUTION_DAMAGED
