"""Views have the distribution of the published pipelines: torchvision's and Pillow's operations are the measure (methods reference, 5.2)."""

from math import degrees

import pytest
import torch
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.v2 import functional as plain

from anchorage.learning.data import photometric
from anchorage.learning.data.barlow import barlow_views
from anchorage.learning.data.geometry import resized_crop
from anchorage.learning.data.rand_augment import RandAugment
from anchorage.learning.model_hooks import augmentation_of


def generator(seed=1):
    return torch.Generator().manual_seed(seed)


def picture(side=16, seed=3):
    """One smooth picture with colours, uint8 [1, 3, side, side]."""
    coarse = torch.rand(1, 3, 5, 5, generator=generator(seed))
    return (torch.nn.functional.interpolate(coarse, side, mode="bilinear") * 255).to(torch.uint8)


def affine(image, *, angle=0.0, translate=(0, 0), shear=(0.0, 0.0), corner=False):
    return plain.affine(image, angle, list(translate), 1.0, list(shear), center=[0, 0] if corner else None)


def operations_of_semifl(image):
    """Return what torchvision's RandAugment makes of an image by one operation at m = 10 of 31, with either sign."""
    side = image.shape[-1]
    tilt, shift = degrees(torch.tensor(0.1).atan().item()), int(150 / 331 * side / 3)
    made = {"nothing": [image], "equalise": [plain.equalize(image)], "autocontrast": [plain.autocontrast(image)]}
    made["posterise"], made["solarise"] = [plain.posterize(image, 7)], [plain.solarize(image, 171)]
    for name in ("brightness", "saturation", "contrast", "sharpness"):
        made[name] = [getattr(plain, f"adjust_{name}")(image, factor) for factor in (0.7, 1.3)]
    made["shear x"] = [affine(image, shear=(s, 0), corner=True) for s in (-tilt, tilt)]
    made["shear y"] = [affine(image, shear=(0, s), corner=True) for s in (-tilt, tilt)]
    made["shift x"] = [affine(image, translate=(s, 0)) for s in (-shift, shift)]
    made["shift y"] = [affine(image, translate=(0, s)) for s in (-shift, shift)]
    made["turn"] = [affine(image, angle=a) for a in (-10.0, 10.0)]
    return made


def test_rand_augment_draws_torchvisions_operations_with_equal_chances():
    image, count = picture(20), 1400
    drawn = RandAugment(1)(image.float().div(255).expand(count, -1, -1, -1), generator())
    made = operations_of_semifl(image)
    assert len(made) == 14
    names = [name for name, images in made.items() for _ in images]
    expected = torch.cat([i for images in made.values() for i in images]).float() / 255
    distance = (drawn[:, None] - expected).abs().mean((2, 3, 4))
    nearest, which = distance.min(1)
    assert nearest.max() < 0.012, "a few pixels at the border may come from a neighbour"
    share = torch.tensor([(which == k).float().mean() for k in range(len(names))])
    for name in made:
        of_name = [share[k].item() for k in range(len(names)) if names[k] == name]
        assert sum(of_name) == pytest.approx(1 / 14, abs=0.025), name
        assert len(of_name) == 1 or min(of_name) > 0.015, (name, "both signs")


def test_any_magnitude_and_a_grey_square():
    image = torch.full((400, 3, 32, 32), 0.9)
    cut = RandAugment(0, uniform=True, cut=True)(image, generator())
    hidden = (cut[:, 0] != 0.9).float().mean((1, 2))
    assert 0.2 < hidden.max() <= 0.27 and hidden.mean() == pytest.approx(1 / 12 * 0.9, abs=0.02)
    assert torch.allclose(cut[:, 0].unique(), torch.tensor([125 / 255, 0.9]))
    turned = RandAugment(1, uniform=True)(picture(32).float().div(255).expand(300, -1, -1, -1), generator())
    assert turned.unique(dim=0).shape[0] > 150, "magnitudes are drawn from a range"


def test_resized_views_are_crops_of_the_enlarged_image():
    images = picture(32).expand(6, -1, -1, -1)
    augmentation = augmentation_of("ResizedNatural")
    views = augmentation.weak(images, generator())
    expected = augmentation.normalise(plain.resize(images[:1].float() / 255, [40, 40], antialias=False))
    windows = expected.unfold(2, 32, 1).unfold(3, 32, 1)[0].permute(1, 2, 0, 3, 4).flatten(0, 1)
    for view in views:
        nearest = min((windows - one).abs().amax((1, 2, 3)).min() for one in (view, view.flip(2)))
        assert nearest < 1e-4
    assert torch.equal(augmentation.plain(images), augmentation.normalise(images)), "tests are not enlarged"


