"""Patches of volumes as a network learns them."""

import numpy as np
import pytest
import torch
from drawn_volumes import stored_volumes

from anchorage.algorithms.dice import SummedLoss, dice_cross_entropy
from anchorage.api.model import VOLUME_DEVIATION as DEVIATION
from anchorage.api.model import VOLUME_MEAN as MEAN
from anchorage.api.model import VolumeSpec
from anchorage.learning.volume_views import VolumeViews

CPU = torch.device("cpu")


def views_of(folder, patch=(8, 8, 8), **options):
    spec = VolumeSpec(spacing=("1", "1", "1"), patch=patch, **options)
    return VolumeViews(stored_volumes(folder, 3, patch), spec, CPU)


def drawn(views, kind="learnt", rows=(0, 1, 2), seed=0):
    indices = torch.tensor(rows)
    none = torch.zeros(len(rows), 8, dtype=torch.uint8)
    return views.with_labels(kind, indices, none, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", ["learnt", "weak", "strong"])
def test_masks_are_those_of_the_patches(tmp_path, kind):
    values, masks = drawn(views_of(tmp_path, patches_per_case=4), kind)
    assert values.shape == (12, 1, 8, 8, 8) and masks.shape == (12, 8, 8, 8)
    for patch, mask in zip(values[:, 0], masks, strict=True):
        # brighter with the class, whatever contrast and brightness became of them
        means = [patch[mask == of].mean() for of in range(3) if (mask == of).any()]
        assert means == sorted(means)


def test_the_same_seed_draws_the_same_patches_and_another_others(tmp_path):
    views = views_of(tmp_path)
    first, repeated, other = (drawn(views, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first[0], repeated[0]) and torch.equal(first[1], repeated[1])
    assert not torch.equal(first[0], other[0])


def test_a_patch_around_the_foreground_has_it_in_its_middle_where_the_border_allows(tmp_path):
    views = views_of(tmp_path, foreground_share="1", patches_per_case=8)
    _, masks = drawn(views)
    assert ((masks > 0) & (masks < 255)).flatten(1).any(1).all()
    both = torch.stack([(masks == of).flatten(1).any(1) for of in (1, 2)])
    assert both.any(1).all()


def test_patches_anywhere_may_have_none(tmp_path):
    spec = VolumeSpec(spacing=("1", "1", "1"), patch=(8, 8, 8), foreground_share="0", patches_per_case=64)
    views = VolumeViews(stored_volumes(tmp_path, 1, sides=(40, 40, 40)), spec, CPU)
    _, masks = drawn(views, rows=(0,))
    shares = (masks > 0).float().flatten(1).mean(1)
    assert (shares == 0).any() and (shares > 0).any()


def test_flips_move_image_and_mask_alike(tmp_path):
    spec = VolumeSpec(spacing=("1", "1", "1"), patch=(16, 16, 16), flips="Random", patches_per_case=16)
    views = VolumeViews(stored_volumes(tmp_path, 1, (16, 16, 16)), spec, CPU)
    values, masks = drawn(views, rows=(0,))
    assert len({bytes(mask.numpy().tobytes()) for mask in masks}) > 1
    for patch, mask in zip(values[:, 0], masks, strict=True):
        means = [patch[mask == of].mean() for of in (0, 1, 2)]
        assert means == sorted(means)
        assert (patch[mask == 255] == patch.min()).all()


def test_plain_views_are_the_middle_and_normalised(tmp_path):
    views = views_of(tmp_path)
    plain = views.plain(torch.tensor([2]))
    raw = stored_volumes(tmp_path, 3).read(np.array([2])).astype(np.float32) / 65535
    assert np.allclose(plain.numpy(), (raw - MEAN) / DEVIATION, atol=1e-6)


def test_a_volume_is_predicted_plane_by_plane(tmp_path):
    views, network = views_of(tmp_path), torch.nn.Conv3d(1, 3, 1)
    parts = list(views.logits(network, 1))
    assert [part.start for part, _ in parts] == [0, *(part.stop for part, _ in parts)][:-1]
    all_logits = torch.cat([logits for _, logits in parts], 2)
    values, _ = views.case(1).patch((0, 0, 0), (12, 14, 10))
    wanted = network((torch.from_numpy(values.astype(np.float32) / 65535)[None] - MEAN) / DEVIATION)
    assert torch.allclose(all_logits, wanted, atol=1e-4)


def test_the_loss_of_a_volume_is_that_of_its_parts():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 3, 12, 5, 4, generator=generator, dtype=torch.float64)
    masks = torch.randint(3, (1, 12, 5, 4), generator=generator, dtype=torch.uint8)
    masks[:, 3:5, 2] = 255
    summed = SummedLoss(255)
    for part in (slice(0, 5), slice(5, 6), slice(6, 12)):
        summed.add(logits[:, :, part], masks[:, part])
    assert summed.value() == pytest.approx(float(dice_cross_entropy(logits, masks, 255)), abs=1e-12)
