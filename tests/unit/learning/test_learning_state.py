"""What a silo keeps: its validation split, its labels, its state from round to round."""

import threading

import numpy as np
import pytest

from anchorage.api.errors import AnchorageError
from anchorage.learning.round_state import RoundState
from anchorage.learning.validation import RoundLabels, validation_split


@pytest.mark.parametrize(
    ("sizes", "percent", "expected"),
    [
        ([100, 40, 2, 1], 5, [5, 2, 1, 0]),  # a class of one keeps its training image
        ([10], 5, [1]),
        ([30], 5, [2]),  # 1.5 rounds up
        ([1], 50, [0]),
    ],
)
def test_the_split_is_stratified(sizes, percent, expected):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    train, validation = validation_split(labels, percent, np.random.default_rng(0))
    assert np.bincount(labels[validation], minlength=len(sizes)).tolist() == expected
    assert sorted([*train, *validation]) == list(range(len(labels)))


def test_classes_of_one_image_still_give_one_for_validation():
    train, validation = validation_split(np.array([0, 1, 2]), 5, np.random.default_rng(0))
    assert (len(train), len(validation)) == (2, 1)


def test_images_without_labels_are_one_class():
    train, validation = validation_split(np.full(40, -1), 5, np.random.default_rng(0))
    assert (len(train), len(validation)) == (38, 2)


def test_no_images_give_no_split():
    train, validation = validation_split(np.empty(0, np.int64), 5, np.random.default_rng(0))
    assert len(train) == len(validation) == 0


def _array(value):
    return {"a/b": np.full(3, value, np.float32)}


def test_a_round_starts_from_the_round_before(tmp_path):
    state = RoundState(tmp_path / "run")
    assert state.before(1) == {}
    for number in (1, 2, 4):
        state.keep(number, _array(number))
    assert state.before(4)["a/b"].tolist() == [2, 2, 2]
    assert state.before(9)["a/b"].tolist() == [4, 4, 4]
    assert state.of(4)["a/b"].tolist() == [4, 4, 4]
    assert state.of(3) == {}
    assert len(list((tmp_path / "run").iterdir())) == 3


def test_a_repeated_round_forgets_what_came_after_it(tmp_path):
    state = RoundState(tmp_path)
    for number in (1, 2, 3, 4, 3):
        state.keep(number, _array(10 * number))
    assert state.before(9)["a/b"][0] == 30
    assert state.before(3)["a/b"][0] == 20
    assert state.before(2) == {}, "only the newest three rounds stayed"


def test_damaged_or_unwritable_state_is_reported(tmp_path):
    (tmp_path / "round-000001.safetensors").write_bytes(b"torn")
    with pytest.raises(AnchorageError, match="LearnerStateUnwritable"):
        RoundState(tmp_path).before(2)
    RoundState(tmp_path).keep(1, _array(1))
    written = (tmp_path / "round-000001.safetensors").read_bytes()
    for at in range(0, len(written), 3):
        flipped = written[:at] + bytes([written[at] ^ 1]) + written[at + 1 :]
        (tmp_path / "round-000001.safetensors").write_bytes(flipped)
        with pytest.raises(AnchorageError, match="LearnerStateUnwritable"):
            RoundState(tmp_path).before(2)
    (tmp_path / "file").write_text("")
    with pytest.raises(AnchorageError, match="LearnerStateUnwritable"):
        RoundState(tmp_path / "file" / "below").keep(1, _array(1))


def test_labels_on_their_way_are_awaited():
    labels, results, asked = RoundLabels(), [], threading.Event()

    def ask():
        asked.set()
        results.append(labels.of(3))

    thread = threading.Thread(target=ask)
    with labels.labelling(3):
        assert labels.of(2) is None, "another round's are not awaited"
        thread.start()
        assert asked.wait(120)
        labels.publish(3, np.array([1, -1]))
        thread.join(120)
    assert results[0].tolist() == [1, -1]
    assert labels.of(3).tolist() == [1, -1]


def test_a_round_that_fails_gives_no_labels():
    labels, results = RoundLabels(), []
    with pytest.raises(ZeroDivisionError), labels.labelling(1):
        thread = threading.Thread(target=lambda: results.append(labels.of(1)))
        thread.start()
        raise ZeroDivisionError
    thread.join(120)
    assert results == [None]
