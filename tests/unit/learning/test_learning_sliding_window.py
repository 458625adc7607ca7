"""Whole volumes by overlapping patches."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from anchorage.learning.sliding_window import sliding_logits, window_starts


def volume_of(*sides, channels=1):
    return torch.from_numpy(np.random.default_rng(0).normal(size=(channels, *sides)).astype(np.float32))


def patches_of(volume, patch):
    def patch_at(start):
        patch_values = torch.zeros(len(volume), *patch)
        lows = [max(0, -place) for place in start]
        highs = [min(side, length - place) for place, side, length in zip(start, patch, volume.shape[1:], strict=True)]
        to = tuple(slice(low, high) for low, high in zip(lows, highs, strict=True))
        window = tuple(slice(place + low, place + high) for place, low, high in zip(start, lows, highs, strict=True))
        patch_values[(slice(None), *to)] = volume[(slice(None), *window)]
        return patch_values

    return patch_at


def slid(network, volume, patch, overlap=0.5):
    return torch.cat(list(sliding_logits(network, patches_of(volume, patch), volume.shape[1:], patch, overlap)), dim=1)


def pointwise(channels=1, classes=3):
    torch.manual_seed(0)
    return torch.nn.Conv3d(channels, classes, 1)


@pytest.mark.parametrize("sides", [(8, 8, 8), (17, 9, 23), (5, 20, 6), (4, 4, 4), (8, 30, 3)])
@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.5, 0.9])
def test_a_network_that_looks_at_one_voxel_gives_the_same_however_the_volume_is_cut(sides, overlap):
    network, volume = pointwise(2), volume_of(*sides, channels=2)
    outputs = slid(network, volume, (8, 8, 8), overlap)
    assert outputs.shape == (3, *sides)
    assert torch.allclose(outputs, network(volume[None])[0], atol=1e-4)


def test_a_volume_of_one_patch_is_predicted_directly():
    torch.manual_seed(0)
    network = torch.nn.Conv3d(1, 2, 3, padding=1)
    volume = volume_of(8, 12, 10)
    assert torch.allclose(slid(network, volume, (8, 12, 10)), network(volume[None])[0], atol=1e-5)


def test_it_is_what_monai_makes():
    inferers = pytest.importorskip("monai.inferers", reason="needs MONAI: pip install 'anchorage[monai]'")
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv3d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv3d(4, 3, 3, padding=1)
    )
    for sides, patch, overlap in (((20, 17, 11), (8, 8, 8), 0.5), ((9, 24, 16), (8, 16, 12), 0.25)):
        volume = volume_of(*sides)
        other = inferers.SlidingWindowInferer(patch, sw_batch_size=2, overlap=overlap, mode="gaussian")
        with torch.no_grad():
            wanted = other(volume[None], network)[0]
        assert torch.allclose(slid(network, volume, patch, overlap), wanted, atol=1e-4)


def test_patches_begin_inside_of_the_volume_and_cover_it():
    for side in range(1, 40):
        starts = window_starts(side, 8, 0.5)
        assert len(set(starts)) == len(starts)
        if side <= 8:
            assert starts == [-((8 - side) // 2)]
            continue
        assert starts[0] == 0 and starts[-1] == side - 8
        assert all(0 < after - before <= 4 for before, after in pairwise(starts))


def test_no_more_than_the_planes_of_a_patch_are_held():
    held = [
        planes.shape[1]
        for planes in sliding_logits(
            pointwise(), patches_of(volume_of(40, 8, 8), (8, 8, 8)), (40, 8, 8), (8, 8, 8), 0.5
        )
    ]
    assert sum(held) == 40 and max(held) <= 8
