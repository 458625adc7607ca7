"""Volumes and masks on a model's grid: the same input however a volume is stored, masks that fit, predictions on the file's own grid."""

import gzip
import os
from pathlib import Path

import nibabel
import numpy as np
import pytest
from drawn_scans import decode_apart, gzipped, write_nifti, write_series
from nibabel.processing import resample_from_to

from anchorage.learning.data.cases import case_of, levels_of, read_mask, read_scan
from anchorage.learning.data.decoding import RefusedImageError
from anchorage.learning.data.grids import Grid, nearest_on_grid_of_model, on_grid_of_model, on_own_grid, respace
from anchorage.learning.data.intensity import intensity_of
from anchorage.learning.data.listing import REASONS
from anchorage.learning.data.masks import MaskReader
from anchorage.learning.data.nifti import write_classes
from anchorage.learning.data.sources import Series

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # pydicom's, which the product never shows

CLASSES = ("background", "a", "b")
TABLE = MaskReader(CLASSES).values({}, None)
Z_SCORE = intensity_of({"zScore": {"over": "All"}})
WINDOW = intensity_of({"window": {"low": "-100", "high": "300"}})
AFFINE = np.array([[0.9, 0, 0, -7], [0, 1.1, 0, 11], [0, 0, 2.5, 3], [0, 0, 0, 1.0]])
HIPPOCAMPUS = Path(os.environ.get("ANCHORAGE_DATA", "../shared/data")) / "hippocampus"


def drawn(seed=0, shape=(12, 10, 8)):
    """Return whole numbers from -100 to 300, and classes."""
    rng = np.random.default_rng(seed)
    return rng.integers(-100, 301, shape).astype(np.int16), rng.integers(0, 3, shape).astype(np.uint8)


def turned(values, affine, axes):
    """Return an image whose axes lead elsewhere."""
    image = nibabel.Nifti1Image(values, affine)
    to = nibabel.orientations.axcodes2ornt(tuple(axes))
    return image.as_reoriented(nibabel.orientations.ornt_transform(nibabel.io_orientation(affine), to))


def case(
    source, mask=None, spacing=(1.0, 1.0, 1.0), intensity=Z_SCORE, channels=1, nan="Refuse", orientation="Anatomical"
):
    return case_of(source, mask, channels, spacing, intensity, TABLE, CLASSES, nan, orientation)


def refused(reason, function, *arguments, **options):
    with pytest.raises(RefusedImageError) as raised:
        function(*arguments, **options)
    assert raised.value.reason == reason and reason in REASONS
    return raised.value.detail


@pytest.mark.parametrize("spacing", [(0.9, 1.1, 2.5), (1.0, 1.0, 1.0), (2.0, 2.2, 1.3)])
@pytest.mark.parametrize("axes", ["RAS", "LPS", "PSR", "ILP"])
def test_the_same_volume_gives_the_same_input_however_it_is_stored(tmp_path, axes, spacing):
    values, classes = drawn()
    plain = case(
        write_nifti(tmp_path / "x.nii", values, AFFINE), write_nifti(tmp_path / "m.nii", classes, AFFINE), spacing
    )
    stored = turned(values, AFFINE, axes)
    mask = turned(classes, AFFINE, axes)
    nibabel.save(mask, tmp_path / "turned_mask.nii.gz")
    scaled = nibabel.Nifti1Image(stored.get_fdata(dtype=np.float32), stored.affine)
    scaled.header.set_data_dtype(np.int16)  # nibabel chooses slope and intercept
    floats = nibabel.Nifti1Image(np.asarray(stored.dataobj, np.float32), stored.affine)
    for name, image in (("int16.nii.gz", stored), ("slope.nii", scaled), ("float32.nii.gz", floats)):
        nibabel.save(image, tmp_path / name)
        turned_case = case(tmp_path / name, tmp_path / "turned_mask.nii.gz", spacing)
        np.testing.assert_allclose(turned_case.values / 65535, plain.values / 65535, atol=1e-4)
        np.testing.assert_array_equal(turned_case.mask, plain.mask)
        np.testing.assert_allclose(turned_case.model_grid.affine, plain.model_grid.affine, atol=1e-5)
        assert turned_case.counts.tolist() == plain.counts.tolist() == np.bincount(classes.ravel()).tolist()
        own_mask = on_own_grid(turned_case.mask, turned_case.model_grid, turned_case.grid)
        assert own_mask.shape == stored.shape
        there = nibabel.Nifti1Image(own_mask, turned_case.grid.affine)
        back = np.asarray(nibabel.as_closest_canonical(there).dataobj)
        np.testing.assert_array_equal(back, on_own_grid(plain.mask, plain.model_grid, plain.grid))


