"""DICOM files become the pictures that the standard says (PS3.3 C.7.6.3, C.11.1, C.11.2), or are refused by name."""

import csv
import hashlib
import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pydicom
import pytest
from drawn_scans import CR, SEGMENTATION, dataset, decode_apart, deflated_zeros
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset
from pydicom.pixels import pixel_array
from pydicom.sequence import Sequence

from anchorage.learning.data.decoders import decode_content
from anchorage.learning.data.decoding import Input, RefusedImageError
from anchorage.learning.data.dicom import apply_window, header_of, picture_of
from anchorage.learning.data.dicom_pixels import MOST_FRAMES, check_bounds, pixel_data_of, stored_values
from anchorage.learning.data.file_header import Caution
from anchorage.learning.data.intensity import intensity_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # pydicom's, which the product never shows

RAMP = np.arange(64, dtype=np.uint16).reshape(8, 8)
DICOM_WINDOW = intensity_of({"dicomWindow": {}})
REAL = Path(os.environ.get("ANCHORAGE_DATA", "../shared/data")) / "dicom"
SHIPPED = [
    "CT_small.dcm", "MR_small.dcm", "MR_small_implicit.dcm", "MR_small_bigendian.dcm", "MR_small_RLE.dcm", "MR_small_jp2klossless.dcm",
    "MR_small_jpeg_ls_lossless.dcm", "SC_rgb_rle_16bit.dcm", "SC_rgb_jpeg_dcmtk.dcm", "SC_rgb_small_odd.dcm", "JPEGLSNearLossless_08.dcm",
    "JPEGLSNearLossless_16.dcm", "693_J2KI.dcm", "SC_ybr_full_422_uncompressed.dcm", "examples_ybr_color.dcm",
    "examples_overlay.dcm",
]  # fmt: skip
"""Files of pydicom's package."""


def content_of(pixels, **options):
    file = io.BytesIO()
    dataset(pixels, **options).save_as(file, enforce_file_format=True)
    return file.getvalue()


def said_to_be(syntax):
    """Return a file that says it is encoded otherwise than it is."""
    content = content_of(RAMP)
    place = content.index(b"\x02\x00\x10\x00UI") + 6
    value = syntax.encode().ljust(len(syntax) + len(syntax) % 2, b"\0")
    length = struct.unpack("<H", content[place : place + 2])[0]
    group = struct.unpack("<I", content[140:144])[0] + len(value) - length
    changed = content[:place] + struct.pack("<H", len(value)) + value + content[place + 2 + length :]
    return changed[:140] + struct.pack("<I", group) + changed[144:]


def stored(content, frame=0):
    pixels = pixel_data_of(content)
    check_bounds(pixels, frame)
    return stored_values(pixels, frame, raw=True)


def without_file_header(content):
    """Return an object as older systems store it: without preamble, mark and the elements of group 0002."""
    length = struct.unpack("<I", content[140:144])[0]
    return content[144 + length :]


def shades(content, side=8, channels=1, intensity=DICOM_WINDOW, frame=0):
    pixels = decode_content(content, "x", Input(side, channels, intensity), frame).pixels
    return pixels / (255 if pixels.dtype == np.uint8 else 65535)


def refused(content, reason, frame=0):
    with pytest.raises(RefusedImageError) as raised:
        decode_content(content, "x", Input(8, 1, DICOM_WINDOW), frame)
    assert raised.value.reason == reason
    return raised.value.detail


