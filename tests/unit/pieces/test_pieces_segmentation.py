"""Scores of a segmentation, with every edge of masks and predictions that are empty."""

import numpy as np
import pytest

from anchorage.api.task import pool_tallies
from anchorage.learning.model_hooks import Scored
from anchorage.pieces.task.segmentation import Segmentation
from anchorage.pieces.weighting.dvw import dice_sums

TASK = Segmentation(classes=("background", "lesion"))
TWO = Segmentation(classes=("background", "lesion", "scar"))
NONE = np.zeros((16, 16), np.uint8)


def assessed(masks, predicted):
    scored = Scored("test", masks, TASK.compared(masks, predicted, (1.0, 1.0)), np.arange(len(masks)))
    return TASK.assessment(scored, np.random.default_rng(0))


def box(columns, value=1):
    mask = NONE.copy()
    mask[4:12, columns] = value
    return mask


TRUTH, SHIFTED = box(slice(5, 8)), box(slice(4, 7))


def tally(*pairs, task=TASK):
    masks, predicted = (np.stack(side) for side in zip(*pairs, strict=True))
    return task.tally(masks, task.compared(masks, predicted))


def test_dice_of_two_boxes():
    assert TASK.scores(tally((TRUTH, SHIFTED))) == pytest.approx(
        {"dice": 2 / 3, "dice_all": 2 / 3, "pooled_dice": 2 / 3}
    )


@pytest.mark.parametrize(
    ("truth", "predicted", "scores", "counts"),
    [
        (NONE, NONE, {}, {"empty_right": 1, "empty_wrong": 0, "cases": 0}),
        (NONE, TRUTH, {"dice_all": 0, "pooled_dice": 0}, {"empty_right": 0, "empty_wrong": 1, "cases": 0}),
        (TRUTH, NONE, {"dice": 0, "dice_all": 0, "pooled_dice": 0}, {"empty_right": 0, "empty_wrong": 0, "cases": 1}),
        (TRUTH, TRUTH, {"dice": 1, "dice_all": 1, "pooled_dice": 1}, {"empty_right": 0, "empty_wrong": 0, "cases": 1}),
    ],
)
def test_empty_masks_and_predictions(truth, predicted, scores, counts):
    total = tally((truth, predicted))
    assert TASK.scores(total) == scores
    assert {name: int(total[name][0]) for name in counts} == counts
    assert TASK.images(total) == 1 and TASK.is_sound(total, 1)


def test_painting_healthy_images_costs_in_the_one_mean_and_not_in_the_other():
    total = tally((TRUTH, TRUTH), (NONE, TRUTH), (NONE, NONE))
    assert TASK.scores(total) == pytest.approx({"dice": 1, "dice_all": 0.5, "pooled_dice": 2 * 24 / (2 * 24 + 24)})
    assert TASK.details(total) == {
        "dice/lesion": 1.0, "cases/lesion": 1.0, "empty_right/lesion": 1.0, "empty_wrong/lesion": 1.0
    }  # fmt: skip


def test_tallies_of_silos_add_up_to_that_of_all():
    pairs = [(TRUTH, SHIFTED), (TRUTH, TRUTH), (NONE, SHIFTED), (box(slice(2, 4), 2), SHIFTED)]
    total = tally(*pairs, task=TWO)
    parts = pool_tallies([tally(*pairs[:1], task=TWO), tally(*pairs[1:], task=TWO)])
    assert total.keys() == {array.name for array in TWO.tally_arrays()} == parts.keys()
    for array in TWO.tally_arrays():
        assert np.array_equal(total[array.name], parts[array.name])
        assert total[array.name].dtype == array.dtype and total[array.name].shape == array.shape
    assert TWO.scores(total)["dice"] == pytest.approx((5 / 6 + 0) / 2)