def test_a_series_gives_the_input_of_its_conversion(tmp_path):
    values, classes = drawn()
    lps = turned(values, AFFINE, "LPS")
    stored = np.asarray(lps.dataobj) + 1000
    origin = np.diag([-1, -1, 1]) @ lps.affine[:3, 3]
    where = {"spacing": (0.9, 1.1, 2.5), "origin": tuple(origin)}
    series = Series(write_series(tmp_path / "s", stored.astype(np.uint16), RescaleIntercept="-1000", **where))
    masks = Series(
        write_series(tmp_path / "m", np.asarray(turned(classes, AFFINE, "LPS").dataobj), bits=8, uid="1.7", **where)
    )
    mask = write_nifti(tmp_path / "m.nii", classes, AFFINE)
    plain = case(write_nifti(tmp_path / "x.nii", values, AFFINE), mask, intensity=WINDOW)
    for other in (mask, masks):
        series_case = case(series, other, intensity=WINDOW)
        np.testing.assert_allclose(series_case.values / 65535, plain.values / 65535, atol=1e-4)
        np.testing.assert_array_equal(series_case.mask, plain.mask)


def test_between_voxels_values_are_linear():
    places = np.stack(np.meshgrid(*(np.arange(n) for n in (9, 8, 7)), indexing="ij"))
    grid = Grid((9, 8, 7), AFFINE)
    ramp = np.tensordot(AFFINE[:3, :3], places, 1)[:, ...] + AFFINE[:3, 3].reshape(3, 1, 1, 1)  # positions, mm
    wanted = respace(grid, (0.6, 1.7, 1.9))
    resampled = on_grid_of_model(ramp.astype(np.float32), grid, wanted)
    assert wanted.shape == (14, 5, 9) and resampled.shape == (3, 14, 5, 9) and resampled.flags.c_contiguous
    inner = (slice(None), slice(1, -1), slice(1, -1), slice(1, -1))
    there = np.stack(np.meshgrid(*(np.arange(n) for n in wanted.shape), indexing="ij"))
    expected = np.tensordot(wanted.affine[:3, :3], there, 1) + wanted.affine[:3, 3].reshape(3, 1, 1, 1)
    np.testing.assert_allclose(resampled[inner], expected[inner], atol=1e-4)


def test_the_own_spacing_changes_no_value():
    values = drawn()[0].astype(np.float32)[None]
    grid = Grid(values.shape[1:], AFFINE)
    wanted = respace(grid, grid.spacing)
    np.testing.assert_array_equal(on_grid_of_model(values, grid, wanted), values)
    np.testing.assert_allclose(wanted.affine, AFFINE)


def test_oblique_axes_are_kept():
    turn = nibabel.affines.from_matvec(
        nibabel.eulerangles.euler2mat(0.3, 0.2, -0.25) @ np.diag([-1.0, 2, 3]), [1, 2, 3]
    )
    grid = Grid((8, 9, 10), turn)
    wanted = respace(grid, (2.0, 2.0, 2.0))
    assert wanted.spacing == pytest.approx((2, 2, 2)) and wanted.orientation == "RAS"
    directions = turn[:3, :3] / np.linalg.norm(turn[:3, :3], axis=0)
    np.testing.assert_allclose(wanted.affine[:3, :3] / 2, directions * [-1, 1, 1], atol=1e-9)
    middle = turn @ [3.5, 4, 4.5, 1]
    np.testing.assert_allclose(wanted.affine @ [*((np.array(wanted.shape) - 1) / 2), 1], middle)


