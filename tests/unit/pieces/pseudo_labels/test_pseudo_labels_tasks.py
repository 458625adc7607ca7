"""Pseudo-labels where no image is of a single class: soft guesses (UDA), masks of the received model, and the mean teacher."""

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from drawn_volumes import stored_volumes
from torch import Tensor, nn

from anchorage.algorithms.dice import confident_loss, move_maps
from anchorage.api.model import VolumeSpec
from anchorage.learning.model_hooks import augmentation_of
from anchorage.learning.views import Views
from anchorage.learning.volume_views import VolumeViews
from anchorage.pieces.pseudo_labels.mean_teacher import FindingTeacherLosses, MeanTeacher, PixelTeacherLosses
from anchorage.pieces.pseudo_labels.mean_teacher import sharpened as sharpened_rows
from anchorage.pieces.pseudo_labels.per_finding import sharpened
from anchorage.pieces.pseudo_labels.pixels import PixelLosses, ReceivedPatches, ReceivedPixels


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Maps(nn.Module):
    """Two classes by the brightness of a pixel: logits (0, scale times what is seen)."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x: Tensor) -> Tensor:
        shades = x.mean(1)
        return torch.stack([torch.zeros_like(shades), self.scale * shades], 1)


class Findings(nn.Module):
    """A logit for each of two findings by the mean of an image."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([scale, -scale]))

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((1, 2, 3))[:, None] * self.scale


def silo_round(network: nn.Module, pixels: np.ndarray, labels: np.ndarray | None = None) -> Any:
    count = len(pixels)
    views = Views(pixels, augmentation_of("Natural"), torch.device("cpu"))
    images = SimpleNamespace(views=views, unlabelled=np.arange(count), train=np.arange(count), labels=labels)
    model = SimpleNamespace(image_size=pixels.shape[-1])
    return SimpleNamespace(network=network, images=images, run=SimpleNamespace(model=model))


def round_of_volumes(network: nn.Module, folder: Path) -> Any:
    """Three volumes without a mask, of each of which two patches are drawn."""
    spec = VolumeSpec(spacing=("1", "1", "1"), patch=(8, 8, 8), patches_per_case=2)
    views = VolumeViews(stored_volumes(folder, 3), spec, torch.device("cpu"))
    received = copy.deepcopy(network).eval()
    images = SimpleNamespace(views=views, unlabelled=np.arange(3))
    return SimpleNamespace(network=network, images=images, copy_received=lambda: received)


def pictures(count: int = 3, side: int = 8) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (count, 3, side, side)).astype(np.uint8)


@pytest.mark.parametrize("temperature", ["0.4", "1"])
def test_soft_guesses_are_the_softmax_of_both_answers(temperature: str) -> None:
    logits = random(50, 3)
    present = logits > 0
    targets = sharpened(logits.sigmoid(), present, float(temperature))
    both = (torch.stack([torch.zeros_like(logits), logits], -1) / float(temperature)).softmax(-1)[..., 1]
    torch.testing.assert_close(targets, both, atol=1e-5, rtol=1e-5)


def test_a_guess_against_the_probability_is_taught_as_it_is() -> None:
    probabilities = torch.tensor([[0.3, 0.7, 0.3]])
    targets = sharpened(probabilities, torch.tensor([[True, False, False]]), 0.4)
    assert targets[0, :2].tolist() == [1.0, 0.0] and 0 < targets[0, 2] < 0.3
    assert sharpened(probabilities, torch.tensor([[True, False, True]]), 0.0).tolist() == [[1.0, 0.0, 1.0]]


def test_maps_move_as_masks_do() -> None:
    pixels = pictures()
    views = Views(pixels, augmentation_of("Natural"), torch.device("cpu"))
    masks = torch.from_numpy(np.random.default_rng(2).integers(0, 3, (3, 8, 8)).astype(np.uint8))
    draws = [torch.Generator().manual_seed(4) for _ in range(2)]
    indices = torch.arange(3)
    viewed_images, known = views.with_labels("strong", indices, masks, draws[0])
    repeated, places = views.with_places("strong", indices, draws[1])
    assert torch.equal(viewed_images, repeated) and torch.equal(draws[0].get_state(), draws[1].get_state())
    moved_masks = move_maps(masks.unsqueeze(1), places).squeeze(1).masked_fill(places < 0, 255)
    assert torch.equal(moved_masks, known) and (places >= 0).any()


def test_certain_targets_are_those_of_the_classes() -> None:
    logits, masks = (
        random(2, 3, 4, 4),
        torch.randint(0, 3, (2, 4, 4), generator=torch.Generator().manual_seed(1)).byte(),
    )
    masks[0, 0] = 255
    certain = nn.functional.one_hot(masks.long().clamp(max=2), 3).movedim(-1, 1).float()
    assert torch.equal(confident_loss(logits, masks, 255), confident_loss(logits, masks, 255, certain))
    soft = random(2, 3, 4, 4, seed=3).softmax(1)
    known = masks != 255
    entropy = -(soft * logits.log_softmax(1)).sum(1)[known].mean()
    masks = torch.where(known, 0, 255).byte()  # without foreground the Dice does not count
    torch.testing.assert_close(confident_loss(logits, masks, 255, soft), entropy)


