"""Dice with cross entropy as a loss, against MONAI's, and distances between borders, against known values."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from anchorage.algorithms.dice import SummedLoss, confident_loss, dice_cross_entropy, into_background
from anchorage.algorithms.surfaces import border_distances, hausdorff_95, surface_dice

IGNORED = 255


def drawn(seed=0, classes=3):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(4, classes, 6, 5, dtype=torch.float64, generator=generator)
    masks = torch.randint(0, classes, (4, 6, 5), generator=generator).to(torch.uint8)
    return logits, masks


def reference(logits, masks):
    losses = pytest.importorskip("monai.losses", reason="MONAI is not installed")
    options = {"include_background": False, "to_onehot_y": True, "softmax": True, "batch": True}
    return losses.DiceCELoss(**options, smooth_nr=1e-5, smooth_dr=1e-5)(logits, masks[:, None].long())


@pytest.mark.parametrize("classes", [2, 3])
def test_the_loss_is_that_of_monai(classes):
    logits, masks = drawn(classes=classes)
    masks[0] = 0
    assert float(dice_cross_entropy(logits, masks, IGNORED)) == pytest.approx(float(reference(logits, masks)), abs=1e-6)
    masks[:] = 0  # a class that is nowhere
    assert float(dice_cross_entropy(logits, masks, IGNORED)) == pytest.approx(float(reference(logits, masks)), abs=1e-6)


def test_the_loss_of_known_pixels_by_hand():
    logits = torch.zeros(1, 2, 1, 2, dtype=torch.float64)
    masks = torch.tensor([[[0, 1]]], dtype=torch.uint8)
    dice = (2 * 0.5 + 1e-5) / (1 + 1 + 1e-5)
    assert float(dice_cross_entropy(logits, masks, IGNORED)) == pytest.approx(np.log(2) + 1 - dice, abs=1e-12)


def test_ignored_pixels_change_nothing():
    logits, masks = drawn()
    masks[:, :2] = IGNORED
    loss = dice_cross_entropy(logits, masks, IGNORED)
    other = logits.clone()
    other[:, :, :2] = torch.randn_like(other[:, :, :2]) * 9
    assert torch.equal(dice_cross_entropy(other, masks, IGNORED), loss)
    two_class_loss = dice_cross_entropy(logits[:, :, 2:], masks[:, 2:], IGNORED)
    assert float(two_class_loss) == pytest.approx(float(loss), abs=1e-12)
    logits.requires_grad_()
    dice_cross_entropy(logits, masks, IGNORED).backward()
    assert logits.grad[:, :, :2].abs().max() == 0 < logits.grad[:, :, 2:].abs().min()


def test_a_batch_without_known_pixels_is_no_loss():
    logits, masks = drawn()
    logits.requires_grad_()
    loss = dice_cross_entropy(logits, torch.full_like(masks, IGNORED), IGNORED)
    loss.backward()
    assert float(loss.detach()) == 0 and logits.grad.abs().max() == 0


@pytest.mark.parametrize(
    ("spacing", "hausdorff", "shares"),
    [
        ((1, 1), 1, {0: 2 / 9, 1: 1}),
        ((2, 0.5), 0.5, {0.5: 1}),
        ((0.5, 2), 2, {0.5: 1 / 3, 1: 4 / 9, 2: 1}),
    ],
)
def test_distances_between_borders(spacing, hausdorff, shares):
    truth, predicted = np.zeros((2, 16, 16), bool)
    truth[4:12, 5:8] = predicted[4:12, 4:7] = True
    distances = border_distances(truth, predicted, spacing)
    assert hausdorff_95(distances) == pytest.approx(hausdorff)
    for tolerance, share in shares.items():
        assert surface_dice(distances, tolerance) == pytest.approx(share)
    assert hausdorff_95(border_distances(truth, truth, spacing)) == 0


@pytest.mark.parametrize(
    ("shape", "spacing"), [((30, 17), (0.7, 1.3)), ((12, 9, 14), (0.7, 0.7, 2.5)), ((8, 8), (1, 1))]
)
def test_distances_are_those_of_a_distance_transform(shape, spacing):
    ndimage = pytest.importorskip("scipy.ndimage")
    rng = np.random.default_rng(len(shape))
    truth, predicted = (ndimage.gaussian_filter(rng.random(shape), 1) > level for level in (0.52, 0.5))
    borders = [mask & ~ndimage.binary_erosion(mask) for mask in (truth, predicted)]
    to_other = [ndimage.distance_transform_edt(~border, sampling=spacing) for border in borders]
    ours = border_distances(truth, predicted, spacing)
    for distances, expected, border in zip(ours, reversed(to_other), borders, strict=True):
        np.testing.assert_allclose(distances, expected[border], rtol=1e-12)
        assert distances.max() > 0


def test_pseudo_labels_without_foreground_do_not_push_it_down():
    logits, masks = drawn()
    loss = float(dice_cross_entropy(logits, masks, IGNORED))
    assert float(confident_loss(logits, masks, IGNORED)) == pytest.approx(loss, abs=1e-12)
    masks[masks > 0] = IGNORED
    known = (masks == 0).unsqueeze(1)
    entropy = -(logits.log_softmax(1)[:, :1] * known).sum() / known.sum()
    assert float(confident_loss(logits, masks, IGNORED)) == pytest.approx(float(entropy), abs=1e-12)
    assert float(dice_cross_entropy(logits, masks, IGNORED)) > float(entropy) + 0.9


def partly_drawn(left_out):
    """Return logits of 4 classes, and masks without those that are left out."""
    logits, masks = drawn(classes=4)
    masks[0, :2] = IGNORED
    for place in left_out:
        masks[masks == place] = 0
    return logits, masks


@pytest.mark.parametrize("left_out", [(1,), (2,), (3,), (1, 3), (3, 2)])
def test_unannotated_classes_are_background(left_out):
    logits, masks = partly_drawn(left_out)
    used = [place for place in range(1, 4) if place not in left_out]
    merged = [0, *left_out]
    probabilities = logits.softmax(1)
    background = probabilities[:, merged].sum(1)
    known = masks != IGNORED
    of_truth = torch.where(masks == 0, background, 0.0)
    dice = []
    for place in used:
        truth, predicted = (masks == place) & known, probabilities[:, place] * known
        of_truth = of_truth + torch.where(truth, probabilities[:, place], 0.0)
        dice.append((2 * (predicted * truth).sum() + 1e-5) / (predicted.sum() + truth.sum() + 1e-5))
    by_hand = -of_truth[known].log().mean() + 1 - torch.stack(dice).mean()
    assert float(dice_cross_entropy(logits, masks, IGNORED, left_out)) == pytest.approx(float(by_hand), abs=1e-12)
    assert float(dice_cross_entropy(logits, masks, IGNORED)) > float(by_hand) + 0.1


def test_nothing_unannotated_is_the_same_loss_bit_for_bit():
    logits, masks = partly_drawn((2,))
    logits = logits.float()
    assert torch.equal(dice_cross_entropy(logits, masks, IGNORED, ()), dice_cross_entropy(logits, masks, IGNORED))
    merged, places = into_background(logits, masks, IGNORED, (2,))
    assert merged.shape == (4, 3, 6, 5) and places.dtype == torch.uint8
    assert torch.equal(merged[:, 1:], logits[:, [1, 3]]) and set(places.unique().tolist()) == {0, 1, 2, IGNORED}


def test_an_unannotated_class_has_a_gradient_through_the_background_alone():
    logits, masks = partly_drawn((2,))
    merged, places = (each.detach() for each in into_background(logits, masks, IGNORED, (2,)))
    merged.requires_grad_()
    dice_cross_entropy(merged, places, IGNORED).backward()
    logits.requires_grad_()
    dice_cross_entropy(logits, masks, IGNORED, (2,)).backward()
    share = logits.detach()[:, [0, 2]].softmax(1)
    assert torch.allclose(logits.grad[:, [0, 2]], merged.grad[:, :1] * share, atol=1e-15)
    assert torch.allclose(logits.grad[:, [1, 3]], merged.grad[:, 1:], atol=1e-15)
    moved = logits.detach().clone()
    moved[:, [0, 2]] = moved[:, [2, 0]]  # which of the two a pixel is does not matter
    loss = dice_cross_entropy(logits.detach(), masks, IGNORED, (2,))
    assert torch.allclose(dice_cross_entropy(moved, masks, IGNORED, (2,)), loss, atol=1e-14)
    assert torch.autograd.gradcheck(lambda z: dice_cross_entropy(z, masks, IGNORED, (2,)), (logits,))


def test_the_sum_of_probabilities_neither_overflows_nor_vanishes():
    logits, masks = partly_drawn((2,))
    for scale in (1e4, -1e4):
        far = torch.zeros_like(logits, dtype=torch.float32)
        far[:, 0], far[:, 2] = scale, scale
        far.requires_grad_()
        loss = dice_cross_entropy(far, masks, IGNORED, (2,))
        loss.backward()
        assert bool(loss.isfinite()) and bool(far.grad.isfinite().all())


@pytest.mark.parametrize("left_out", [(), (2,), (1, 3)])
def test_the_loss_of_a_volume_in_parts_is_that_of_the_whole(left_out):
    logits, masks = partly_drawn(left_out)
    full_loss = dice_cross_entropy(logits.movedim(0, 1)[None], masks[None], IGNORED, left_out)
    parts = SummedLoss(IGNORED, left_out)
    for place in range(4):
        parts.add(logits[place][None, :, None], masks[place][None, None])
    assert parts.value() == pytest.approx(float(full_loss), abs=1e-12)