def test_orientations_are_those_of_nibabel():
    rng = np.random.default_rng(0)
    for _ in range(50):
        matrix = nibabel.eulerangles.euler2mat(*rng.uniform(-0.4, 0.4, 3))[:, rng.permutation(3)] * rng.choice(
            [-1, 1], 3
        )
        affine = nibabel.affines.from_matvec(matrix * rng.uniform(0.5, 3, 3), rng.normal(size=3))
        grid = Grid((4, 5, 6), affine)
        assert grid.orientation == "".join(nibabel.aff2axcodes(affine))
        canonical = nibabel.as_closest_canonical(
            nibabel.Nifti1Image(np.arange(120, dtype=np.int16).reshape(4, 5, 6), affine)
        )
        np.testing.assert_allclose(grid.turn().affine, canonical.affine, atol=1e-5)
        values = np.arange(120, dtype=np.int16).reshape(4, 5, 6)
        np.testing.assert_array_equal(grid.upright(values), np.asarray(canonical.dataobj))
        np.testing.assert_array_equal(grid.as_stored(grid.upright(values)), values)


@pytest.mark.parametrize("affine", [np.diag([0.0, 1, 1, 1]), np.diag([np.nan, 1, 1, 1]), np.eye(4)[[0, 0, 2, 3]]])
def test_axes_that_lead_nowhere_are_refused(affine):
    refused("Damaged", Grid, (3, 3, 3), affine)


def test_classes_of_another_file_are_a_mistake():
    grid = Grid((4, 5, 6), np.eye(4))
    with pytest.raises(ValueError, match="not of a file"):
        on_own_grid(np.zeros((4, 5, 6), np.uint8), grid, Grid((4, 5, 7), np.eye(4)))


def test_a_prediction_is_written_on_the_grid_of_its_image(tmp_path):
    values, classes = drawn()
    nibabel.save(turned(values, AFFINE, "LPI"), tmp_path / "x.nii")
    scan = read_scan(tmp_path / "x.nii")
    wanted = respace(scan.grid, (0.9, 1.1, 2.5))
    write_classes(tmp_path / "p.nii.gz", on_own_grid(classes, wanted, scan.grid), scan.grid)
    image, written = nibabel.load(tmp_path / "x.nii"), nibabel.load(tmp_path / "p.nii.gz")
    np.testing.assert_allclose(written.affine, image.affine, atol=1e-5)
    assert written.get_data_dtype() == np.uint8 and written.shape == image.shape
    np.testing.assert_array_equal(np.asarray(nibabel.as_closest_canonical(written).dataobj), classes)
    texts = [written.header[name].tobytes() for name in ("descrip", "aux_file", "intent_name", "db_name")]
    assert not any(text.strip(b"\0") for text in texts)


def test_levels_are_the_shades_of_the_intensity():
    values = np.array([-200, -100, 0, 100, 300, 400], np.float32).reshape(1, 6, 1, 1)
    levels = levels_of(values, (0, np.inf), None, WINDOW)
    assert levels.ravel().tolist() == [0, 0, 16384, 32768, 65535, 65535]
    assert levels_of(values, (0, np.inf), None, WINDOW, inverted=True).ravel().tolist()[:3] == [65535, 65535, 49151]
    assert "spec.model.intensity" in refused("Unsupported", levels_of, values, (0, np.inf), None, None)
    bits = levels_of(values.clip(0), (0, 1023), None, None)
    np.testing.assert_array_equal(bits.ravel(), np.rint(values.clip(0).ravel() / 1023 * 65535))


@pytest.mark.parametrize(
    ("values", "limit"), [(np.arange(27), 255), (np.arange(27) * 30, 1023), (np.arange(27) * 1000, 65535)]
)
def test_without_an_intensity_white_is_what_the_bits_of_the_largest_value_hold(tmp_path, values, limit):
    file = write_nifti(tmp_path / "x.nii", values.reshape(3, 3, 3).astype(np.int32))
    np.testing.assert_allclose(case(file, intensity=None).values.ravel() / 65535, values / limit, atol=1e-5)