@pytest.mark.parametrize(("side", "scale"), [(32, 32 / 40), (224, 224 / 250)])
def test_how_much_resized_views_are_enlarged(side, scale):
    ramp = torch.arange(side, dtype=torch.uint8).expand(2, 3, side, side)
    slope = augmentation_of("ResizedDermoscopy").weak(ramp, generator())[:, 0].diff(dim=2)[:, 0, side // 2].abs()
    assert (slope * 0.141 * 255).tolist() == pytest.approx([scale, scale], rel=1e-3)


def test_cropped_views_are_standardised_three_quarters():
    augmentation, images = augmentation_of("CroppedNatural"), picture(32).expand(8, -1, -1, -1)
    assert augmentation.side(32) == 24
    for views in (
        augmentation.plain(images),
        augmentation.weak(images, generator()),
        augmentation.strong(images, generator()),
    ):
        assert views.shape == (8, 3, 24, 24)
        assert torch.allclose(views.mean((1, 2, 3)), torch.zeros(8), atol=1e-4)
        assert torch.allclose(views.std((1, 2, 3), correction=0), torch.ones(8), atol=1e-3)
    middle = images[..., 4:28, 4:28].float()
    assert torch.allclose(augmentation.plain(images), (middle - middle.mean()) / middle.std(correction=0), atol=1e-3)
    flat = augmentation.plain(torch.full((1, 3, 32, 32), 9, dtype=torch.uint8))
    assert flat.abs().max() < 1e-3, "a flat image becomes 0"


@pytest.mark.parametrize("turn", [-0.1, 0.04, 0.1])
def test_hue_is_torchvisions(turn):
    images = torch.rand(3, 3, 16, 16, generator=generator())
    changed = photometric.hue(images, torch.full((3, 1, 1, 1), turn))
    assert torch.allclose(changed, plain.adjust_hue(images, turn), atol=1e-5)


@pytest.mark.parametrize("sigma", [0.1, 1.0, 2.0])
def test_blur_is_torchvisions_inside(sigma):
    images = torch.rand(2, 3, 24, 24, generator=generator())
    inside = slice(6, -6)
    changed = photometric.blur(images, torch.full((2, 1, 1, 1), sigma))[..., inside, inside]
    assert torch.allclose(
        changed, plain.gaussian_blur(images, [13, 13], [sigma, sigma])[..., inside, inside], atol=1e-5
    )


def test_crops_are_drawn_as_torchvision_draws_them():
    count, side = 4000, 32
    place = (torch.arange(side) + 0.5).expand(side, side)
    crops = resized_crop(torch.stack([place, place.T]).expand(count, 2, side, side), generator())
    wide = (crops[:, 0, 16, 20] - crops[:, 0, 16, 12]).abs() * 4
    high = (crops[:, 1, 20, 16] - crops[:, 1, 12, 16]) * 4
    centre = crops[:, 0, 16, 15:17].mean(1)
    drawn = torch.tensor(
        [RandomResizedCrop.get_params(torch.empty(3, side, side), [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(count)]
    ).float()
    assert wide.mean() == pytest.approx(drawn[:, 3].mean().item(), abs=0.5)
    assert (wide * high).std() == pytest.approx((drawn[:, 2] * drawn[:, 3]).std().item(), rel=0.06)
    assert centre.std() == pytest.approx((drawn[:, 1] + drawn[:, 3] / 2).std().item(), rel=0.08)
    mirrored = crops[:, 0, 16, 20] < crops[:, 0, 16, 12]
    assert mirrored.float().mean() == pytest.approx(0.5, abs=0.04)


def test_lesions_are_seen_in_every_position_of_a_square():
    count, side = 1600, 24
    place = (torch.arange(side) + 0.5).expand(side, side)
    crops = resized_crop(
        torch.stack([place, place.T]).expand(count, 2, side, side), generator(), smallest=0.4, rotated=True
    )
    across, down = crops[:, :, 12, 16] - crops[:, :, 12, 8], crops[:, :, 16, 12] - crops[:, :, 8, 12]
    area = 9 * (across[:, 0] * down[:, 1] - across[:, 1] * down[:, 0]).abs()
    assert 0.38 * side**2 < area.min() and area.max() == pytest.approx(side**2, rel=0.01)
    turned = across[:, 0].abs() < across[:, 1].abs()
    assert torch.all(torch.where(turned, across[:, 0], across[:, 1]).abs() < 1e-4)
    signs = torch.stack([turned, (across + down > 0)[:, 0], (across + down > 0)[:, 1]], 1)
    _, counts = signs.unique(dim=0, return_counts=True)
    assert len(counts) == 8 and counts.float().tolist() == pytest.approx([count / 8] * 8, rel=0.25)


def test_rotated_views_are_normalised_and_repeat():
    augmentation, images = augmentation_of("RotatedDermoscopy"), picture(32).expand(8, -1, -1, -1)
    views = augmentation.weak(images, generator())
    assert views.shape == (8, 3, 32, 32) and torch.equal(views, augmentation.weak(images, generator()))
    assert torch.equal(augmentation.plain(images), augmentation_of("Dermoscopy").plain(images))
    assert len(views.unique(dim=0)) == 8


def test_barlows_views_have_their_chances():
    images = torch.rand(1, 3, 16, 16, generator=generator()).expand(700, -1, -1, -1)
    first, second = barlow_views(images, generator())
    roughness = [(v.diff(dim=3).abs().mean((1, 2, 3)) / v.std((1, 2, 3))) for v in (first, second)]
    for views in (first, second):
        grey = (views.amax(1) - views.amin(1)).amax((1, 2)) < 1e-6
        assert grey.float().mean() == pytest.approx(0.2, abs=0.05)
        assert views.min() >= 0 and views.max() <= 1 + 1e-6
    assert roughness[0].mean() < 0.75 * roughness[1].mean(), "the first is always blurred, the second one time in ten"
    dark = torch.full((700, 3, 16, 16), 0.95)
    solarised = [(view.mean((1, 2, 3)) < 0.4).float().mean() for view in barlow_views(dark, generator())]
    assert solarised[0] == 0 and solarised[1] == pytest.approx(0.16, abs=0.05), (
        "of bright images that jitter left bright"
    )