def test_pixels_that_are_not_known_count_nowhere():
    masks = TRUTH.copy()
    masks[:, 7:] = 255
    painted = SHIFTED.copy()
    painted[:, 10:] = 1
    known = tally((masks, painted))
    assert known["pixels"].tolist() == [[16, 8, 0]]


def test_a_tally_from_elsewhere_is_bounded():
    total = tally((TRUTH, SHIFTED), (NONE, NONE))
    assert TASK.is_sound(total, 2) and not TASK.is_sound(total, 1)
    for name, value in (("dice", 1.5), ("dice", -0.1), ("dice_squared", 0.9), ("cases", 2), ("empty_right", -1)):
        wrong = {**total, name: np.array([value], total[name].dtype)}
        assert not TASK.is_sound(wrong, 2), (name, value)


def test_the_final_assessment_has_distances_and_says_where_there_are_none():
    pairs = [(TRUTH, SHIFTED), (TRUTH, NONE), (NONE, TRUTH), (NONE, NONE)]
    masks, predicted = (np.stack(side) for side in zip(*pairs, strict=True))
    assessment = assessed(masks, predicted)
    assert assessment.metrics["hausdorff_95"] == 1
    assert assessment.metrics["surface_dice"] == pytest.approx((1 + 0) / 2)
    assert assessment.metrics["dice"] == pytest.approx(1 / 3) and assessment.metrics["dice_all"] == pytest.approx(2 / 9)
    assert assessment.counts == {"cases/lesion": ((2, 1, 1, 2),)}
    interval = assessment.intervals["dice/lesion"]
    assert interval.value == pytest.approx(1 / 3) and interval.low == 0 and interval.high == pytest.approx(2 / 3)
    assert [concern.kind for concern in assessment.concerns] == []


def test_an_assessment_without_any_foreground():
    assessment = assessed(NONE[None], NONE[None])
    assert assessment.metrics == {} and assessment.intervals == {} and assessment.resamples == 0


def test_a_model_that_finds_nothing_and_one_that_paints_everything_are_named():
    masks = np.stack([TRUTH, NONE])
    blind = assessed(masks, np.stack([NONE, NONE]))
    assert [concern.kind for concern in blind.concerns] == ["NothingFound"]
    painter = assessed(masks, np.stack([TRUTH, TRUTH]))
    assert [concern.kind for concern in painter.concerns] == ["PaintsEmptyImages"]


def test_examples_show_images_then_truth_then_prediction_in_colours():
    pixels = np.full((2, 1, 8, 8), 100, np.uint8)
    masks, predicted = np.zeros((2, 8, 8), np.uint8), np.zeros((2, 8, 8), np.uint8)
    masks[0, 2:6, 2:6], masks[1] = 1, 255
    picture = TASK.examples(pixels, masks, predicted)
    height, width = picture.shape[0] // 3, picture.shape[1] // 2
    assert picture.dtype == np.uint8 and picture.shape[2] == 3
    tile = lambda row, column: picture[
        row * height + 2 : (row + 1) * height - 2, column * width + 2 : (column + 1) * width - 2
    ]
    assert (tile(0, 0) == 100).all() and (tile(2, 0) == 100).all()
    coloured = (tile(1, 0) != 100).any(2)
    assert coloured.mean() == 16 / 64 and not (tile(1, 1) != 100).any()
    assert (tile(1, 0)[coloured][:, 0] > tile(1, 0)[coloured][:, 2]).all()


def test_volumes_are_compared_with_their_spacing():
    truth, predicted = (np.repeat(mask[None, :, :, None], 3, 3) for mask in (TRUTH, SHIFTED))
    flat = TASK.compared(TRUTH[None], SHIFTED[None], (2.0, 0.5))[0, 1]
    distances = TASK.compared(truth, predicted, (2.0, 0.5, 4.0))[0, 1]
    assert distances[:3].tolist() == (3 * flat[:3]).tolist() == [48, 24, 24]
    assert flat[3] == 0.5 and distances[3] == 0.5