def test_padding_counts_in_no_statistic_and_darkens_no_border(tmp_path):
    values = np.random.default_rng(0).integers(900, 1100, (10, 10, 6)).astype(np.int16)
    outside = np.zeros(values.shape, bool)
    outside[:3] = True
    padded = np.where(outside, -2000, values).astype(np.int16)
    series = Series(write_series(tmp_path, padded, PixelPaddingValue=-2000))
    resampled = case(series, spacing=(1.0, 1.0, 1.0)).values[0, ::-1, ::-1]  # to the right and the front again
    inside = values[3:].astype(np.float64)
    expected = ((inside - inside.mean()) / (10 * inside.std()) + 0.5) * 65535
    np.testing.assert_allclose(resampled[3:], expected, atol=1)
    assert (resampled[:3] == 0).all()
    finer = case(
        series, spacing=(0.5, 1.0, 1.0), intensity=intensity_of({"window": {"low": "0", "high": "2000"}})
    ).values[0, ::-1]
    assert set(np.unique((finer >= 65535 * 0.44).sum(axis=0))) == {14} and set(np.unique((finer == 0).sum(axis=0))) == {
        6
    }


def test_a_last_axis_of_one_is_no_channel_and_others_are_channels(tmp_path):
    values = drawn()[0]
    one = case(write_nifti(tmp_path / "one.nii", values[..., None], AFFINE))
    np.testing.assert_array_equal(one.values, case(write_nifti(tmp_path / "x.nii", values, AFFINE)).values)
    three = write_nifti(tmp_path / "three.nii", np.stack([values, values * 2, -values], 3), AFFINE)
    case_values = case(three, channels=3).values
    assert case_values.shape[0] == 3
    np.testing.assert_array_equal(case_values[0], one.values[0])
    assert "3 channels, but 1" in refused("Unsupported", case, three)
    assert "1 channels, but 3" in refused("Unsupported", case, tmp_path / "x.nii", channels=3)
    five = write_nifti(tmp_path / "five.nii", np.zeros((4, 4, 4, 1, 2), np.int16))
    assert "5 dimensions" in refused("Unsupported", case, five)


def test_voxels_without_a_number_are_zero_where_the_model_says_so(tmp_path):
    values = drawn()[0].astype(np.float32)
    values[:3] = 0
    plain = case(write_nifti(tmp_path / "zero.nii", values))
    values[:3] = np.nan
    read = case(write_nifti(tmp_path / "nan.nii", values), nan="Zero")
    np.testing.assert_array_equal(read.values, plain.values)
    assert "NaN read as 0" in read.facts and "NaN read as 0" not in plain.facts


def without_orientation(file, values, spacing=(1.0, 1.0, 1.0)):
    """Write a file that does not say where its axes lead."""
    image = nibabel.Nifti1Image(values, None)
    image.header.set_zooms(spacing)
    nibabel.save(image, file)
    return file


@pytest.mark.parametrize("axes", ["RAS", "LPS", "PSR"])
def test_a_volume_as_stored_is_not_turned(tmp_path, axes):
    values, classes = drawn()
    affine = turned(values, AFFINE, axes).affine
    spacing = tuple(map(float, nibabel.affines.voxel_sizes(affine)))
    files = [write_nifti(tmp_path / name, each, affine) for name, each in (("x.nii", values), ("m.nii", classes))]
    read = case(*files, spacing, WINDOW, orientation="AsStored")
    upright = write_nifti(tmp_path / "y.nii", values, np.diag([*spacing, 1.0]))
    np.testing.assert_array_equal(read.values, case(upright, None, spacing, WINDOW).values)
    np.testing.assert_array_equal(read.mask, classes)
    assert f"orientation {axes}" in read.facts, "a site's report says it all the same"
    write_classes(tmp_path / "p.nii", on_own_grid(read.mask, read.model_grid, read.grid), read.grid)
    np.testing.assert_allclose(nibabel.load(tmp_path / "p.nii").affine, affine, atol=1e-5)
    mirrored = write_nifti(tmp_path / "other.nii", classes, affine @ np.diag([-1.0, 1, 1, 1]))
    refused("MaskDiffers", case, files[0], mirrored, spacing, orientation="AsStored")


