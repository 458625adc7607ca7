"""Volumes of a site: each NIfTI file, or series of DICOM slices, is one case with its mask, in folders, PACS exports and tables."""

import io

import numpy as np
import pytest
from drawn_images import draw, write_table
from drawn_scans import CAPTURE, CR, ULTRASOUND, dataset, write_dicom, write_enhanced, write_nifti, write_series
from PIL import Image
from read_sections import section

from anchorage.api.model import ModelDescription
from anchorage.learning.data import Pools, read
from anchorage.learning.data.cases import case_of
from anchorage.learning.data.decoding import RefusedImageError
from anchorage.learning.data.listing import REASONS
from anchorage.learning.data.masks import MaskReader, mask_values, wants_volumes
from anchorage.learning.data.sources import Series
from anchorage.pieces.task.segmentation import Segmentation

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # pydicom's, which the product never shows

CLASSES = ("background", "lesion")
TASK = Segmentation(classes=CLASSES)
VOLUME = np.random.default_rng(0).integers(0, 4096, (6, 5, 4)).astype(np.uint16)
MASK = (VOLUME > 2000).astype(np.uint8)
AFFINE = np.diag([-1.0, -1, 1, 1])
"""Of what `write_series` draws."""


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "root" / "site"
    folder.mkdir(parents=True)
    return folder


def listed(site, kind="ImageFolder", volumes=True, **fields):
    return Pools(volumes=volumes).choose(section(kind, **fields), site.parent, TASK, 1).listing


def pairs(listing):
    """Return for each volume its name, how many files it has, and the name of its mask."""
    masks = listing.masks.files if listing.masks is not None else [None] * len(listing)
    return [
        (
            name,
            len(source.files) if isinstance(source, Series) else 1,
            ""
            if mask is None
            else (mask.files[0] if isinstance(mask, Series) else mask).parent.name
            + "/"
            + (f"{len(mask.files)}" if isinstance(mask, Series) else mask.name),
        )
        for name, source, mask in zip(listing.ids, listing.sources, masks, strict=True)
    ]


def classes_read(listing, row):
    """Return the mask of a case as it is read."""
    masks = listing.masks
    return case_of(listing.sources[row], masks.files[row], 1, (1.0, 1.0, 1.0), None, masks.table, masks.classes).mask


@pytest.mark.parametrize(
    ("images", "masks", "name"),
    [
        ("images", "masks", "{}.nii.gz"),
        ("imagesTr", "labelsTr", "{}.nii.gz"),
        ("imagesTr", "labelsTr", "{}_0000.nii.gz"),
        ("images", "masks", "{}.nii"),
    ],
)
def test_folders_of_images_and_masks_are_pairs(site, images, masks, name):
    for case in ("a", "b", "c"):
        write_nifti(site / images / name.format(case), VOLUME)
        if case != "c":
            write_nifti(site / masks / f"{case}.nii.gz", MASK)
    listing = listed(site)
    expected = [(f"{images}/{name.format(case)}", 1, f"{masks}/{case}.nii.gz") for case in ("a", "b")]
    assert pairs(listing) == [*expected, (f"{images}/{name.format('c')}", 1, "")]
    assert listing.labels.tolist() == [0, 0, -1] and not listing.bad
    np.testing.assert_array_equal(classes_read(listing, 1), MASK)


def test_a_mask_lies_beside_its_volume(site):
    write_nifti(site / "p1" / "a.nii.gz", VOLUME)
    write_nifti(site / "p1" / "a_mask.nii.gz", MASK)
    assert pairs(listed(site)) == [("p1/a.nii.gz", 1, "p1/a_mask.nii.gz")]


def test_further_channels_are_no_volumes_of_their_own(site):
    for channel in range(2):
        write_nifti(site / "imagesTr" / f"a_000{channel}.nii.gz", VOLUME)
    listing = listed(site)
    assert pairs(listing) == [("imagesTr/a_0000.nii.gz", 1, "")] and listing.left_out == {
        "further channel": ("imagesTr/a_0001.nii.gz",)
    }


def test_a_series_in_a_folder_of_its_own_has_the_mask_of_the_folders_name(site):
    for number, case in enumerate(("a", "b")):
        write_series(site / "images" / case, VOLUME, uid=f"1.2.{number}", PatientID=case)
        write_nifti(site / "masks" / f"{case}.nii.gz", MASK, AFFINE)
    listing = listed(site)
    assert [pair[1:] for pair in pairs(listing)] == [(4, "masks/a.nii.gz"), (4, "masks/b.nii.gz")]
    assert listing.groups == ("a", "b") and listing.labels.tolist() == [0, 0]
    np.testing.assert_array_equal(classes_read(listing, 0), MASK[::-1, ::-1])