PARTLY = TWO.partly_annotated((2,))
"""The lesions of a site that draws no scars."""


def test_unannotated_classes_are_not_scored_and_are_background_where_they_are_predicted():
    painted = box(slice(4, 7), 2)
    painted[4:12, 7] = 1
    total = tally((TRUTH, painted), (NONE, box(slice(0, 3), 2)), task=PARTLY)
    assert {name: array.tolist() for name, array in total.items()} == {
        "images": 2, "cases": [1, 0], "dice": [0.5, 0], "dice_squared": [0.25, 0], "empty_right": [1, 0], "empty_wrong": [0, 0],
        "pixels": [[8, 0, 16], [0, 0, 0]],
    }  # fmt: skip
    assert tally((TRUTH, painted), task=TWO)["empty_wrong"].tolist() == [0, 1]
    assert PARTLY.scores(total) == {"dice": 0.5, "dice_all": 0.5, "pooled_dice": 0.5}
    assert PARTLY.details(total).keys() == {"dice/lesion", "cases/lesion", "empty_right/lesion", "empty_wrong/lesion"}
    truth_and_prediction = PARTLY.true_and_predicted(
        TRUTH[None], PARTLY.compared(TRUTH[None], np.where(TRUTH, 2, 1).astype(np.uint8)[None])
    )
    assert truth_and_prediction.tolist() == [[24 / 256, 232 / 256]]


def test_only_what_a_site_annotates_counts_among_several_sites():
    scars = TWO.partly_annotated((1,))
    scar = box(slice(5, 8), 2)
    total = pool_tallies(
        [tally((TRUTH, TRUTH), (NONE, NONE), task=PARTLY), tally((scar, box(slice(4, 7), 2)), task=scars)]
    )
    assert TWO.scores(total) == pytest.approx({"dice": 5 / 6, "dice_all": 5 / 6, "pooled_dice": 5 / 6})
    assert total["cases"].tolist() == [1, 1] and total["empty_right"].tolist() == [1, 0]


def test_a_site_counts_a_class_in_all_of_its_images_or_in_none():
    total = tally((TRUTH, SHIFTED), (NONE, NONE), task=PARTLY)
    assert TWO.is_sound(total, 2)
    for name, value in (("empty_right", [1, 1]), ("empty_right", [1, 3]), ("cases", [0, 0]), ("dice", [2 / 3, 0.5])):
        assert not TWO.is_sound({**total, name: np.array(value, total[name].dtype)}, 2), (name, value)
    nothing = {name: np.zeros_like(array) for name, array in total.items()} | {"images": total["images"]}
    assert not TWO.is_sound(nothing, 2)


def test_the_assessment_leaves_out_what_nobody_annotated():
    masks, predicted = np.stack([TRUTH, NONE]), np.stack([SHIFTED, box(slice(0, 3), 2)])
    compared = PARTLY.compared(masks, predicted, (1.0, 1.0))
    assessment = PARTLY.assessment(Scored("test", masks, compared, np.arange(2)), np.random.default_rng(0))
    assert assessment.counts == {"cases/lesion": ((1, 1, 0, 0),)} and assessment.intervals.keys() == {
        "dice/lesion",
        "dice",
    }
    assert assessment.metrics["dice"] == pytest.approx(2 / 3) and assessment.metrics["hausdorff_95"] == 1
    assert not any("scar" in name for name in assessment.metrics) and assessment.concerns == ()


def test_a_task_of_whole_masks_is_itself():
    assert TWO.partly_annotated(()) is TWO and PARTLY.model_dump() == TWO.model_dump()


def test_dvw_scores_an_update_by_what_a_silo_annotates():
    compared = PARTLY.compared(TRUTH[None], np.where(SHIFTED, 1, 2).astype(np.uint8)[None])
    assert dice_sums(compared)[..., 0] == pytest.approx(np.array([[1 / 3, 0], [2 / 3, 0]]))
