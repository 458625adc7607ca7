"""DICOM series and objects of several frames become volumes by what says where slices lie, or are refused by name."""

from pathlib import Path

import nibabel
import numpy as np
import pydicom
import pytest
from drawn_scans import CAPTURE, MR, REPORT, decode_apart, slice_elements, write_dicom, write_enhanced, write_series

from anchorage.learning.data.cases import read_scan
from anchorage.learning.data.decoding import RefusedImageError
from anchorage.learning.data.dicom_series import read_series
from anchorage.learning.data.sources import Series

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # pydicom's, which the product never shows

VOLUME = np.random.default_rng(0).integers(0, 4096, (6, 5, 7)).astype(np.uint16)
"""Columns to the left, rows to the back, slices to the head."""


def refused(files, reason):
    with pytest.raises(RefusedImageError) as raised:
        read_scan(Series(tuple(files)))
    assert raised.value.reason == reason
    return raised.value.detail


def test_slices_are_sorted_by_place_and_lie_where_their_headers_say(tmp_path):
    where = {"spacing": (0.5, 0.75, 2.5), "origin": (-10.0, 20.0, -30.0)}
    files = write_series(tmp_path, VOLUME, **where, RescaleSlope="0.5", RescaleIntercept="-1000")
    scan = read_scan(Series(files))
    np.testing.assert_array_equal(scan.values[0], VOLUME.astype(np.float32) / 2 - 1000)
    expected = np.diag([-0.5, -0.75, 2.5, 1])  # from left and back to right and front
    expected[:3, 3] = 10, -20, -30
    np.testing.assert_allclose(scan.grid.affine, expected)
    assert scan.grid.orientation == "LPS" and (scan.low, scan.high) == (-1000, 65535 / 2 - 1000)
    assert {"modality CT", "DICOM uint16", "spacing 0.5×0.75×2.5 mm"} <= set(scan.facts)


def test_the_order_of_the_files_changes_nothing(tmp_path):
    files = write_series(tmp_path, VOLUME)
    first, second = read_series(files), read_series(files[::-1])
    np.testing.assert_array_equal(first.values, second.values)
    assert first.digest == second.digest and (first.grid.affine == second.grid.affine).all()
    changed = write_series(tmp_path / "other", VOLUME + 1)
    assert read_series(changed).digest != first.digest


def test_oblique_slices_keep_their_directions(tmp_path):
    turn = np.deg2rad(20)
    direction = (np.cos(turn), np.sin(turn), 0, 0, 0, -1)  # columns to the left and back, rows to the feet
    scan = read_series(write_series(tmp_path, VOLUME, direction=direction, spacing=(1, 2, 3)))
    normal = np.cross(direction[:3], direction[3:])
    to_ras = np.diag([-1, -1, 1])
    expected = to_ras @ np.column_stack([direction[:3], 2 * np.array(direction[3:]), 3 * normal])
    np.testing.assert_allclose(scan.grid.affine[:3, :3], expected, atol=1e-9)
    assert scan.grid.orientation == "".join(nibabel.aff2axcodes(scan.grid.affine))


def test_each_slice_is_rescaled_by_itself(tmp_path):
    change = {place: {"RescaleSlope": str(place + 1)} for place in range(VOLUME.shape[2])}
    values = read_series(write_series(tmp_path, VOLUME, change=change)).values[0]
    np.testing.assert_allclose(values, VOLUME * np.arange(1, 8, dtype=np.float32))


def test_windows_of_slices_change_nothing(tmp_path):
    plain = read_series(write_series(tmp_path / "plain", VOLUME))
    change = {place: {"WindowCenter": str(100 * place), "WindowWidth": "50"} for place in range(VOLUME.shape[2])}
    shown = read_series(write_series(tmp_path / "shown", VOLUME, change=change))
    np.testing.assert_array_equal(plain.values, shown.values)
    assert plain.facts == shown.facts


def test_padding_is_remembered_where_it_is(tmp_path):
    volume = VOLUME.copy()
    volume[0, 0, 2] = 5000
    scan = read_series(write_series(tmp_path, volume, PixelPaddingValue=5000))
    assert np.argwhere(scan.padding).tolist() == [[0, 0, 2]]