def test_the_received_model_labels_once_and_images_without_confident_pixels_are_left_out() -> None:
    pixels = pictures()
    pixels[1] = 120  # about the mean: neither class is sure of any pixel
    network = Maps(3.0).eval()
    labels = ReceivedPixels(silo_round(network, pixels), 0.95)
    assert labels.indices.tolist() == [0, 2] and labels.images() == 2
    before = labels._masks.clone()
    network.scale.data.fill_(-3.0)
    assert torch.equal(labels._masks, before) and set(before.unique().tolist()) <= {0, 1, 255}
    confident = before != 255
    values = network(Views(pixels, augmentation_of("Natural"), torch.device("cpu")).plain(torch.tensor([0, 2])))
    assert torch.equal(before[confident] == 0, (values[:, 1] > 0)[confident])  # the labels of the model as it was


def test_soft_and_hard_pixels_teach_alike_where_the_model_is_sure() -> None:
    at, losses = silo_round(Maps(1e4), pictures()), []
    for temperature in (None, 1.0):
        pixels = PixelLosses(at, 0.9, temperature)
        losses.append(pixels._loss(np.arange(3), torch.Generator().manual_seed(5)).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_the_teacher_of_findings_leaves_known_ones() -> None:
    labels = np.array([[-1, 1], [0, 2], [-1, -1]], np.int8)
    at = silo_round(Findings(1.0), pictures(), labels)
    assert FindingTeacherLosses.select_images(at.images).tolist() == [0, 2]
    teacher: Any = SimpleNamespace(network=Findings(2.0))
    losses = FindingTeacherLosses(at, teacher, np.array([0, 2]), MeanTeacher(temperature="0.5"))
    at.images.views.weak = lambda indices, draws: at.images.views.plain(indices)
    indices = torch.tensor([0, 2])
    error = losses._error(indices, torch.Generator(), 4)
    plain_views = at.images.views.plain(indices)
    target = teacher.network(plain_views).sigmoid()
    target = target**2 / (target**2 + (1 - target) ** 2)
    each = 2 * (at.network(plain_views).sigmoid() - target) ** 2
    each[0, 1] = 0
    torch.testing.assert_close(error, each.sum() / 2 / 4)
    (gradient,) = torch.autograd.grad(losses._error(torch.tensor([0]), torch.Generator(), 1), [at.network.scale])
    assert gradient[1] == 0 and gradient[0] != 0


def test_the_teacher_of_pixels_sees_images_as_they_are_and_moves_with_the_view() -> None:
    at = silo_round(Maps(1.0), pictures())
    teacher: Any = SimpleNamespace(network=Maps(2.0))
    losses = PixelTeacherLosses(at, teacher, np.arange(3), MeanTeacher(temperature="0.5"))
    indices = torch.arange(3)
    error = losses._error(indices, torch.Generator().manual_seed(3), 6)
    weak_views, places = at.images.views.with_places("weak", indices, torch.Generator().manual_seed(3))
    targets = move_maps(sharpened_rows(teacher.network(at.images.views.plain(indices)).softmax(1), 0.5), places)
    each = (at.network(weak_views).softmax(1) - targets).square().sum(1)
    torch.testing.assert_close(
        error, torch.stack([row[known >= 0].mean() for row, known in zip(each, places, strict=True)]).sum() / 6
    )
    same = PixelTeacherLosses(at, SimpleNamespace(network=at.network), np.arange(3), MeanTeacher(temperature="1"))  # type: ignore[arg-type]
    assert same._error(indices, torch.Generator().manual_seed(3), 6).item() == pytest.approx(0, abs=1e-9)


def test_the_teacher_of_volumes_sees_the_patches_of_the_view(tmp_path: Path) -> None:
    at = round_of_volumes(Maps(1.0), tmp_path)
    teacher: Any = SimpleNamespace(network=Maps(2.0))
    losses = PixelTeacherLosses(at, teacher, np.arange(3), MeanTeacher(temperature="0.5"))
    error = losses._error(torch.arange(3), torch.Generator().manual_seed(3), 6)
    plain, changed = at.images.views.pair("weak", torch.arange(3), torch.Generator().manual_seed(3))
    targets = sharpened_rows(teacher.network(plain).softmax(1), 0.5)
    squares = (at.network(changed).softmax(1) - targets).square().sum(1)
    assert squares.shape == (6, 8, 8, 8) and not torch.equal(plain, changed)
    torch.testing.assert_close(error, squares.mean((1, 2, 3)).view(3, 2).mean(1).sum() / 6)


def test_the_received_model_labels_patches_as_it_came(tmp_path: Path) -> None:
    at = round_of_volumes(Maps(3.0), tmp_path)
    labels, by_model_in_training = ReceivedPatches(at, 0.6), PixelLosses(at, 0.6)
    first = [each._loss(np.arange(3), torch.Generator().manual_seed(5)) for each in (labels, by_model_in_training)]
    torch.testing.assert_close(*first)
    at.network.scale.data.fill_(-3.0)
    later = [each._loss(np.arange(3), torch.Generator().manual_seed(5)) for each in (labels, by_model_in_training)]
    plain, changed = at.images.views.pair("strong", torch.arange(3), torch.Generator().manual_seed(5))
    taught = labels.masks(Maps(3.0)(plain))
    torch.testing.assert_close(later[0], confident_loss(at.network(changed), taught, 255))
    assert later[0] > later[1] and labels.images() > 0
