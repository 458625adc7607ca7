"""The round store on disk: nothing committed is ever lost, whatever breaks and wherever."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from store_world import IDENTITY, LAYOUT, STUDY, Open, commit, content, model, play_round, record

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import (
    CHECKPOINT_DAMAGED,
    CONTRIBUTION_DAMAGED,
    FOREIGN_CHECKPOINT,
    JOURNAL_DAMAGED,
    NOT_WRITABLE,
    STATE_IN_USE,
)
from anchorage.engine.store import DiskStore, Identity
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


def test_a_commit_comes_back_after_reopening(open_store: Open) -> None:
    commit(open_store(), 0)
    made = commit(open_store(), 1, accuracy=0.5, undefined=math.nan)
    latest = open_store().latest()
    assert latest is not None
    assert latest.model.chunks == made.chunks
    assert latest.record.silos[0].samples == {"train": 10}
    assert math.isnan(latest.record.silos[0].metrics["loss"])
    assert math.isnan(latest.record.metrics["undefined"])
    assert (latest.record.bytes_up, latest.record.bytes_down, latest.record.seconds) == (7, 8, {"silos": 0.5})
    np.testing.assert_array_equal(latest.state["momentum"], np.arange(3.0))
    np.testing.assert_array_equal(latest.state["flags"], [True, False])
    assert [r.round for r in open_store().history()] == [0, 1]


def test_checkpoints_of_stages_have_their_own_methods_and_tensors(open_store: Open) -> None:
    before = Layout.of([("encoder.weight", "F32", (5,)), ("projector.weight", "F32", (7,))])
    identity = Identity(STUDY, (before, LAYOUT), (1,))
    store = open_store(identity)
    for number, layout, accuracy in ((0, before, 0.1), (1, before, 0.9), (2, LAYOUT, 0.2), (3, LAYOUT, 0.1)):
        made = model(float(number), layout)
        store.commit(record(number, made, accuracy=accuracy), made, {})
        store = open_store(identity)
        latest, best = store.latest(), store.best()
        assert latest is not None and best is not None
        assert latest.model.layout == layout and latest.model.digest == made.digest
        assert best.record.round == min(number, 2), "a warm-up's rounds are not the best ones"


def test_the_last_two_and_the_best_checkpoint_are_kept_and_files_are_used_again(
    open_store: Open, tmp_path: Path
) -> None:
    store, inodes = open_store(), set()
    for number, accuracy in enumerate([0.1, 0.9, 0.2, 0.3, 0.9, 0.4]):
        commit(store, number, accuracy=accuracy)
        inodes.add(store.checkpoint_path(number).stat().st_ino)
    names = sorted(p.name for p in (tmp_path / "state" / "checkpoints").glob("round-*"))
    assert names == ["round-000001.safetensors", "round-000004.safetensors", "round-000005.safetensors"]
    assert len(inodes) == 4
    best = open_store().best()
    assert best is not None
    assert best.record.round == 1
    assert best.model.chunks == model(1.0).chunks


FROZEN = Layout.of([("encoder", "F32", (400_000,)), ("head", "F32", (9,))], {"encoder"})


def frozen_model(head: float, encoder: float = 0.5) -> ModelBytes:
    return ModelBytes.from_arrays(FROZEN, {"encoder": np.full(400_000, encoder, "f4"), "head": np.full(9, head, "f4")})


def test_checkpoints_with_frozen_tensors_are_whole_also_over_files_that_have_these(tmp_path: Path) -> None:
    store, identity = None, Identity(STUDY, (FROZEN,))
    for number in range(12):
        if number % 6 == 0:
            if store is not None:
                store.close()
            store = DiskStore(tmp_path, identity)
        made = frozen_model(float(number), encoder=0.5 if number < 8 else 0.25)
        state = {"memory": np.ones(1 + 999 * (number > 9))}
        store.commit(record(number, made, accuracy=0.1), made, state)
        latest = store.latest()
        assert (
            latest is not None
            and latest.model.digest == made.digest
            and latest.state["memory"].shape == state["memory"].shape
        )
    store.close()


def test_frozen_tensors_that_a_file_has_are_not_written_again(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, Identity(STUDY, (FROZEN,)))
    for number in range(5):
        made = frozen_model(float(number))
        store.commit(record(number, made), made, {})
    spare = next(path for path in tmp_path.rglob("spare"))
    content = bytearray(spare.read_bytes())
    content[700_000] ^= 1
    spare.write_bytes(content)
    made = frozen_model(5.0)
    store.commit(record(5, made), made, {})
    with pytest.raises(AnchorageError) as caught:  # had they been written, the changed byte would be gone
        store.latest()
    assert caught.value.failure is CHECKPOINT_DAMAGED
    store.close()


def test_a_smaller_checkpoint_over_a_larger_file_has_no_tail(tmp_path: Path) -> None:
    small = Identity(STUDY, (Layout.of([("encoder.weight", "F32", (3,))]),))
    store = DiskStore(tmp_path, small)
    (tmp_path / "checkpoints" / "spare").write_bytes(b"x" * 100_000)
    made = model(1.0, small.layouts[0])
    store.commit(record(0, made), made, {})
    latest = store.latest()
    assert latest is not None
    assert latest.model.chunks == made.chunks
    store.close()


def test_journal_lines_are_json_with_a_version_and_a_checksum(open_store: Open, tmp_path: Path) -> None:
    commit(open_store(), 0, accuracy=0.5)
    (line,) = (tmp_path / "state" / "journal.jsonl").read_text().splitlines()
    values = json.loads(line)
    assert "test" not in values
    assert values["schemaVersion"] == 1
    assert len(values["checksum"]) == 32
    assert values["bytesUp"] == 7
    assert values["silos"][0]["metrics"] == {"loss": None}


@pytest.mark.parametrize("cut", [1, 2, 40, -1])
def test_a_torn_last_line_is_ignored_and_the_round_can_be_committed_again(
    open_store: Open, tmp_path: Path, cut: int
) -> None:
    store, journal = open_store(), tmp_path / "state" / "journal.jsonl"
    commit(store, 0)
    content = journal.stat().st_size
    commit(store, 1)
    content_before = journal.read_bytes()
    journal.write_bytes(content_before[: content + 1] if cut == -1 else content_before[:-cut])
    latest = open_store().latest()
    assert latest is not None
    assert latest.record.round == 0
    assert open_store().notices
    commit(open_store(), 1)
    assert [r.round for r in open_store().history()] == [0, 1]
    assert journal.stat().st_size == len(content_before) > content


def test_a_damaged_line_before_the_last_is_refused(open_store: Open, tmp_path: Path) -> None:
    store, journal = open_store(), tmp_path / "state" / "journal.jsonl"
    commit(store, 0)
    commit(store, 1)
    journal.write_bytes(journal.read_bytes().replace(b'"round":0', b'"round":9', 1))
    with pytest.raises(AnchorageError, match="line 1: the checksum does not fit") as raised:
        open_store()
    assert raised.value.failure is JOURNAL_DAMAGED


def test_a_line_of_another_schema_is_refused_even_at_the_end(open_store: Open, tmp_path: Path) -> None:
    from anchorage.engine.store import journal as module

    commit(open_store(), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SCHEMA_VERSION", 2)
        with pytest.raises(AnchorageError, match="schema version 1, this version reads 2") as raised:
            open_store()
    assert raised.value.failure is JOURNAL_DAMAGED


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        (
            Identity({**STUDY, "metadata.name": "skin"}, (LAYOUT,)),
            "metadata.name is skin, but training began with derm",
        ),
        (Identity({**STUDY, "spec.method.name": "FedProx"}, (LAYOUT,)), "spec.method.name is FedProx"),
        (Identity({**STUDY, "spec.model.initial": "w"}, (LAYOUT,)), "spec.model.initial is w, but .* with absent"),
        (Identity(STUDY, (Layout.of([("encoder.weight", "F32", (3,))]),)), "layout is "),
    ],
)
def test_a_foreign_checkpoint_is_refused(open_store: Open, identity: Identity, words: str) -> None:
    commit(open_store(), 0)
    with pytest.raises(AnchorageError, match=words) as raised:
        open_store(identity).latest()
    assert raised.value.failure is FOREIGN_CHECKPOINT


def test_a_field_that_an_older_version_did_not_know_is_no_difference(open_store: Open) -> None:
    commit(open_store(), 0)
    newer = Identity({**STUDY, "spec.method.newer": "Option"}, (LAYOUT,))
    assert open_store(newer).latest() is not None
    with pytest.raises(AnchorageError, match=r"spec\.model\.initial\.newer is 1"):
        open_store(Identity({**STUDY, "spec.model.initial.newer": "1"}, (LAYOUT,)))


def damage(path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    if kind == "missing":
        path.unlink()
    elif kind in ("short", "empty"):
        path.write_bytes(data[:-1] if kind == "short" else b"")
    else:
        data[{"header": 20, "model": len(data) // 2, "state": len(data) - 1}[kind]] ^= 1
        path.write_bytes(data)


@pytest.mark.parametrize("kind", ["missing", "short", "empty", "model", "state", "header"])
def test_a_run_goes_back_a_round_from_a_damaged_checkpoint(open_store: Open, kind: str) -> None:
    store = open_store()
    for number in range(3):
        play_round(store, number)
    damage(store.checkpoint_path(2), kind)
    for _ in range(2):  # until the round is committed again, every start goes back
        store = open_store()
        latest = store.latest()
        assert latest is not None and latest.record.round == 1 and latest.model.chunks == model(1.0).chunks
        (notice,) = store.notices
        assert str(store.checkpoint_path(2)) in notice and "round 2 is played again" in notice
        assert [record.round for record in store.history()] == [0, 1]
        ((weight, update),) = store.contributions().values()
        assert weight == 1 and content(update) == b"".join(model(101.0).chunks)
    assert store.load_updates(2).keys() == {"a"}, "its updates are there"
    play_round(store, 2)
    store = open_store()
    latest = store.latest()
    assert latest is not None and latest.record.round == 2 and store.notices == []


def test_a_run_whose_checkpoint_was_restored_does_not_go_back(open_store: Open) -> None:
    store = open_store()
    for number in range(3):
        commit(store, number)
    path = store.checkpoint_path(2)
    content = path.read_bytes()
    damage(path, "model")
    assert open_store().notices
    path.write_bytes(content)
    store = open_store()
    assert [record.round for record in store.history()] == [0, 1, 2] and not store.notices


def test_a_run_goes_back_to_its_beginning_from_a_damaged_round_0(open_store: Open) -> None:
    store = open_store()
    commit(store, 0)
    damage(store.checkpoint_path(0), "model")
    store = open_store()
    assert store.latest() is None and store.history() == () and "round 0 is played again" in store.notices[0]
    commit(store, 0)
    assert open_store().latest() is not None


def test_two_damaged_checkpoints_are_refused_and_nothing_is_taken(open_store: Open, tmp_path: Path) -> None:
    store = open_store()
    for number in range(3):
        commit(store, number)
    paths = [store.checkpoint_path(number) for number in (1, 2)]
    content = [path.read_bytes() for path in paths]
    for path in paths:
        damage(path, "model")
    with pytest.raises(AnchorageError, match="round-000002") as raised:
        open_store()
    assert raised.value.failure is CHECKPOINT_DAMAGED
    for path, data in zip(paths, content, strict=True):
        path.write_bytes(data)
    assert [record.round for record in open_store().history()] == [0, 1, 2]


def test_of_the_rounds_that_are_left_the_best_takes_the_place_of_a_damaged_one(open_store: Open) -> None:
    store = open_store()
    for number, accuracy in enumerate([0.1, 0.9, 0.2, 0.4, 0.3]):
        commit(store, number, accuracy=accuracy)
    damage(store.checkpoint_path(1), "model")
    store = open_store()
    best = store.best()
    assert best is not None and best.record.round == 3 and "round-000001" in store.notices[0]
    assert store.excels(5, {"accuracy": 0.5}), "of the models that are there"


def test_the_best_round_before_the_last_is_there_when_a_run_goes_back(open_store: Open) -> None:
    store = open_store()
    for number, accuracy in enumerate([0.1, 0.8, 0.2, 0.9]):
        commit(store, number, accuracy=accuracy)
    damage(store.checkpoint_path(3), "model")
    best = open_store().best()
    assert best is not None and best.record.round == 1


def test_a_last_line_that_was_whole_is_named_and_its_round_played_again(open_store: Open, tmp_path: Path) -> None:
    store, journal = open_store(), tmp_path / "state" / "journal.jsonl"
    for number in range(3):
        play_round(store, number)
    data = bytearray(journal.read_bytes())
    data[-20] ^= 1
    journal.write_bytes(data)
    store = open_store()
    assert "journal.jsonl: the last line is torn or not as it was written; round 2 is played again" in store.notices[0]
    assert [record.round for record in store.history()] == [0, 1]
    assert [content(update) for _, update in store.contributions().values()] == [b"".join(model(101.0).chunks)]
    play_round(store, 2)
    assert [record.round for record in open_store().history()] == [0, 1, 2]


def test_a_round_that_only_its_checkpoint_knows_is_named_and_played_again(open_store: Open, tmp_path: Path) -> None:
    store, journal = open_store(), tmp_path / "state" / "journal.jsonl"
    for number in range(3):
        commit(store, number)
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:2]))
    store = open_store()
    assert "does not name round 2" in store.notices[0] and [record.round for record in store.history()] == [0, 1]


@pytest.mark.parametrize("lines", [0, 1, 2])
def test_a_journal_that_lost_lines_is_refused(open_store: Open, tmp_path: Path, lines: int) -> None:
    """A run that began again would write over what was committed."""
    store, journal = open_store(), tmp_path / "state" / "journal.jsonl"
    for number in range(4):
        commit(store, number)
    content = journal.read_bytes()
    journal.write_bytes(b"".join(content.splitlines(keepends=True)[:lines]))
    with pytest.raises(AnchorageError, match=f"{lines} rounds, but there is a checkpoint of round 3") as raised:
        open_store()
    assert raised.value.failure is JOURNAL_DAMAGED
    journal.write_bytes(content)
    assert [record.round for record in open_store().history()] == [0, 1, 2, 3]


def test_whatever_byte_is_flipped_no_committed_round_is_lost_in_silence(open_store: Open, tmp_path: Path) -> None:
    """In every file that a store leaves: refused by name, or played on from the last round or, said so, from the one before."""
    state, seed = tmp_path / "state", np.random.default_rng(7)
    store = open_store()
    for number in range(4):
        play_round(store, number)
    open_store().close()
    files = sorted(path for path in state.rglob("*") if path.is_file() and path.stat().st_size)
    assert {path.suffix for path in files} == {".safetensors", ".jsonl", ".bin", ".json", ""}
    went_back = 0
    for path in files:
        content = path.read_bytes()
        for at in seed.integers(0, len(content), 5):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1 << int(seed.integers(8))]) + content[at + 1 :])
            try:
                store = DiskStore(state, IDENTITY)
            except AnchorageError as error:
                assert error.failure in (JOURNAL_DAMAGED, CHECKPOINT_DAMAGED, CONTRIBUTION_DAMAGED), (path, error)
            else:
                latest = store.latest()
                assert latest is not None and latest.model.chunks == model(float(latest.record.round)).chunks
                assert latest.record.round == 3 or store.notices, path
                went_back += latest.record.round == 2
                store.close()
            path.write_bytes(content)
    assert went_back


def test_two_stores_cannot_share_a_folder(open_store: Open, tmp_path: Path) -> None:
    open_store()
    with pytest.raises(AnchorageError) as raised:
        DiskStore(tmp_path / "state", IDENTITY)
    assert raised.value.failure is STATE_IN_USE


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AnchorageError, match="file/state") as raised:
        DiskStore(tmp_path / "file" / "state", IDENTITY)
    assert raised.value.failure is NOT_WRITABLE
