"""What the server remembers of announcements: CBAFed's thresholds against the known answer D1."""

import numpy as np
import pytest
from classification_of import classes as of_classes

from anchorage.engine.strategy import Strategy
from anchorage.methods import PRESETS
from anchorage.pieces.pseudo_labels.class_adaptive import ClassAdaptive, ClassThresholds, scaled_shares
from anchorage.transport.messages import Announcement


def announced(counts: list[int]) -> Announcement:
    return Announcement("task", {}, {"counts": np.array(counts)}, {}, None)


@pytest.mark.known_answers
def test_d1_thresholds(known):
    case = known.inputs("D1_cbafed_thresholds")
    slot = ClassAdaptive(
        threshold=known.decimal(case["T_base"]),
        ceiling=known.decimal(case["cap"]),
        rare_below=known.decimal(case["T_lower"]),
    )
    counts = np.array(case["counts"], int)
    memory = ClassThresholds(slot, len(counts))
    memory.conclude({"a": announced((counts // 2).tolist()), "b": announced((counts - counts // 2).tolist())})
    auxiliary, share = memory.auxiliary_data(), scaled_shares(counts)
    known.check(
        "D1_cbafed_thresholds",
        {
            "share": share,
            "std_ddof1": share.std(ddof=1),
            "thresholds": auxiliary["thresholds"],
            "thresholds_if_std_ddof0": np.minimum(share + case["T_base"] - share.std(), case["cap"]),
            "minority_classes": np.flatnonzero(auxiliary["rare"]),
        },
    )


def test_before_any_count_every_class_has_the_same_threshold() -> None:
    memory = ClassAdaptive().memory(of_classes(4), 0)
    assert memory.auxiliary_data()["thresholds"].tolist() == pytest.approx([0.94] * 4)
    assert memory.auxiliary_data()["rare"].tolist() == [0] * 4


def test_counts_that_mean_nothing_are_left_out_and_state_survives() -> None:
    memory, other = (ClassAdaptive().memory(of_classes(3), 0) for _ in range(2))
    memory.conclude({"a": announced([5, 1, 0]), "b": announced([1, 2]), "c": announced([-1, 0, 0])})
    assert memory.state()["counts"].tolist() == [5, 1, 0]
    other.restore(memory.state())
    np.testing.assert_array_equal(other.auxiliary_data()["thresholds"], memory.auxiliary_data()["thresholds"])


def test_a_strategy_has_the_memories_of_its_pieces_and_most_remember_nothing() -> None:
    assert list(Strategy.of(PRESETS["CBAFed"].slots, of_classes(3), 0).memories) == ["pseudo_labels"]
    assert Strategy.of(PRESETS["FedAnchor"].slots, of_classes(3), 0).memories == {}


@pytest.mark.parametrize("classes", [2, 7, 10, 100])
def test_an_average_class_has_the_share_of_one_in_ten(classes):
    """Methods reference, section 12, number 16: shares are scaled by C / 10, so that base and rare mean the same for any number of classes."""
    np.testing.assert_allclose(scaled_shares(np.full(classes, 7)), 0.1)
    np.testing.assert_allclose(scaled_shares(np.arange(1, classes + 1)).mean(), 0.1)