def pacs(site):
    """Write an export of two patients: three series, a localiser, a radiograph, a capture in a series, and an enhanced object."""
    write_series(site / "p1" / "s1", VOLUME, uid="1.2.1", PatientID="p1", StudyInstanceUID="1.1")
    write_dicom(
        site / "p1" / "s1" / "shot",
        VOLUME[:, :, 0],
        SeriesInstanceUID="1.2.1",
        PatientID="p1",
        SOPClassUID=CAPTURE,
        BurnedInAnnotation="YES",
    )
    write_series(site / "p1" / "s2", VOLUME, uid="1.2.2", PatientID="p1", StudyInstanceUID="1.1", first=50)
    write_series(site / "p2" / "s3", VOLUME, uid="1.2.3", PatientID="p2", StudyInstanceUID="1.3", AccessionNumber="007")
    localiser = {"uid": "1.2.4", "PatientID": "p2", "ImageType": ["ORIGINAL", "PRIMARY", "LOCALIZER"]}
    write_series(site / "p2" / "s4", VOLUME[:, :, :3], **localiser)
    write_dicom(site / "p2" / "s5" / "1", VOLUME[:, :, 0], SeriesInstanceUID="1.2.5", PatientID="p2", SOPClassUID=CR)
    write_enhanced(site / "p2" / "s6" / "1", VOLUME)


def test_an_export_is_a_case_for_each_series_and_the_rest_is_counted(site):
    pacs(site)
    listing = listed(site, "DicomFolder")
    assert [(files, mask) for _, files, mask in pairs(listing)] == [(5, ""), (4, ""), (4, ""), (1, "")]
    assert listing.groups == ("p1", "p1", "p2", "p1") and listing.labels.tolist() == [-1] * 4
    assert listing.not_images == {"slice of no volume": 4} and not listing.bad
    for source in listing.sources:
        read_case = case_of(source, None, 1, (1.0, 1.0, 1.0), None, np.zeros(65536, np.uint8), CLASSES)
        assert read_case.values.shape == (1, *VOLUME.shape)


def test_files_with_and_without_suffixes_are_the_same_series(site):
    digests = []
    for folder, name in (("one", "I{:04d}"), ("two", "{:04d}.dcm"), ("three", "1.2.{}")):
        write_series(site / folder, VOLUME, name=name, SOPInstanceUID="1.9", StudyInstanceUID="1.8")
        listing = listed(site, "DicomFolder", path=folder)
        assert [files for _, files, _ in pairs(listing)] == [4]
        digests.append(
            case_of(listing.sources[0], None, 1, (1.0, 1.0, 1.0), None, np.zeros(65536, np.uint8), CLASSES).digest
        )
    assert len(set(digests)) == 1


def test_a_series_whose_header_says_that_text_is_in_its_pixels_is_bad(site):
    write_series(site / "a", VOLUME, SOPClassUID=ULTRASOUND, BurnedInAnnotation="YES")
    assert [bad.reason for bad in listed(site, "DicomFolder").bad.values()] == ["BurnedInText"]
    assert not listed(site, "DicomFolder", burned_in_text="Use").bad


def test_a_table_names_files_and_folders(site):
    pacs(site)
    write_nifti(site / "x.nii.gz", VOLUME)
    write_nifti(site / "m" / "x.nii.gz", MASK)
    write_series(site / "m" / "s3", MASK, bits=8, uid="1.2.30")
    rows = [
        ("x.nii.gz", "m/x.nii.gz"),
        ("p2/s3", "m/s3"),
        ("p1/s1/", ""),
        ("p1", ""),
        ("p2/s5", ""),
        ("p9", ""),
        ("p2/s3", ""),
    ]
    write_table(site / "table.csv", ["image", "mask"], rows)
    listing = listed(site, "CsvManifest", mask_column="mask")
    assert pairs(listing)[:3] == [("x.nii.gz", 1, "m/x.nii.gz"), ("p2/s3", 4, "s3/4"), ("p1/s1/", 5, "")]
    assert {listing.ids[row]: bad.reason for row, bad in listing.bad.items() if row < 6} == {
        "p1": "Ambiguous",
        "p9": "Missing",
    }
    assert listing.bad[6].reason == "DuplicateId" and len(listing) == 7
    assert listing.labels.tolist() == [0, 0, -1, -1, -1, -1, -1]
    np.testing.assert_array_equal(classes_read(listing, 0), MASK)
    np.testing.assert_array_equal(classes_read(listing, 1), MASK[::-1, ::-1])
    with pytest.raises(RefusedImageError, match="their volume is not known"):
        case_of(listing.sources[4], None, 1, (1.0, 1.0, 1.0), None, listing.masks.table, CLASSES)


@pytest.mark.parametrize(
    ("match", "names", "files"),
    [
        ("SeriesInstanceUID", ["1.2.1", "1.2.3"], [5, 4]),
        ("StudyInstanceUID", ["1.3"], [4]),
        ("AccessionNumber", ["007"], [4]),
    ],
)
def test_a_table_names_series_by_identifiers(site, match, names, files):
    pacs(site)
    write_series(site / "m", MASK, bits=8, uid="1.2.30")
    write_table(
        site / "table.csv",
        ["uid", "mask"],
        [(name, "1.2.30" if match == "SeriesInstanceUID" else "m") for name in names],
    )
    listing = listed(site, "CsvManifest", match=match, image_column="uid", mask_column="mask")
    assert pairs(listing) == [(name, count, "m/4") for name, count in zip(names, files, strict=True)]
    assert not listing.bad and listing.labels.tolist() == [0] * len(names)


