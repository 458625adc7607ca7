"""DVW by the area under ROC curves of findings, and by the Dice of masks: what silos count, what few images are behind, and what they weigh."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.engine.aggregation.weigher import BaseWeigher
from anchorage.pieces.task.multi_label import MultiLabel
from anchorage.pieces.task.segmentation import Segmentation
from anchorage.pieces.weighting.dvw import Dvw
from anchorage.transport.bounds import check_evaluation
from anchorage.transport.messages import VALIDATION, Announcement, Evaluation
from anchorage.transport.tensors.chunks import Manifest

FINDINGS = MultiLabel(labels=("Mass", "Effusion"))
MASKS = Segmentation(classes=("background", "lesion", "vessel"))
AUROC, DICE = Dvw(metric="MacroAUROC"), Dvw(metric="Dice")


def weights(weigher: BaseWeigher, tallies: dict[str, list[NDArray[Any]]]) -> dict[str, float]:
    """Return the weights of silos, each with its own counts first, and then those of others."""
    update = Manifest("layout", 0, ())
    announcements = {silo: Announcement("t", {}, {VALIDATION: each[0]}, {}, update) for silo, each in tallies.items()}
    others = {silo: [Evaluation("t", {VALIDATION: counts}, 9) for counts in each[1:]] for silo, each in tallies.items()}
    return dict(weigher.weigh(announcements, others))


def findings(seed: int, count: int = 40) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    return rng.integers(-1, 3, (count, 2)).astype(np.int8), rng.random((count, 2))


def compared(seed: int, count: int = 6) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    masks, maps = rng.integers(0, 3, (2, count, 8, 8)).astype(np.uint8)
    masks[0], masks[1] = (
        0,
        np.where(masks[1] == 2, 255, masks[1]),
    )  # an image without a class, and one with unknown pixels
    return masks, MASKS.compared(masks, maps)


def test_areas_weigh_as_those_of_all_silos_images_together() -> None:
    parts = [findings(seed) for seed in range(3)]
    labels, probabilities = (np.concatenate(each) for each in zip(*parts, strict=True))
    weights_found = weights(AUROC.weigher(FINDINGS), {"a": [AUROC.tally(*part) for part in parts]})
    assert weights_found["a"] == pytest.approx(
        FINDINGS.scores(FINDINGS.tally(labels, probabilities))["macro_auroc"], abs=1e-12
    )


def test_dice_weighs_as_that_of_all_silos_images_together() -> None:
    parts = [compared(seed) for seed in range(3)]
    masks, overlaps = (np.concatenate(each) for each in zip(*parts, strict=True))
    tallies = [DICE.tally(*part) for part in parts]
    assert tallies[0].shape == (2, 2, 1) and tallies[0].dtype == np.float64
    weights_found = weights(DICE.weigher(MASKS), {"a": tallies, "b": tallies[::-1]})
    assert weights_found["a"] == pytest.approx(MASKS.scores(MASKS.tally(masks, overlaps))["dice"], abs=1e-12)
    assert weights(DICE.weigher(MASKS), {"a": [tallies[0], tallies[2], tallies[1]]})["a"] == weights_found["a"]


def test_nothing_to_score_weighs_nothing() -> None:
    none = np.zeros((2, 2, 1))
    assert weights(DICE.weigher(MASKS), {"a": [none]}) == {"a": 0.0}
    assert weights(AUROC.weigher(FINDINGS), {"a": [np.zeros((2, 2, 100), np.int64)]}) == {"a": 0.0}


def test_counts_of_another_shape_are_the_fault_of_their_silo() -> None:
    good = DICE.tally(*compared(1))
    weights_found = weights(DICE.weigher(MASKS), {"good": [good], "bad": [good[:, :1]], "worse": [-good]})
    assert weights_found["good"] == 1.0 and np.isnan([weights_found["bad"], weights_found["worse"]]).all()


def test_a_finding_or_class_of_few_images_is_left_out() -> None:
    labels = np.array([[1, 1], [1, 0], [1, 0], [0, 0], [0, 0], [0, -1]], np.int8)
    counts = AUROC.tally(labels, np.full((6, 2), 0.5))
    assert AUROC.suppressed(counts, 3).sum((0, 2)).tolist() == [6, 0]
    assert np.array_equal(AUROC.suppressed(counts, 1), counts)
    cases = np.array([[[0.5], [1.0]], [[2.5], [1.0]]])
    assert DICE.suppressed(cases, 3).tolist() == [[[0.5], [0.0]], [[2.5], [0.0]]]
    assert Dvw().suppressed(np.array([1, 2]), 5).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (np.full((2, 1, 1), 6.0), "a class has 12 images, of 10"),
        (np.full((3, 1, 1), 1.0), "its shape"),
        (np.full((2, 1, 1), -1.0), "a count is not 0 to 10"),
        (np.full((2, 1, 1), np.nan), "a count is not 0 to 10"),
    ],
)
def test_counts_beyond_a_silos_images_are_out_of_bounds(counts: NDArray[Any], words: str) -> None:
    with pytest.raises(AnchorageError, match=words):
        check_evaluation(Evaluation("1.evaluate.a", {VALIDATION: counts}, 10), 10)
    check_evaluation(Evaluation("1.evaluate.a", {VALIDATION: np.full((2, 3, 1), 5.0)}, 10), 10)