def test_frames_of_one_object_are_a_volume(tmp_path):
    file = write_enhanced(tmp_path / "x", VOLUME, spacing=(0.5, 0.75, 2.5))
    scan = read_scan(file)
    np.testing.assert_allclose(scan.values[0], 2.0 * VOLUME + np.arange(7))
    assert scan.grid.spacing == pytest.approx((0.5, 0.75, 2.5)) and scan.grid.orientation == "LPS"


def test_several_stacks_of_one_object_are_refused(tmp_path):
    where = {"spacing": (1.0, 1.0, 0.0)}
    assert "stacks" in refused([write_enhanced(tmp_path / "x", VOLUME, stacks=2, **where)], "MixedSeries")


def test_frames_without_a_place_are_refused(tmp_path):
    file = write_dicom(tmp_path / "x", np.ascontiguousarray(VOLUME.T))
    assert "without a position" in refused([file], "Unsupported")


def test_a_missing_slice_is_a_gap_with_its_place(tmp_path):
    detail = refused(write_series(tmp_path, VOLUME, spacing=(1, 1, 2.5), change={3: None}), "Gap")
    assert detail == "slices 3 and 4 of 6 lie 5.00 mm apart, others 2.50 mm"


def test_a_slice_that_is_there_twice_is_dropped_where_it_is_equal_and_refused_else(tmp_path):
    files = write_series(tmp_path, VOLUME)
    plain = read_series(files)
    second = write_series(tmp_path / "again", VOLUME[:, :, :1])
    scan = read_series([*second, *files])
    np.testing.assert_array_equal(scan.values, plain.values)
    assert "equal slices left out: 1" in scan.facts and plain.digest != scan.digest
    other = write_series(tmp_path / "other", VOLUME[:, :, 1:2])
    assert "slice 1 of 7" in refused([*files, *other], "DuplicateSlice")


def test_mixed_series_are_refused(tmp_path):
    files = write_series(tmp_path / "one", VOLUME)
    other = write_series(tmp_path / "two", VOLUME, uid="1.2.10", origin=(0, 0, 100))
    assert refused([*files, *other], "MixedSeries") == "slices of 2 series"
    turned = write_series(tmp_path / "turned", VOLUME, direction=(0, 1, 0, 0, 0, -1))
    assert "7 of 14 slices have another" in refused([*files, *turned], "MixedSeries")
    small = write_series(tmp_path / "small", VOLUME[:3], origin=(0, 0, 100))
    assert "size" in refused([*files, *small], "MixedSeries")
    echoes = [write_series(tmp_path / f"e{n}", VOLUME + n, SOPClassUID=MR, EchoNumbers=n) for n in (1, 2)]
    assert "echoes" in refused(sum(echoes, ()), "MixedSeries")
    inverted = write_series(tmp_path / "m", VOLUME, change={2: {"PhotometricInterpretation": "MONOCHROME1"}})
    assert "MONOCHROME1" in refused(inverted, "MixedSeries")


