"""DICOM and NIfTI wherever images are read: folders of classes, PACS exports, tables by path and identifier, patients, frames, cautions."""

import numpy as np
import pytest
from drawn_images import draw, write_table
from drawn_scans import CR, REPORT, ULTRASOUND, write_dicom, write_nifti
from read_sections import model_of

from anchorage.api.data import SiloData
from anchorage.api.errors import AnchorageError, commands, data
from anchorage.learning.data import Pools, check, read
from anchorage.learning.data.decoders import decoders
from anchorage.learning.data.picture_store import PictureStore
from anchorage.pieces.decoder import dicom

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # pydicom's, which the product never shows

CLASSES = ("a", "b")


def pixels(seed=0, shape=(16, 12)):
    return np.random.default_rng(seed).integers(0, 4096, shape).astype(np.uint16)


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "root" / "site"
    folder.mkdir(parents=True)
    return folder


def section(kind="DicomFolder", **fields):
    manifest = {"manifest": "table.csv"} if kind == "CsvManifest" else {}
    return SiloData(format=kind, claim_name="site", **{**manifest, **fields})


def listed(site, kind="DicomFolder", labelled=False, **fields):
    return Pools().choose(section(kind, **fields), site.parent, model_of(CLASSES).task, 1, labelled).listing


def checked(site, kind="DicomFolder", **fields):
    return check(section(kind, **fields), site.parent, model_of(CLASSES).task, labelled=False)[0]


def pacs(site, suffix=""):
    """Write an export: two patients, three studies, a report and a directory, named by numbers."""
    number = 0
    for patient, study in (("p1", "1.2.1"), ("p1", "1.2.2"), ("p2", "1.2.3")):
        for _ in range(2):
            file = site / patient / f"ST{study[-1]}" / f"I{number:07d}{suffix}"
            write_dicom(
                file, pixels(number), PatientID=patient, StudyInstanceUID=study, SOPInstanceUID=f"1.2.3.{number}"
            )
            number += 1
    write_dicom(site / "p2" / "ST3" / f"I9{suffix}", None, SOPClassUID=REPORT)
    write_dicom(site / "DICOMDIR", None, SOPClassUID="1.2.840.10008.1.3.10")


@pytest.mark.parametrize("suffix", ["", ".dcm", ".12"])
def test_a_pacs_export_is_read_whatever_its_files_are_called(site, suffix):
    pacs(site, suffix)
    draw().save(site / "p1" / "preview.png")
    report = checked(site)
    assert (report.listed, report.usable, report.groups, report.unlabelled) == (6, 6, 2, 6)
    assert report.not_images == {"DICOMDIR": 1, "DICOM Basic Text SR Storage": 1, "image that is no DICOM": 1}
    assert report.facts["modality CT"] == 6 and report.facts["transfer syntax Explicit VR Little Endian"] == 6


def test_images_with_and_without_suffixes_are_the_same(tmp_path):
    sets = []
    for name, suffix in (("one", ""), ("two", ".dcm")):
        folder = tmp_path / name / "site"
        folder.mkdir(parents=True)
        pacs(folder, suffix)
        sets.append(read(section(), folder.parent, model_of(CLASSES), 1, labelled=False)[0])
    np.testing.assert_array_equal(sets[0].images, sets[1].images)
    assert sets[0].groups == sets[1].groups


def test_a_folder_that_is_called_as_a_class_is_a_label(site):
    for name in ("a", "b", "other"):
        write_dicom(site / name / "x" / "1", pixels(len(name)), PatientID=name)
    assert listed(site, labelled=True).labels.tolist() == [0, 1, -1]


def test_folders_of_classes_hold_scans_beside_pictures(site):
    write_dicom(site / "a" / "scan.dcm", pixels(1))
    write_nifti(site / "b" / "head.nii.gz", pixels(2, (12, 10, 1)))
    draw("L").save(site / "b" / "photo.png")
    images, report = read(section("ImageFolder"), site.parent, model_of(CLASSES), 1)
    assert images.labels.tolist() == [0, 1, 1] and report.counts == (1, 2)


def test_images_of_a_patient_stay_together(site):
    pacs(site)
    assert [sorted(set(group)) for group in (listed(site).groups[:4], listed(site).groups[4:])] == [["p1"], ["p2"]]
    parts = [listed(site, use="All", test_percent=50, group_by=None).groups]
    assert len(parts[0]) == 6
    by_study = listed(site, group_by="StudyInstanceUID").groups
    assert len(set(by_study)) == 3


def test_the_issuer_belongs_to_a_patients_identifier_and_a_study_stands_for_none(site):
    for number, (patient, issuer) in enumerate((("7", "north"), ("7", "south"), ("007", "north"))):
        write_dicom(site / f"{number}", pixels(number), PatientID=patient, IssuerOfPatientID=issuer)
    for number in (3, 4):
        write_dicom(site / f"{number}", pixels(number), PatientID=None, StudyInstanceUID="1.2.9")
    listing = listed(site)
    assert len(set(listing.groups)) == 4
    assert any("2 images name no patient" in remark for remark in listing.remarks)
    with pytest.raises(AnchorageError, match="2 of 5 images") as raised:
        listed(site, group_by="PatientID")
    assert raised.value.failure is data.GROUP_UNKNOWN