def test_a_volume_without_orientation_is_read_as_stored_and_its_mask_is_written_without(tmp_path):
    values, classes = drawn()
    spacing = (1.0, 2.0, 3.0)
    image = without_orientation(tmp_path / "x.nii", values, spacing)
    mask = without_orientation(tmp_path / "m.nii", classes, spacing)
    assert "orientation: AsStored" in refused("Unsupported", case, image, mask)
    read = case(image, mask, (1.0, 1.0, 1.0), orientation="AsStored")
    assert read.values.shape == (1, 12, 20, 24) and "orientation not stated" in read.facts
    plain = write_nifti(tmp_path / "plain.nii", values, np.diag([*spacing, 1.0]))
    np.testing.assert_array_equal(read.values, case(plain, None, (1.0, 1.0, 1.0)).values)
    write_classes(tmp_path / "p.nii", on_own_grid(read.mask, read.model_grid, read.grid), read.grid)
    written = nibabel.load(tmp_path / "p.nii")
    assert (int(written.header["sform_code"]), int(written.header["qform_code"])) == (0, 0)
    np.testing.assert_allclose(written.affine, nibabel.load(image).affine)
    np.testing.assert_array_equal(np.asarray(written.dataobj), classes)


def test_volumes_that_cannot_be_used_are_refused_by_name(tmp_path):
    values = drawn()[0]
    flat = write_nifti(tmp_path / "flat.nii", values[:, :, :2])
    assert "no volume" in refused("Unsupported", case, flat)
    content = write_nifti(tmp_path / "x.nii", values).read_bytes()
    (tmp_path / "nowhere.nii").write_bytes(content[:252] + bytes(4) + content[256:])
    assert "left and right" in refused("Unsupported", case, tmp_path / "nowhere.nii")
    numbers = values.astype(np.float32)
    numbers[3, 2, 1] = np.nan
    assert "nanVoxels" in refused("NotFinite", case, write_nifti(tmp_path / "nan.nii", numbers))
    numbers[0, 0, 0] = np.inf
    assert refused("NotFinite", case, write_nifti(tmp_path / "inf.nii", numbers), nan="Zero").endswith("no numbers")
    refused("Blank", case, write_nifti(tmp_path / "blank.nii", np.full((4, 4, 4), 7, np.int16)))
    nibabel.save(nibabel.Nifti1Pair(values, np.eye(4)), tmp_path / "pair.hdr")
    assert ".hdr and .img" in refused("Unsupported", case, tmp_path / "pair.hdr")
    refused("Missing", case, tmp_path / "none.nii")
    refused("Missing", case, Series(()))
    refused("MixedSeries", case, Series((tmp_path / "x.nii", tmp_path / "nan.nii")))
    (tmp_path / "text.nii").write_bytes(b"text" * 200)
    refused("NotAnImage", case, tmp_path / "text.nii")
    (tmp_path / "empty.nii").write_bytes(b"")
    refused("Empty", case, tmp_path / "empty.nii")
    assert "voxels" in refused("TooLarge", case, tmp_path / "x.nii", spacing=(0.01, 0.01, 0.01))


def test_slope_of_zero_or_none_rescales_nothing(tmp_path):
    values = drawn()[0]
    plain = read_scan(write_nifti(tmp_path / "x.nii", values)).values
    content = bytearray((tmp_path / "x.nii").read_bytes())
    for slope in (0.0, np.nan):
        content[112:120] = np.array([slope, 50], "<f4").tobytes()
        (tmp_path / "y.nii").write_bytes(content)
        np.testing.assert_array_equal(read_scan(tmp_path / "y.nii").values, plain)


def test_masks_must_lie_where_their_image_lies(tmp_path):
    values, classes = drawn()
    image = write_nifti(tmp_path / "x.nii", values, AFFINE)
    small = write_nifti(tmp_path / "small.nii", classes[:, :, :-1], AFFINE)
    assert refused("MaskDiffers", case, image, small) == "the mask has 12×10×7 voxels, the image 12×10×8"
    moved = AFFINE.copy()
    moved[0, 3] += 0.01
    assert "0.01 mm" in refused("MaskDiffers", case, image, write_nifti(tmp_path / "moved.nii", classes, moved))
    moved[0, 3] = AFFINE[0, 3] + 5e-4
    assert case(image, write_nifti(tmp_path / "near.nii", classes, moved)).mask is not None


