"""NIfTI slices become pictures as a radiologist sees them, wherever the file's axes lead, or are refused by name."""

import gzip
import importlib.resources
import io
import struct

import nibabel
import numpy as np
import pytest
from drawn_scans import decode_apart, gzipped, write_nifti

from anchorage.learning.data.decoders import decode_content
from anchorage.learning.data.decoding import Input, RefusedImageError
from anchorage.learning.data.intensity import intensity_of
from anchorage.learning.data.nifti import header_of, picture_of

LINEAR = intensity_of({"percentiles": {"low": "0", "high": "100"}})
VOLUME = np.arange(4 * 5 * 6, dtype=np.int16).reshape(4, 5, 6)
"""Towards the right, the front and the head."""


def as_shown(volume, slice_):
    """Return a slice of a volume whose axes lead to the right, the front and the head: the patient's right on the left, the front on top."""
    return volume[::-1, ::-1, slice_].T


def refused(content, reason, frame=0, intensity=LINEAR):
    with pytest.raises(RefusedImageError) as raised:
        decode_content(content, "x.nii", Input(8, 1, intensity), frame)
    assert raised.value.reason == reason
    return raised.value.detail


def without_orientation(content):
    """Return a file whose header has neither qform nor sform (codes at byte 252)."""
    return content[:252] + bytes(4) + content[256:]


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@pytest.mark.parametrize("axes", ["RAS", "LPS", "LAS", "PSR", "SRA", "ILP"])
def test_a_slice_is_the_same_picture_wherever_the_axes_lead(tmp_path, axes, suffix):
    image = nibabel.Nifti1Image(VOLUME, np.diag([1.0, 2.0, 3.0, 1.0]))
    to = nibabel.orientations.axcodes2ornt(tuple(axes))
    turned = image.as_reoriented(nibabel.orientations.ornt_transform(nibabel.io_orientation(image.affine), to))
    nibabel.save(turned, tmp_path / f"x{suffix}")
    content = (tmp_path / f"x{suffix}").read_bytes()
    for frame in range(6):
        np.testing.assert_array_equal(picture_of(content, frame).pixels, as_shown(VOLUME, frame))
    assert header_of(io.BytesIO(content)).frames == 6
    assert "6 slices" in refused(content, "Damaged", frame=6)


def test_values_are_rescaled_and_shown_by_the_models_intensity(tmp_path):
    image = nibabel.Nifti1Image(VOLUME, np.eye(4))
    image.header.set_slope_inter(0.5, -7)
    nibabel.save(image, tmp_path / "y.nii")
    np.testing.assert_allclose(picture_of((tmp_path / "y.nii").read_bytes(), 2).pixels, as_shown(VOLUME, 2) * 0.5 - 7)
    scaled = write_nifti(tmp_path / "x.nii.gz", VOLUME)
    shown = decode_content(scaled.read_bytes(), scaled.name, Input(5, 1, LINEAR), 2).pixels[0] / 65535
    plane = as_shown(VOLUME, 2).astype(np.float64)
    scaled_plane = (plane - plane.min()) / (plane.max() - plane.min())
    assert shown.shape == (5, 5) and shown[0, 0] > shown[4, 4] and scaled_plane[0, 0] == 1


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.float32, np.float64])
def test_the_stored_type_does_not_matter(tmp_path, dtype):
    file = write_nifti(tmp_path / "x.nii", VOLUME.astype(dtype))
    np.testing.assert_array_equal(picture_of(file.read_bytes(), 1).pixels, as_shown(VOLUME, 1))


def test_whole_numbers_have_a_range_and_others_need_an_intensity(tmp_path):
    content = write_nifti(tmp_path / "x.nii", VOLUME).read_bytes()
    assert decode_content(content, "x.nii", Input(8, 1)).pixels.dtype == np.uint8
    negative = write_nifti(tmp_path / "y.nii", VOLUME - 1000).read_bytes()
    assert "spec.model.intensity" in refused(negative, "Unsupported", intensity=None)