def test_a_tables_column_of_patients_counts_more_than_headers(site):
    for number in range(3):
        write_dicom(site / f"{number}.dcm", pixels(number), PatientID=f"p{number}")
    write_table(site / "table.csv", ["image", "label", "patient_id"], [(f"{n}.dcm", "a", "x") for n in range(3)])
    assert set(listed(site, "CsvManifest").groups) == {"x"}
    write_table(site / "table.csv", ["image", "label"], [(f"{n}.dcm", "a") for n in range(3)])
    assert listed(site, "CsvManifest").groups == ("p0", "p1", "p2")


@pytest.mark.parametrize(
    ("match", "rows", "labels"),
    [
        ("SOPInstanceUID", [("1.2.3.0", "a"), ("1.2.3.5", "b")], [0, 1]),
        ("StudyInstanceUID", [("1.2.1", "a"), ("1.2.3", "b")], [0, 0, 1, 1]),
    ],
)
def test_tables_name_images_by_identifiers(site, match, rows, labels):
    pacs(site)
    write_table(site / "table.csv", ["uid", "label"], rows)
    listing = listed(site, "CsvManifest", True, match=match, image_column="uid")
    assert listing.labels.tolist() == labels and not listing.bad


def test_an_identifier_without_a_file_is_a_missing_image(site):
    pacs(site)
    write_table(site / "table.csv", ["uid", "label"], [("1.2.3.0", "a"), ("9.9", "b")])
    listing = listed(site, "CsvManifest", True, match="SOPInstanceUID", image_column="uid")
    assert {row: image.reason for row, image in listing.bad.items()} == {1: "Missing"}


def test_accession_numbers_keep_their_zeros(site):
    for number, accession in enumerate(("007", "7")):
        write_dicom(site / f"{number}", pixels(number), AccessionNumber=accession)
    write_table(site / "table.csv", ["accession", "label"], [("007", "a"), ("7", "b")])
    listing = listed(site, "CsvManifest", True, match="AccessionNumber", image_column="accession")
    assert [source.name for source in listing.sources] == ["0", "1"]


@pytest.mark.parametrize(("frames", "expected"), [("First", [0]), ("Middle", [2]), ("All", [0, 1, 2, 3])])
def test_frames_of_a_file_are_images_of_one_group(site, frames, expected):
    stack = pixels(3, (4, 16, 16))
    write_dicom(site / "a" / "x.dcm", stack, PatientID="p")
    for store in (None, PictureStore(site.parent / "store")):
        images, _ = read(section("ImageFolder", frames=frames), site.parent, model_of(CLASSES, size=16), 1, store=store)
        np.testing.assert_array_equal(np.asarray(images.images)[:, 0], stack[expected])
        assert set(images.groups) == {"p"} and len(set(images.digests.tolist())) == len(expected)


def test_slices_of_a_volume_are_images_of_one_group(site):
    write_nifti(site / "a" / "x.nii.gz", pixels(3, (16, 16, 5)))
    images, _ = read(section("ImageFolder", frames="All"), site.parent, model_of(CLASSES, size=16), 1)
    assert len(images) == 5 and len(set(images.groups)) == 1 and len(set(images.ids)) == 5


def test_text_in_pixels_and_raw_values_are_refused_until_the_section_says_so(site):
    write_dicom(site / "1", pixels(1), BurnedInAnnotation="YES", SOPClassUID=ULTRASOUND)
    write_dicom(site / "2", pixels(2), PresentationIntentType="FOR PROCESSING", SOPClassUID=CR)
    write_dicom(site / "3", pixels(3), SOPClassUID=ULTRASOUND)
    report = checked(site)
    assert [bad.reason for bad in report.bad] == ["BurnedInText", "ForProcessing"]
    assert any("1 images are of kinds in which names are often burned" in remark for remark in report.remarks)
    assert checked(site, burned_in_text="Use", for_processing="Use").usable == 3


def test_a_table_that_names_a_report_is_told(site):
    write_dicom(site / "x.dcm", None, SOPClassUID=REPORT)
    write_table(site / "table.csv", ["image"], [["x.dcm"]])
    (bad,) = checked(site, "CsvManifest").bad
    assert (bad.reason, bad.detail) == ("Unsupported", "DICOM Basic Text SR Storage, which is no image that is read")


def test_a_second_start_decodes_nothing_and_another_intensity_does(site, monkeypatch):
    from anchorage.api.model import ModelDescription
    from anchorage.learning.data import picture_store, reading

    monkeypatch.setattr(reading, "IN_MEMORY_BYTES", 0)
    pacs(site)
    decoded = []
    original = picture_store.decode_content
    monkeypatch.setattr(picture_store, "decode_content", lambda *arguments: decoded.append(1) or original(*arguments))
    plain = model_of(CLASSES)
    shown = ModelDescription.model_validate(
        {**plain.model_dump(by_alias=True, mode="json"), "intensity": {"percentiles": {}}}
    )
    store, counts = PictureStore(site.parent / "store"), []
    for model in (plain, plain, shown, shown):
        read(section(), site.parent, model, 1, labelled=False, store=store)
        counts.append(len(decoded))
    assert counts == [6, 6, 12, 12]


def test_without_the_libraries_the_sentence_that_installs_them_is_told(site, monkeypatch):
    pacs(site)
    decoders()  # remembers the versions, also for later tests of this process
    monkeypatch.setattr(dicom, "are_installed", lambda packages: False)
    monkeypatch.setattr("anchorage.pieces.decoder.clinical.find_spec", lambda name: None if name == "gdcm" else name)
    with pytest.raises(AnchorageError, match=r"DICOM files need gdcm.*pip install 'anchorage\[clinical\]'") as raised:
        listed(site)
    assert raised.value.failure is commands.PACKAGE_MISSING