def test_a_study_of_several_series_is_ambiguous(site):
    pacs(site)
    write_table(site / "table.csv", ["uid"], [["1.1"], ["1.3"]])
    listing = listed(site, "CsvManifest", match="StudyInstanceUID", image_column="uid")
    assert listing.ids == ("1.1", "1.3") and listing.bad[0].reason == "Ambiguous" and 1 not in listing.bad
    assert "2 volumes" in listing.bad[0].detail and "1.1" not in listing.bad[0].detail


def test_a_folder_of_a_table_has_one_file_beside_its_mask(site):
    for name in ("one/ct.nii.gz", "two/a.nii.gz", "two/b.nii.gz"):
        write_nifti(site / name, VOLUME)
    write_nifti(site / "one" / "seg.nii.gz", MASK)
    write_table(site / "table.csv", ["image", "mask"], [("one", "one/seg.nii.gz"), ("two", "")])
    listing = listed(site, "CsvManifest", mask_column="mask")
    assert pairs(listing) == [("one", 1, "one/seg.nii.gz"), ("two", 1, "")]
    assert {row: bad.reason for row, bad in listing.bad.items()} == {1: "Ambiguous"}


def test_a_damaged_slice_is_part_of_no_series_and_no_other_case_suffers(site):
    files = write_series(site / "a", VOLUME, name="{}.dcm")
    files[2].write_bytes(files[2].read_bytes()[:200])
    write_series(site / "b", VOLUME, name="{}.dcm", uid="1.2.77")
    listing = listed(site, "DicomFolder")
    outcomes = []
    for source in listing.sources:
        try:
            outcomes.append(
                case_of(source, None, 1, (1.0, 1.0, 1.0), None, np.zeros(65536, np.uint8), CLASSES).values.shape[3]
            )
        except RefusedImageError as refused:
            outcomes.append(refused.reason)
    assert 4 in outcomes and "Gap" in outcomes and all(outcome == 4 or outcome in REASONS for outcome in outcomes)


def test_pictures_are_listed_as_before_where_no_volumes_are_wanted(site):
    write_series(site / "images" / "a", VOLUME, name="{}.dcm")
    listing = listed(site, volumes=False)
    assert len(listing) == 4 and not any(isinstance(source, Series) for source in listing.sources)
    assert not wants_volumes(MaskReader(CLASSES)) and wants_volumes(MaskReader(CLASSES).of_volumes())


def test_pictures_of_an_export_have_no_masks(site):
    write_dicom(site / "lesion" / "1", VOLUME[:, :, 0])
    model = ModelDescription(network="SmallUNet", task=TASK, image_size=8, channels=1)
    images, report = read(section("DicomFolder"), site.parent, model, 1, labelled=False)
    assert report.unlabelled == 1 and images.labels.shape == (1, 8, 8) and (images.labels == 255).all()


def test_pictures_have_masks_of_dicom_and_nifti(site):
    shown = draw(size=(6, 5))
    (site / "images").mkdir()
    plane = MASK[:, :, 0]  # columns, rows
    for case in ("a", "b", "c"):
        shown.save(site / "images" / f"{case}.png")
    write_dicom(site / "masks" / "a.dcm", np.ascontiguousarray(plane.T), bits=8)
    write_nifti(site / "masks" / "b.nii.gz", plane[::-1, ::-1, None].astype(np.float32))  # to the right and the front
    (site / "masks").joinpath("c.png").write_bytes(png(plane.T))
    model = ModelDescription(network="SmallUNet", task=TASK, image_size=8, channels=1)
    images, report = read(section(), site.parent, model, 1)
    assert report.usable == 3 and (images.labels == images.labels[2]).all() and set(np.unique(images.labels)) >= {0, 1}


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG")
    return file.getvalue()


def test_masks_of_scans_that_cannot_be_used_are_refused_as_masks(tmp_path):
    def reason(file):
        with pytest.raises(RefusedImageError) as raised:
            mask_values(file)
        return raised.value.reason

    assert reason(write_nifti(tmp_path / "half.nii", MASK[:, :, :1] + np.float32(0.5))) == "MaskValues"
    assert reason(write_nifti(tmp_path / "minus.nii", MASK[:, :, :1].astype(np.int16) - 1)) == "MaskValues"
    (tmp_path / "cut.dcm").write_bytes(written(MASK[:, :, 0])[:-20])
    assert reason(tmp_path / "cut.dcm") == "MaskUnreadable"
    colours = np.random.default_rng(0).integers(0, 255, (5, 6, 3)).astype(np.uint8)
    assert reason(write_dicom(tmp_path / "colour.dcm", colours, bits=8)) == "MaskInColour"
    assert reason(Series((tmp_path / "half.nii",))) == "MaskUnreadable"


def written(pixels):
    file = io.BytesIO()
    dataset(np.ascontiguousarray(pixels), bits=8).save_as(file, enforce_file_format=True)
    return file.getvalue()