def test_a_volume_that_does_not_say_where_left_is_is_refused(tmp_path):
    volume, flat = (
        without_orientation(write_nifti(tmp_path / "x.nii", values).read_bytes())
        for values in (VOLUME, VOLUME[:, :, :1])
    )
    assert "left and right" in refused(volume, "Unsupported")
    np.testing.assert_array_equal(picture_of(flat, 0).pixels, VOLUME[:, :, 0].T)


def test_numbers_that_are_none_are_refused(tmp_path):
    values = VOLUME.astype(np.float32)
    values[0, 0, 0] = np.nan
    content = write_nifti(tmp_path / "x.nii", values).read_bytes()
    assert refused(content, "NotFinite")
    assert picture_of(content, 1).pixels.shape == (5, 4)


def test_pairs_and_series_of_volumes_are_refused(tmp_path):
    nibabel.save(nibabel.Nifti1Pair(VOLUME, np.eye(4)), tmp_path / "x.hdr")
    assert ".hdr and .img" in refused((tmp_path / "x.hdr").read_bytes(), "Unsupported")
    series = write_nifti(tmp_path / "y.nii", np.stack([VOLUME, VOLUME], 3))
    assert "4 dimensions" in refused(series.read_bytes(), "Unsupported")
    one = write_nifti(tmp_path / "z.nii", VOLUME[..., None])
    np.testing.assert_array_equal(picture_of(one.read_bytes(), 0).pixels, as_shown(VOLUME, 0))


@pytest.mark.parametrize("name", ["anatomical.nii", "example_nifti2.nii.gz", "standard.nii.gz"])
def test_files_that_nibabel_brings_are_read(name):
    content = importlib.resources.files("nibabel.tests").joinpath("data", name).read_bytes()
    image = nibabel.as_closest_canonical(
        (nibabel.Nifti2Image if "2" in name else nibabel.Nifti1Image).from_bytes(
            gzip.decompress(content) if name.endswith("gz") else content
        )
    )
    if len(image.shape) > 3 and image.shape[3] > 1:
        assert "dimensions" in refused(content, "Unsupported")
        return
    volume = np.asarray(image.dataobj)
    np.testing.assert_allclose(picture_of(content, 3).pixels, as_shown(volume.reshape(volume.shape[:3]), 3), rtol=1e-6)


def header_of_shape(*shape):
    header = nibabel.Nifti1Header()
    header.set_data_dtype(np.int16)
    content = bytearray(header.binaryblock + bytes(4))
    content[40 : 40 + 2 * (len(shape) + 1)] = struct.pack(f"<{len(shape) + 1}h", len(shape), *shape)
    content[108:112], content[344:348] = struct.pack("<f", 352), b"n+1\0"
    return bytes(content)


BOMBS = {
    "dimensions": lambda: header_of_shape(32767, 32767, 32767) + bytes(100),
    "compressed dimensions": lambda: gzip.compress(header_of_shape(32767, 32767, 32767) + bytes(100)),
    "zeros": lambda: gzipped(header_of_shape(8, 8, 8), 2**29),
}


def test_bombs_take_little_memory(tmp_path):
    files = [tmp_path / f"{name}.nii" for name in BOMBS]
    for file, content in zip(files, BOMBS.values(), strict=True):
        file.write_bytes(content())
    reasons, grown = decode_apart(files, "anchorage.learning.data.nifti")
    assert set(reasons) <= {"TooLarge", "Unsupported"} and len(reasons) == len(files) and grown < 200


def test_damage_never_raises_anything_else(tmp_path):
    rng = np.random.default_rng(0)
    contents = [write_nifti(tmp_path / name, VOLUME).read_bytes() for name in ("x.nii", "x.nii.gz")]
    refusals = 0
    for content in contents:
        for _ in range(150):
            damaged = np.frombuffer(content, np.uint8).copy()
            damaged[rng.integers(4, min(360, len(damaged)), 3)] = rng.integers(0, 256, 3)
            cut = damaged.tobytes()[: int(rng.integers(100, len(content) + 1))]
            try:
                decode_content(cut, "x.nii", Input(8, 1, LINEAR))
            except RefusedImageError as error:
                refusals += 1
                assert error.reason in ("Damaged", "TooLarge", "Unsupported", "NotFinite", "NotAnImage")
    assert refusals > 100
