"""What every round store does: one suite over memory, disk, and rounds on disk whose updates are in memory."""

import math
from dataclasses import replace

import numpy as np
import pytest
from store_world import announce, commit, content, fill, model, record

from anchorage.api.errors import AnchorageError
from anchorage.engine.store import RoundStore
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.chunks import CHUNK_BYTES, Manifest
from anchorage.transport.tensors.layout import Layout


def test_a_new_store_has_no_round(store: RoundStore) -> None:
    assert store.latest() is None
    assert store.history() == ()
    assert store.load_updates(1) == {}
    assert store.contributions() == {}


def test_the_last_commit_is_found_with_its_state_and_all_records(store: RoundStore) -> None:
    commit(store, 0)
    made = commit(store, 1, accuracy=0.5, undefined=math.nan)
    latest = store.latest()
    assert latest is not None
    assert b"".join(latest.model.chunks) == b"".join(made.chunks)
    assert latest.record.digest == latest.model.digest and latest.record.metrics["accuracy"] == 0.5
    assert math.isnan(latest.record.metrics["undefined"])
    np.testing.assert_array_equal(latest.state["momentum"], np.arange(3.0))
    np.testing.assert_array_equal(latest.state["flags"], [True, False])
    assert [record.round for record in store.history()] == [0, 1]


def test_the_best_round_is_the_earliest_with_the_best_metric_and_without_any_the_last(store: RoundStore) -> None:
    commit(store, 0)
    commit(store, 1)
    best = store.best()
    assert best is not None and best.record.round == 1
    for number, accuracy in enumerate([0.9, 0.2, 0.9], 2):
        assert store.excels(number, {"accuracy": accuracy}) == (number == 2)
        commit(store, number, accuracy=accuracy)
    best = store.best()
    assert best is not None and best.record.round == 2 and best.model.chunks == model(2.0).chunks


def test_what_the_test_images_said_is_found_again(store: RoundStore) -> None:
    made = model(1.0)
    tested = {"final": {"accuracy": 0.5}, "best": {"accuracy": 0.75, "loss": 0.1}}
    store.commit(replace(record(0, made), test=tested), made, {})
    assert store.history()[-1].test == tested


def test_an_update_is_kept_once_it_is_whole(store: RoundStore) -> None:
    made = model(1.0)
    sink = store.spool("a", 1, announce(made))
    assert sink.missing() == (0, 1) and store.load_updates(1) == {}
    fill(sink, made)
    store.keep("a", 1, announce(made))
    ((announcement, update),) = store.load_updates(1).values()
    assert content(update) == b"".join(made.chunks) and announcement.samples == {"train": 3}
    assert store.load_updates(2) == {}


def test_the_same_announcement_gets_the_same_place_and_another_one_a_new_one(store: RoundStore) -> None:
    one, two = model(1.0), model(2.0)
    first = store.spool("a", 1, announce(one))
    assert store.spool("a", 1, announce(one)) is first
    second = store.spool("a", 1, announce(two))
    fill(second, two)
    assert second is not first and content(second) == b"".join(two.chunks)
    store.keep("a", 1, announce(two))
    assert [content(update) for _, update in store.load_updates(1).values()] == [b"".join(two.chunks)]


def test_released_updates_are_gone(store: RoundStore) -> None:
    made = model(1.0)
    for silo, number in (("a", 1), ("b", 2)):
        fill(store.spool(silo, number, announce(made)), made)
        store.keep(silo, number, announce(made))
    store.release(1)
    assert store.load_updates(1) == {} and store.load_updates(2).keys() == {"b"}


def test_contributions_replace_each_other_and_are_not_released(store: RoundStore) -> None:
    for number in range(4):
        made = model(float(number))
        fill(store.spool("a", number, announce(made)), made)
        store.keep("a", number, announce(made))
        before = store.contributions()
        store.contribute("a", number, number / 2)
        if before:
            assert content(before["a"][1]) == b"".join(model(number - 1.0).chunks), "it stays until the commit"
        commit(store, number)
        store.release(number)
        ((weight, update),) = store.contributions().values()
        assert weight == number / 2 and content(update) == b"".join(made.chunks)
        assert store.load_updates(number) == {}


def test_only_an_open_update_of_the_round_can_be_kept_or_contribute(store: RoundStore) -> None:
    made = model(1.0)
    with pytest.raises(KeyError):
        store.contribute("a", 1, 1.0)
    fill(store.spool("a", 1, announce(made)), made)
    with pytest.raises(KeyError):
        store.keep("a", 2, announce(made))
    with pytest.raises(ValueError, match="a announced no update"):
        store.spool("a", 1, Announcement("1.train.x", {}, {}, {}, None))


def test_large_data_is_kept_in_any_order_of_its_pieces(store: RoundStore) -> None:
    layout = Layout.of([("pool", "U8", (CHUNK_BYTES + 10,))])
    data = np.random.default_rng(0).integers(0, 256, layout.nbytes, np.uint8).tobytes()
    half = layout.nbytes // 2
    stored = store.large.write("input_mixing", layout, iter([(half, data[half:]), (0, data[:half])]))
    assert stored.manifest == Manifest.of(layout.digest, np.frombuffer(data, np.uint8))
    assert stored.chunk(0) + stored.chunk(1) == data
    assert store.large.read("input_mixing", stored.manifest) is stored
    newer = [store.large.write("input_mixing", Layout.of([("pool", "U8", (n,))]), [(0, bytes(n))]) for n in (1, 2)]
    assert [store.large.read("input_mixing", one.manifest) for one in newer] == newer
    with pytest.raises(AnchorageError, match="CheckpointDamaged"):
        store.large.read("input_mixing", stored.manifest)  # of three the first: no checkpoint names it any more