def test_values_of_masks_are_classes(tmp_path):
    values, classes = drawn()
    grid = read_scan(write_nifti(tmp_path / "x.nii", values)).grid
    nearly = write_nifti(tmp_path / "nearly.nii", classes + np.float32(4e-4))
    np.testing.assert_array_equal(read_mask(nearly, grid, TABLE, CLASSES), classes)
    between = classes.astype(np.float32)
    between[0, 0, :2] += 0.5
    smooth = write_nifti(tmp_path / "smooth.nii", between)
    assert refused("MaskValues", read_mask, smooth, grid, TABLE, CLASSES).startswith("2 values")
    seven = write_nifti(tmp_path / "seven.nii", np.where(classes == 2, 7, classes).astype(np.uint8))
    assert 'maskValues: {"7": b}' in refused("MaskValues", read_mask, seven, grid, TABLE, CLASSES)
    named = MaskReader(CLASSES).values({"1": "b", "2": "a"}, 0)
    expected = np.array([255, 2, 1], np.uint8)[classes]
    np.testing.assert_array_equal(read_mask(write_nifti(tmp_path / "m.nii", classes), grid, named, CLASSES), expected)
    negative = write_nifti(tmp_path / "negative.nii", classes.astype(np.int16) - 1)
    assert "from -1 to 1" in refused("MaskValues", read_mask, negative, grid, TABLE, CLASSES)
    infinite = write_nifti(tmp_path / "nan.nii", np.where(classes == 1, np.nan, 0).astype(np.float32))
    refused("MaskValues", read_mask, infinite, grid, TABLE, CLASSES)
    refused("MaskMissing", read_mask, tmp_path / "none.nii", grid, TABLE, CLASSES)
    (tmp_path / "cut.nii").write_bytes((tmp_path / "m.nii").read_bytes()[:700])
    assert refused("MaskUnreadable", read_mask, tmp_path / "cut.nii", grid, TABLE, CLASSES).startswith("the mask: ")


def test_an_empty_mask_is_a_mask(tmp_path):
    values, classes = drawn()
    image = write_nifti(tmp_path / "x.nii", values)
    empty_case = case(image, write_nifti(tmp_path / "m.nii", classes * 0))
    assert not empty_case.mask.any() and empty_case.counts.tolist() == [classes.size, 0, 0]
    assert case(image).mask is None and case(image).counts.tolist() == [0, 0, 0]


def test_masks_at_another_spacing_keep_their_classes(tmp_path):
    classes = drawn()[1]
    grid = Grid(classes.shape, AFFINE)
    for spacing in ((2.0, 2.0, 2.0), (0.5, 0.6, 0.7)):
        placed = nearest_on_grid_of_model(classes, grid, respace(grid, spacing))
        assert set(np.unique(placed)) == {0, 1, 2}
    finer = respace(grid, (0.45, 0.55, 1.25))
    np.testing.assert_array_equal(on_own_grid(nearest_on_grid_of_model(classes, grid, finer), finer, grid), classes)


def header_of_shape(*shape, dtype=np.int16):
    header = nibabel.Nifti1Header()
    header.set_data_dtype(dtype)
    header["dim"] = [len(shape), *shape, *(1,) * (7 - len(shape))]
    header["sform_code"], header["srow_x"], header["srow_y"], header["srow_z"] = (
        1,
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [0, 0, 1, 0],
    )
    header["vox_offset"], header["magic"] = 352, b"n+1"
    return header.binaryblock + bytes(4)


BOMBS = {
    "dimensions": lambda: header_of_shape(32767, 32767, 32767) + bytes(100),
    "compressed dimensions": lambda: gzip.compress(header_of_shape(32767, 32767, 32767) + bytes(100)),
    "channels": lambda: gzip.compress(header_of_shape(512, 512, 512, 3000) + bytes(100)),
    "zeros": lambda: gzipped(header_of_shape(8, 8, 8), 2**29),
}