def manifest():
    if not REAL.is_dir():
        return []
    with (REAL / "manifest.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.skipif(not REAL.is_dir(), reason="the real DICOM files of ANCHORAGE_DATA are not there")
@pytest.mark.parametrize("row", manifest(), ids=lambda row: row["file"])
def test_real_files_decode_to_the_digest_of_their_manifest_or_are_refused_by_name(row):
    content = (REAL / row["file"]).read_bytes()
    if row["file"] == "liver_deflate.dcm":
        assert "1.2.840.10008.1.2.8.1 (Deflated Image Frame Compression)" in refused(content, "TransferSyntax")
        return
    if row["file"] == "parametric_map_float.dcm":
        assert "Parametric Map" in refused(content, "Unsupported") or "floating-point" in refused(
            content, "Unsupported"
        )
        return
    frames = np.stack([stored(content, frame) for frame in range(int(row["frames"]))])
    values = frames[0] if len(frames) == 1 else frames
    assert hashlib.sha256(values.astype("<i4").tobytes()).hexdigest()[:16] == row["sha256ofInt32"]


@pytest.mark.skipif(not REAL.is_dir(), reason="the real DICOM files of ANCHORAGE_DATA are not there")
def test_real_radiographs_of_inverted_greys_show_bright_bones_on_dark_air():
    content = (REAL / "RG3_J2KR.dcm").read_bytes()
    values, shown = stored(content), shades(content, side=1760)[0]
    absorbed, air = values <= np.percentile(values, 20), values >= np.percentile(values, 80)
    assert shown[absorbed].min() > shown[air].max()


@pytest.mark.parametrize("name", SHIPPED)
def test_files_that_pydicom_brings_have_its_values(name):
    file = get_testdata_file(name)
    content = Path(file).read_bytes()
    expected = pixel_array(file, raw=True)
    pixels = stored(content)
    np.testing.assert_array_equal(pixels, expected if expected.shape == pixels.shape else expected[0])
    assert picture_of(content, 0).pixels.shape[:2] == pixels.shape[:2]


def test_files_that_are_deflated_as_a_whole_are_read():
    picture = picture_of(Path(get_testdata_file("image_dfl.dcm")).read_bytes(), 0)
    assert picture.size == (512, 512) and len(np.unique(picture.pixels)) > 2


@pytest.mark.parametrize("name", ["JPGExtended.dcm", "JPEG-lossy.dcm"])
def test_jpegs_of_12_bits_are_read(name):
    values = stored(Path(get_testdata_file(name)).read_bytes())
    assert (values.shape, values.min(), values.max(), round(float(values.mean()), 3)) == ((1024, 256), 0, 264, 14.37)


@pytest.mark.parametrize("name", ["CT_small.dcm", "MR_small_implicit.dcm", "MR_small_bigendian.dcm"])
def test_files_without_a_file_header_are_recognised_and_read(name):
    content = Path(get_testdata_file(name)).read_bytes()
    pixels = decode_content(without_file_header(content), "IM1", Input(16, 1, DICOM_WINDOW))
    np.testing.assert_array_equal(pixels.pixels, decode_content(content, "IM1", Input(16, 1, DICOM_WINDOW)).pixels)
    assert pixels.decoder.startswith("Dicom")


def test_other_files_are_not_taken_for_dicom():
    for head in (b"\x08\x00\x05\x00\xff\xff\xff\xff" + bytes(200), bytes(512), b"Patient report" * 20):
        assert refused(head, "NotAnImage")


def test_a_compressed_file_is_the_picture_of_the_one_it_was_made_of():
    names = (
        "MR_small.dcm",
        "MR_small_implicit.dcm",
        "MR_small_bigendian.dcm",
        "MR_small_RLE.dcm",
        "MR_small_jp2klossless.dcm",
        "MR_small_jpeg_ls_lossless.dcm",
    )
    shades_by_name = [shades(Path(get_testdata_file(name)).read_bytes(), side=64) for name in names]
    assert all((each == shades_by_name[0]).all() for each in shades_by_name) and len(np.unique(shades_by_name[0])) > 100


@pytest.mark.parametrize(
    ("function", "centre", "width", "expected"),
    [
        ("LINEAR", 4, 5, [0, 0, 0.125, 0.375, 0.625, 0.875, 1, 1]),
        ("LINEAR", 4, 1, [0, 0, 0, 0, 1, 1, 1, 1]),
        ("LINEAR_EXACT", 4, 4, [0, 0, 0, 0.25, 0.5, 0.75, 1, 1]),
        ("SIGMOID", 4, 4, [1 / (1 + np.exp(4 - x)) for x in range(8)]),
    ],
)
def test_windows_follow_the_standard(function, centre, width, expected):
    values = np.arange(8, dtype=np.float32)
    np.testing.assert_allclose(apply_window(values, centre, width, function), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("width", "function"), [(0.5, "LINEAR"), (0, "LINEAR_EXACT"), (-3, "SIGMOID"), (float("nan"), "LINEAR")]
)
def test_windows_of_no_width_are_refused(width, function):
    content = content_of(RAMP, WindowCenter=3, WindowWidth=1)
    assert shades(content) is not None
    with pytest.raises(RefusedImageError, match="window of width"):
        apply_window(RAMP.astype(np.float32), 3, width, function)


def test_values_are_rescaled_before_the_window():
    content = content_of(
        RAMP,
        RescaleSlope="2",
        RescaleIntercept="-10",
        WindowCenter=["53", "1"],
        WindowWidth=["127", "1"],
        VOILUTFunction="LINEAR_EXACT",
    )
    expected = ((RAMP * 2.0 - 10 - 53) / 127 + 0.5).clip(0, 1)
    np.testing.assert_allclose(shades(content)[0], expected, atol=1e-4)


def test_without_a_window_the_least_value_is_black_and_the_largest_white():
    np.testing.assert_allclose(shades(content_of(RAMP + 100))[0], RAMP / 63, atol=1e-4)


@pytest.mark.parametrize(
    "intensity",
    [
        None,
        {"dicomWindow": {}},
        {"percentiles": {"low": "0", "high": "100"}},
        {"zScore": {"over": "All"}},
        {"window": {"low": "3", "high": "40"}},
    ],
)
def test_inverted_greys_are_turned_round_once(intensity):
    shown, turned = (
        shades(content_of(RAMP, PhotometricInterpretation=photometric, **more), intensity=intensity_of(intensity))
        for photometric, more in (("MONOCHROME2", {}), ("MONOCHROME1", {"PresentationLUTShape": "INVERSE"}))
    )
    np.testing.assert_allclose(shown, 1 - turned, atol=2e-5)
    assert turned[0, 0, 0] > turned[0, 7, 7]


def test_rows_run_downwards_as_a_viewer_shows_them():
    pixels = np.zeros((8, 8), np.uint16)
    pixels[0, 5] = 100
    assert np.argwhere(shades(content_of(pixels))[0] > 0.5).tolist() == [[0, 5]]


def test_padding_is_black_and_counts_in_no_statistic():
    pixels = (RAMP.astype(np.int16) + 500).copy()
    pixels[0] = -2000
    content = content_of(pixels, PixelPaddingValue=-2000, PhotometricInterpretation="MONOCHROME2")
    shown = shades(content, intensity=intensity_of({"percentiles": {"low": "0", "high": "100"}}))[0]
    assert (shown[0] == 0).all() and shown[1, 0] == 0 and shown[7, 7] == 1 and abs(shown[4, 0] - 24 / 55) < 1e-4
    inverted = shades(content_of(pixels, PixelPaddingValue=-2000, PhotometricInterpretation="MONOCHROME1"))[0]
    assert (inverted[0] == 0).all() and inverted[1, 0] == 1


def test_a_range_of_padding_is_padding():
    content = content_of(RAMP, PixelPaddingValue=0, PixelPaddingRangeLimit=7)
    picture = picture_of(content, 0)
    assert picture.measured.padding.sum() == 8


def test_by_its_bits_white_is_what_they_can_hold():
    pixels = decode_content(content_of(RAMP * 60, bits=12), "x", Input(8, 1))
    assert pixels.white == 4095 and np.allclose(pixels.pixels[0] / 65535, RAMP * 60 / 4095, atol=1e-4)
    eight = decode_content(content_of((RAMP * 4).astype(np.uint8), bits=8), "x", Input(8, 1))
    assert eight.pixels.dtype == np.uint8 and (eight.pixels[0] == RAMP * 4).all() and eight.white is None


def test_overlays_above_the_highest_bit_are_masked_off():
    content = content_of(RAMP | np.uint16(0xF000), bits=12)
    np.testing.assert_allclose(shades(content)[0], RAMP / 63, atol=1e-4)


def test_negative_values_of_few_bits_keep_their_sign():
    pixels = (RAMP.astype(np.int16) - 32) & 0x0FFF
    picture = picture_of(content_of(pixels.astype(np.int16), bits=12), 0)
    np.testing.assert_array_equal(picture.pixels, RAMP.astype(np.float32) - 32)
    assert (picture.measured.low, picture.measured.high) == (-2048, 2047)


def lut(first, entries, bits):
    item = Dataset()
    item.LUTDescriptor = [len(entries), first, bits]
    item.LUTData = np.array(entries, np.uint16).tobytes()
    item["LUTData"].VR = "OW"
    return Sequence([item])


def test_lookup_tables_count_before_windows():
    content = content_of(RAMP, VOILUTSequence=lut(10, [0, 100, 255], 8), WindowCenter=3, WindowWidth=5)
    expected = np.array([0, 100, 255])[np.clip(RAMP.astype(int) - 10, 0, 2)] / 255
    np.testing.assert_allclose(shades(content)[0], expected, atol=1e-4)


def test_a_modality_table_is_used_in_place_of_slope_and_intercept():
    picture = picture_of(content_of(RAMP, ModalityLUTSequence=lut(0, range(1000, 1064), 16)), 0)
    np.testing.assert_array_equal(picture.pixels, RAMP.astype(np.float32) + 1000)


def test_functional_groups_tell_each_frames_rescaling():
    def group(slope):
        transformation, frame = Dataset(), Dataset()
        transformation.RescaleSlope, transformation.RescaleIntercept = str(slope), "0"
        frame.PixelValueTransformationSequence = Sequence([transformation])
        return frame

    content = content_of(np.stack([RAMP, RAMP]), PerFrameFunctionalGroupsSequence=Sequence([group(1), group(3)]))
    assert [picture_of(content, frame).pixels.max() for frame in (0, 1)] == [63, 189]
    shared = content_of(np.stack([RAMP, RAMP]), SharedFunctionalGroupsSequence=Sequence([group(2)]))
    assert [picture_of(shared, frame).pixels.max() for frame in (0, 1)] == [126, 126]


def test_colours_of_8_and_16_bits_and_palettes_are_rgb():
    colours = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    np.testing.assert_array_equal(
        decode_content(content_of(colours, bits=8), "x", Input(8, 3)).pixels, colours.transpose(2, 0, 1)
    )
    deep = decode_content(content_of(colours.astype(np.uint16) * 257, bits=16), "x", Input(8, 3))
    np.testing.assert_array_equal(deep.pixels, colours.transpose(2, 0, 1).astype(np.uint16) * 257)
    file = get_testdata_file("examples_palette.dcm")
    picture = picture_of(Path(file).read_bytes(), 0)
    assert picture.pixels.dtype == np.uint8 and picture.pixels.shape[2] == 3 and len(np.unique(picture.pixels)) > 20


def test_headers_tell_patient_study_and_cautions():
    content = content_of(
        RAMP,
        SOPClassUID=CR,
        PatientID=" 007 ",
        IssuerOfPatientID="north",
        BurnedInAnnotation="YES",
        PresentationIntentType="FOR PROCESSING",
    )
    header = header_of(io.BytesIO(content))
    assert header.patient == "007 (north)" and header.image and header.frames == 1
    assert header.cautions == {Caution.BURNED_IN_TEXT, Caution.FOR_PROCESSING}
    assert not header_of(io.BytesIO(content_of(None, SOPClassUID=SEGMENTATION))).image


def bomb(**elements):
    """Return a small file whose header states what `elements` say."""
    return content_of(np.zeros((8, 8), np.uint8), bits=8, **elements)


def deflated(packed, before=b"", *, group_length=True):
    """Return a file that is deflated as a whole, with elements `before` the one that says so."""
    syntax = b"1.2.840.10008.1.2.1.99"
    elements = before + meta_element(0x10, syntax)
    group = b"\x02\x00\x00\x00UL\x04\x00" + struct.pack("<I", len(elements)) if group_length else b""
    return bytes(128) + b"DICM" + group + elements + packed


def meta_element(number, uid):
    return struct.pack("<HH", 2, number) + b"UI" + struct.pack("<H", len(uid)) + uid


def packed(content):
    """Return the beginning of a raw deflate stream."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(content) + packer.flush(zlib.Z_FULL_FLUSH)


def inflating_element(tag, vr):
    """Return a data set that begins with an element of 512 MiB of zeros."""
    return packed(tag + vr + b"\0\0" + struct.pack("<I", 2**29)) + deflated_zeros(2**29)


BOMBS = {
    "side": lambda: bomb(Rows=65535, Columns=65535),
    "frames": lambda: bomb(NumberOfFrames="100000"),
    "deflated": lambda: deflated(deflated_zeros(2**30)),
    "behind": lambda: deflated(packed(elements_of(bomb())) + deflated_zeros(200 * 2**20)),
    "private": lambda: deflated(inflating_element(b"\x09\x00\x10\x10", b"OB")),
    "patient": lambda: deflated(inflating_element(b"\x10\x00\x20\x00", b"UN")),
    "late": lambda: deflated(deflated_zeros(2**30), meta_element(3, b"1." * 2000)),
    "nested": lambda: deflated(
        packed(packed(elements_of(bomb())) + deflated_zeros(2**30)), meta_element(3, b"1.2.840.10008.1.2.1.99")
    ),
    "ungrouped": lambda: deflated(deflated_zeros(2**30), group_length=False),
    "codestream": lambda: oversized_codestream(),
}


def oversized_codestream():
    """Return a file of JPEG 2000 whose code stream says that it is far larger than the header has it."""
    content = Path(get_testdata_file("MR_small_jp2klossless.dcm")).read_bytes()
    place = content.index(b"\xff\x4f\xff\x51") + 8
    return content[:place] + struct.pack(">II", 60000, 60000) + content[place + 8 :]


def elements_of(content):
    """Return the data set of a file that pydicom wrote, without the file's header."""
    return content[144 + struct.unpack("<I", content[140:144])[0] :]


def test_bombs_are_refused_in_little_memory(tmp_path):
    files = [tmp_path / name for name in BOMBS]
    for file in files:
        file.write_bytes(BOMBS[file.name]())
    reasons, grown = decode_apart(files, "anchorage.learning.data.dicom")
    assert set(reasons) <= {"TooLarge", "Damaged", "Unsupported"} and len(reasons) == len(files) and grown < 100


@pytest.mark.parametrize("extra", [0, 1000])
def test_large_files_that_are_deflated_are_read_as_their_headers_say(extra):
    pixels = np.random.default_rng(1).integers(0, 4096, (12, 1024, 1024)).astype(np.uint16)
    content = deflated(packed(elements_of(content_of(pixels, bits=12)) + bytes(extra)) + b"\x03\x00")
    np.testing.assert_array_equal(stored(content), pixels[0])


@pytest.mark.parametrize(
    ("elements", "reason", "word"),
    [
        ({"SOPClassUID": SEGMENTATION}, "Unsupported", "Segmentation"),
        ({"SOPClassUID": "1.2.840.10008.5.1.4.1.1.77.1.6"}, "Unsupported", "tiles"),
        ({"PhotometricInterpretation": "CMYK"}, "Unsupported", "photometric"),
        ({"NumberOfFrames": str(MOST_FRAMES + 1)}, "TooLarge", "frames"),
        ({"Rows": 800}, "Damaged", "last pixel"),
        ({"RescaleSlope": "abc"}, "Damaged", "ValueError"),
        ({"syntax": "1.2.840.10008.1.2.4.100"}, "TransferSyntax", "MPEG2"),
        ({"syntax": "1.2.840.10008.1.2.4.92"}, "TransferSyntax", "Part 2"),
        ({"syntax": "1.2.840.10008.1.2.4.110"}, "TransferSyntax", "JPEG XL"),
        ({"syntax": "1.2.3.4"}, "TransferSyntax", "none of the standard"),
    ],
)
def test_what_is_not_read_is_refused_by_name(elements, reason, word):
    elements = dict(elements)
    slope = elements.pop("RescaleSlope", None)
    syntax = elements.pop("syntax", None)
    content = said_to_be(syntax) if syntax else content_of(RAMP, **elements)
    if slope is not None:
        content = content_of(RAMP, RescaleSlope="999", RescaleIntercept="0").replace(b"999 ", b"abc ")
    assert word in refused(content, reason)


def test_damage_never_raises_anything_else_and_quotes_no_value():
    rng = np.random.default_rng(3)
    contents = [
        Path(get_testdata_file(name)).read_bytes()
        for name in ("MR_small_RLE.dcm", "MR_small_jp2klossless.dcm", "SC_rgb_jpeg_dcmtk.dcm", "CT_small.dcm")
    ]
    refusals = 0
    for content in contents:
        for _ in range(40):
            damaged = np.frombuffer(content, np.uint8).copy()
            damaged[rng.integers(128, len(damaged), 4)] = rng.integers(0, 256, 4)
            cut = damaged.tobytes()[: int(rng.integers(200, len(content) + 1))]
            try:
                decode_content(cut, "x", Input(16, 1, DICOM_WINDOW))
            except RefusedImageError as error:
                refusals += 1
                assert error.reason in ("Damaged", "TooLarge", "Unsupported", "TransferSyntax", "NotAnImage")
                assert "CompressedSamples" not in error.detail
    assert refusals > 40


def test_a_name_in_a_broken_header_is_not_quoted():
    content = content_of(RAMP, PatientName="Secretperson^A", RescaleSlope="999", RescaleIntercept="0").replace(
        b"999 ", b"Sec "
    )
    assert "Sec" not in refused(content, "Damaged")


def test_the_decoder_says_all_versions():
    (version,) = {decode_content(content_of(RAMP), "x", Input(8, 1)).decoder}
    assert all(word in version for word in ("pydicom", "gdcm", "openjpeg", pydicom.__version__))