def test_an_acquisition_of_several_parts_is_one_volume(tmp_path):
    change = {place: {"AcquisitionNumber": place // 4} for place in range(7)}
    assert read_series(write_series(tmp_path, VOLUME, change=change)).values.shape == (1, *VOLUME.shape)


def test_a_tilted_gantry_is_refused(tmp_path):
    change = {place: {"ImagePositionPatient": [0.0, 0.3 * place, float(place)]} for place in range(7)}
    assert "tilt" in refused(write_series(tmp_path, VOLUME, change=change), "Sheared")


def test_positions_that_are_rounded_are_no_gap_and_no_tilt(tmp_path):
    change = {place: {"ImagePositionPatient": [0.0, 0.01 * (place % 2), round(0.625 * place, 2)]} for place in range(7)}
    scan = read_series(write_series(tmp_path, VOLUME, change=change))
    assert scan.grid.spacing[2] == pytest.approx(0.625, abs=1e-3)


def test_localisers_and_captures_are_left_out_and_counted(tmp_path):
    files = write_series(tmp_path, VOLUME)
    localiser = write_dicom(
        tmp_path / "loc", VOLUME[:, :, 0], SeriesInstanceUID="1.2.9", ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"]
    )
    capture = write_dicom(tmp_path / "cap", VOLUME[:, :, 0], SeriesInstanceUID="1.2.9", SOPClassUID=CAPTURE)
    report = write_dicom(tmp_path / "report", None, SeriesInstanceUID="1.2.9", SOPClassUID=REPORT)
    scan = read_series([localiser, capture, *files, report])
    np.testing.assert_array_equal(scan.values[0], VOLUME)
    assert {"localisers left out: 1", "captures and other objects left out: 2"} <= set(scan.facts)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_less_than_three_slices_are_no_volume(tmp_path, count):
    files = write_series(tmp_path, VOLUME[:, :, :count]) or [write_dicom(tmp_path / "r", None, SOPClassUID=REPORT)]
    assert "no volume" in refused(files, "Unsupported")


@pytest.mark.parametrize("element", ["ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing"])
def test_slices_that_do_not_say_where_they_lie_are_refused(tmp_path, element):
    files = write_series(tmp_path, VOLUME)
    lacking = pydicom.dcmread(files[2])
    del lacking[element]
    lacking.save_as(files[2])
    assert element in refused(files, "Unsupported")


def test_colour_is_refused(tmp_path):
    colours = np.random.default_rng(0).integers(0, 256, (5, 6, 3)).astype(np.uint8)
    files = [
        write_dicom(tmp_path / str(n), colours, bits=8, SeriesInstanceUID="1", **slice_elements(n)) for n in range(3)
    ]
    assert "colour" in refused(files, "Unsupported")


def test_a_real_series_whose_names_are_not_in_its_order(tmp_path):
    folder = Path(pydicom.__file__).parent / "data" / "test_files" / "dicomdirtests"
    volumes = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.read_bytes()[128:132] == b"DICM":
            header = pydicom.dcmread(file, stop_before_pixels=True)
            volumes.setdefault(str(header.get("SeriesInstanceUID")), []).append((file, header))
    (series,) = (each for each in volumes.values() if len(each) == 5 and each[0][1].Modality == "CT")
    scan = read_series([file for file, _ in series])
    ordered = sorted(series, key=lambda each: each[1].ImagePositionPatient[2])
    assert [file for file, _ in series] != [file for file, _ in ordered]
    for place, (file, _) in enumerate(ordered):
        image = pydicom.dcmread(file)
        expected = image.pixel_array * float(image.RescaleSlope) + float(image.RescaleIntercept)
        np.testing.assert_allclose(scan.values[0, :, :, place].T, expected)
    assert scan.grid.orientation == "LPS" and scan.grid.spacing[2] == pytest.approx(2.5)


def test_many_large_slices_and_many_frames_take_little_memory_before_they_are_refused(tmp_path):
    frames = np.zeros((3, 2, 2), np.uint16)
    large = write_enhanced(tmp_path / "x", frames.transpose(2, 1, 0))
    bomb = pydicom.dcmread(large)
    bomb.Rows = bomb.Columns = 65535
    bomb.save_as(large)
    many, some = (
        write_dicom(tmp_path / f"{count}", np.zeros((8, 8), np.uint16), NumberOfFrames=count, **slice_elements(0))
        for count in (100_000, 10_000)
    )
    reasons, grown = decode_apart([large, many, some], "anchorage.learning.data.dicom_series", as_volumes=True)
    assert reasons == ["TooLarge", "TooLarge", "Unsupported"] and grown < 200


def test_damage_never_raises_anything_else(tmp_path):
    rng = np.random.default_rng(0)
    files = write_series(tmp_path, VOLUME)
    content, reasons = files[3].read_bytes(), set()
    for _ in range(150):
        damaged = np.frombuffer(content, np.uint8).copy()
        damaged[rng.integers(132, len(damaged), 3)] = rng.integers(0, 256, 3)
        files[3].write_bytes(damaged.tobytes()[: int(rng.choice([len(damaged), rng.integers(0, len(damaged))]))])
        try:
            read_scan(Series(files))
        except RefusedImageError as error:
            reasons.add(error.reason)
            assert "1.2." not in error.detail and str(tmp_path) not in error.detail
    assert "Damaged" in reasons
