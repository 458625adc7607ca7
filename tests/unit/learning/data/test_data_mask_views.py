"""Masks move with the views of their images, by the same draws, and the images' views stay as they are without masks."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from anchorage.api.piece import PIECES
from anchorage.api.task import UNKNOWN_PIXEL
from anchorage.learning.model_hooks import augmentation_of

MOVING = [name for name, kind in PIECES.of("augmentation").items() if kind.moves_masks]


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


def discs(count=64, side=32, channels=3):
    rng = np.random.default_rng(1)
    rows, columns = np.mgrid[:side, :side]
    centres = rng.uniform(side / 4, side * 3 / 4, (count, 2))
    masks = (rows - centres[:, :1, None]) ** 2 + (columns - centres[:, 1:, None]) ** 2 < (side / 5) ** 2
    images = np.repeat(np.where(masks, 240, 30)[:, None], channels, 1).astype(np.uint8)
    return torch.from_numpy(images), torch.from_numpy(masks.astype(np.uint8))


def test_the_views_that_masks_can_follow_are_known():
    assert {"Natural", "Dermoscopy", "RotatedDermoscopy", "ResizedDermoscopy", "Digits"} <= set(MOVING)
    assert "CroppedNatural" not in MOVING


@pytest.mark.parametrize("strong", [False, True])
@pytest.mark.parametrize("name", MOVING)
def test_images_views_and_later_draws_are_those_without_masks(name, strong):
    images, masks = discs()
    views, alone, other_generator = augmentation_of(name), generator(), generator()
    plain = (views.strong if strong else views.weak)(images, alone)
    moved_images, moved = views.with_masks(images, masks, other_generator, strong=strong)
    assert torch.equal(plain, moved_images) and torch.equal(alone.get_state(), other_generator.get_state())
    assert moved.dtype == torch.uint8 and moved.shape == masks.shape
    assert set(moved.unique().tolist()) <= {0, 1, UNKNOWN_PIXEL}


@pytest.mark.parametrize("name", MOVING)
def test_weak_views_show_the_disc_where_the_mask_says(name):
    images, masks = discs()
    views = augmentation_of(name)
    moved_images, moved = views.with_masks(images, masks, generator(), strong=False)
    middle = views.normalise(torch.full((1, 3, 1, 1), 135, dtype=torch.uint8))
    bright, known = (moved_images > middle)[:, 0], moved != UNKNOWN_PIXEL
    wrong = (bright != (moved == 1)) & known
    assert known.float().mean() > 0.85 and moved.eq(1).any()
    # interpolated images may differ at the border of the disc, by half a pixel
    assert wrong.float().mean() < (0.02 if name.startswith(("Resized", "Rotated")) else 1e-9)


@pytest.mark.parametrize("name", MOVING)
def test_strong_views_turn_and_shear_masks_too(name):
    images, masks = discs(256)
    views = augmentation_of(name)
    moved_images, moved = views.with_masks(images, masks, generator(), strong=True)
    value = moved_images.mean(1)
    inside = torch.stack(
        [v[m == 1].mean() for v, m in zip(value, moved, strict=True) if m.eq(1).sum() > 20 and m.eq(0).sum() > 20]
    )
    outside = torch.stack(
        [v[m == 0].mean() for v, m in zip(value, moved, strict=True) if m.eq(1).sum() > 20 and m.eq(0).sum() > 20]
    )
    apart = (inside - outside).abs() > 0.5
    assert len(inside) > 200 and apart.float().mean() > 0.8


def test_what_a_shift_brings_in_from_nowhere_is_not_known():
    images, masks = discs()
    _, moved = augmentation_of("Digits").with_masks(images, masks, generator(), strong=False)
    assert (moved == UNKNOWN_PIXEL).any() and not (moved == UNKNOWN_PIXEL).all()