def test_bombs_take_little_memory(tmp_path):
    files = [tmp_path / f"{name}.nii" for name in BOMBS]
    for file, content in zip(files, BOMBS.values(), strict=True):
        file.write_bytes(content())
    reasons, grown = decode_apart(files, "anchorage.learning.data.nifti", as_volumes=True)
    assert reasons == ["TooLarge", "TooLarge", "TooLarge", "read"] and grown < 200


def test_damage_never_raises_anything_else(tmp_path):
    rng = np.random.default_rng(0)
    values, refusals = drawn()[0], 0
    for name in ("x.nii", "x.nii.gz"):
        content = write_nifti(tmp_path / name, values).read_bytes()
        for _ in range(200):
            damaged = np.frombuffer(content, np.uint8).copy()
            damaged[rng.integers(4, min(360, len(damaged)), 3)] = rng.integers(0, 256, 3)
            (tmp_path / name).write_bytes(
                damaged.tobytes()[: int(rng.choice([len(content), rng.integers(100, len(content))]))]
            )
            try:
                case(tmp_path / name)
            except RefusedImageError as error:
                refusals += 1
                assert error.reason in ("Damaged", "TooLarge", "Unsupported", "NotFinite", "NotAnImage", "Blank")
                assert str(tmp_path) not in error.detail
    assert refusals > 100


@pytest.mark.skipif(not HIPPOCAMPUS.is_dir(), reason="the hippocampus volumes of ANCHORAGE_DATA are not there")
def test_real_volumes_of_three_scales_give_alike_inputs():
    whites, moved = [], []
    for file in sorted((HIPPOCAMPUS / "images").glob("*.nii.gz"))[:12]:
        mask = HIPPOCAMPUS / "labels" / file.name
        masked_case = case(file, mask, intensity=intensity_of({"zScore": {"over": "Foreground"}}))
        truth = np.asarray(nibabel.load(mask).dataobj).astype(np.uint8)
        np.testing.assert_array_equal(masked_case.mask, truth)  # 1 mm, right, front and head: as it is stored
        assert masked_case.counts.tolist() == np.bincount(truth.ravel(), minlength=3).tolist()
        assert masked_case.values.shape[1:] == truth.shape
        whites.append(float(np.asarray(nibabel.load(file).dataobj).max()))
        assert 0.25 < masked_case.values.mean() / 65535 < 0.45
        moved.append(_centre(on_own_grid(*_coarse(file, mask))) - _centre(truth))
    assert np.abs(moved).max() < 0.6 and np.abs(np.mean(moved, axis=0)).max() < 0.1  # voxels: nothing moves on average
    assert max(whites) > 10 * min(whites)


def _coarse(file, mask):
    """Return classes at 1.5 mm, their grid and that of the file."""
    masked_case = case(file, mask, spacing=(1.5, 1.5, 1.5))
    return masked_case.mask, masked_case.model_grid, masked_case.grid


def _centre(classes):
    return np.argwhere(classes > 0).mean(axis=0)


@pytest.mark.parametrize("axes", ["RAS", "PIL"])
def test_resampling_is_that_of_nibabel(axes):
    image = turned(
        drawn()[0],
        nibabel.affines.from_matvec(nibabel.eulerangles.euler2mat(0.2, 0.1, 0.3) * [1, 1.2, 2], [1, 2, 3]),
        axes,
    )
    values = np.asarray(image.dataobj, np.float32)
    grid = Grid(values.shape, image.affine)
    for spacing in ((0.75, 0.85, 1.15), (2.1, 2.05, 2.6)):  # none lies in the middle between two
        wanted = respace(grid, spacing)
        there = (wanted.shape, wanted.affine)
        image_with_values = nibabel.Nifti1Image(values, image.affine)
        expected = resample_from_to(image_with_values, there, order=1, mode="nearest").get_fdata()
        np.testing.assert_allclose(on_grid_of_model(values[None], grid, wanted)[0], expected, atol=2e-3)
        classes = nearest_on_grid_of_model((values > 100).astype(np.uint8), grid, wanted)
        back = resample_from_to(
            nibabel.Nifti1Image(classes, wanted.affine), (grid.shape, grid.affine), order=0, mode="nearest"
        )
        np.testing.assert_array_equal(on_own_grid(classes, wanted, grid), np.asarray(back.dataobj))
