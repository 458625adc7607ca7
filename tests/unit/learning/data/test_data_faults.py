"""Faults of real data sets that would change results without a word: each is refused, left out and named, or read as it was meant."""

import io
import os
import zlib
from dataclasses import replace

import numpy as np
import pytest
from drawn_images import draw, fill, write_table
from PIL import Image, PngImagePlugin
from read_sections import images_of, model_of, refused

from anchorage.api.data import ServerData, SiloData
from anchorage.api.errors import data as failures
from anchorage.learning.data import check
from anchorage.learning.data.decoding import Input, RefusedImageError, decode_bytes
from anchorage.learning.data.manifests import list_manifest
from anchorage.learning.data.table_columns import owner_in_path
from anchorage.pieces.reader.csv_manifest import CsvManifest


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "hospital"
    folder.mkdir()
    return folder


def table_section(**fields):
    return SiloData(format="CsvManifest", claim_name="hospital", manifest="table.csv", **fields)


def folder_section(**fields):
    return SiloData(format="ImageFolder", claim_name="hospital", **fields)


def checked(section, root, classes=("a", "b")):
    return check(section, root, model_of(classes).task)[0]


def bad_of(report):
    return {(bad.id, bad.reason) for bad in report.bad}


@pytest.mark.parametrize(
    "name", ["PatientID", "patient_id", "Patient ID", "subject", "Subject_No", "participant_id", "PID", "mrn", "case_id", "StudyInstanceUID",
             "lesion_id", "AccessionNumber"],
)  # fmt: skip
def test_images_of_one_patient_stay_together_by_the_usual_names(tmp_path, site, name):
    names = fill(site, 6)
    owners = ["0012", "0012", "12", "12", "x", ""]
    write_table(site / "table.csv", ["image", "label", name], zip(names, "ababab", owners, strict=True))
    images, report = images_of(table_section(), tmp_path)
    assert images.groups == ("0012", "0012", "12", "12", "x", names[5])
    (remark,) = report.remarks
    assert name in remark and "2 names that differ only by leading zeros" in remark


def test_the_widest_owner_of_an_image_counts(tmp_path, site):
    names = fill(site, 2)
    write_table(
        site / "table.csv",
        ["image", "label", "lesion_id", "patient_id"],
        [(names[0], "a", "l1", "p"), (names[1], "b", "l2", "p")],
    )
    assert images_of(table_section(), tmp_path)[0].groups == ("p", "p")
    assert images_of(table_section(group_by="lesion_id"), tmp_path)[0].groups == ("l1", "l2")
    assert images_of(table_section(group_by="None"), tmp_path)[0].groups == tuple(names)


@pytest.mark.parametrize("name", ["patient_age", "sex_of_patient", "case_status", "study_date"])
def test_what_is_known_of_a_patient_is_no_group(tmp_path, site, name):
    names = fill(site, 4)
    write_table(site / "table.csv", ["image", "label", name], zip(names, "abab", "1233", strict=True))
    images, report = images_of(table_section(), tmp_path)
    assert (images.groups, report.remarks) == (tuple(names), ())


def test_a_column_that_looks_like_patients_and_is_not_used_is_told(tmp_path, site):
    names = fill(site, 4)
    write_table(site / "table.csv", ["image", "label", "our patients"], zip(names, "abab", "1122", strict=True))
    (remark,) = checked(table_section(), tmp_path).remarks
    assert '"our patients" looks like a patient id' in remark and "groupBy: None" in remark
    assert checked(table_section(group_by="None"), tmp_path).remarks == ()


def test_folders_that_are_called_as_patients_are_groups(tmp_path, site):
    for place, folder in enumerate(("a/patient07", "a/patient07/left", "b/Patient 8", "b/views")):
        fill(site / folder, 1, start=place)
    assert images_of(folder_section(), tmp_path)[0].groups == (
        "Patient 8",
        "patient07",
        "patient07",
        "b/views/image003.png",
    ) or (
        sorted(images_of(folder_section(), tmp_path)[0].groups)
        == ["Patient 8", "b/views/image003.png", "patient07", "patient07"]
    )


@pytest.mark.parametrize(
    ("name", "owner"),
    [("sub-01/ses-1/left.png", "sub-01"), ("a/sub-01_view1.png", "sub-01"), ("Patient 7_left.png", "Patient 7"), ("case12-b.png", "case12"),
     ("subject_id_3/x.png", "subject_id_3"), ("lesion_3/patient_1/x.png", "patient_1"), ("patient7.png", None), ("substrate 3/x.png", None),
     ("a/1/x.png", None), ("cases/x.png", None), ("showcase1_x.png", None)],
)  # fmt: skip
def test_patients_are_found_in_folders_and_in_front_of_names(name, owner):
    assert owner_in_path(name) == owner


@pytest.mark.parametrize("table", [True, False])
def test_folders_for_training_and_test_that_do_not_count_are_told(tmp_path, site, table):
    for place, folder in enumerate(("a/train", "a/test", "b/train")):
        fill(site / folder, 1, start=place)
    if table:
        write_table(
            site / "table.csv",
            ["image", "label"],
            [("a/train/image000", "a"), ("a/test/image001", "a"), ("image002", "b")],
        )
    remarks = checked(table_section() if table else folder_section(), tmp_path).remarks
    assert remarks[0].startswith("1 of 3 images lie in folders for validation or test, beside others")
    (site / "a" / "test").rename(site / "a" / "more")
    assert checked(folder_section(), tmp_path).remarks == ()


def test_equal_images_are_told_where_they_are_trained_on(tmp_path, site, caplog):
    fill(site / "a", 2)
    fill(site / "b", 1)
    with caplog.at_level("WARNING"):
        images_of(folder_section(), tmp_path)
    assert "same image, other label: 1 times" in caplog.text
    assert "image000" not in caplog.text, "names of files stay out of logs"
    remarks = list(checked(folder_section(), tmp_path).all_remarks())
    assert "same image, other label: 1 times, such as a/image000.png, b/image000.png" in remarks


def mask(size=(24, 18)):
    pixels = np.zeros(size[::-1], np.uint8)
    pixels[4:9, 5:12] = 255
    return Image.fromarray(pixels)


@pytest.mark.parametrize(
    "name",
    ["benign (1)_mask.png", "benign (1)_mask_1.png", "Benign (1)_Segmentation.png", "benign (1)-gt.png",
     "mask_benign (1).png", "LABEL-benign (1).PNG"],
)  # fmt: skip
def test_masks_beside_images_are_left_out_by_their_names(tmp_path, site, name):
    (site / "a").mkdir()
    draw().save(site / "a" / "benign (1).png")
    draw(seed=1).save(site / "a" / name)
    report = checked(folder_section(), tmp_path)
    assert (report.listed, report.left_out) == (1, {"mask": (f"a/{name}",)})
    assert images_of(folder_section(), tmp_path)[0].ids == ("a/benign (1).png",)
    assert len(images_of(folder_section(mask_files="Use"), tmp_path)[0].ids) == 2


def test_masks_are_left_out_by_their_few_values(tmp_path, site):
    fill(site / "a", 2)
    mask().save(site / "a" / "one.png")
    mask().convert("1").save(site / "a" / "two.png")
    mask((30, 30)).save(site / "a" / "other size.png")
    images, report = images_of(folder_section(), tmp_path)
    assert images.ids == ("a/image000.png", "a/image001.png", "a/other size.png")
    assert (report.listed, report.left_out) == (3, {"mask": ("a/one.png", "a/two.png")})
    assert "masks, left out: 2, such as a/one.png" in list(report.all_remarks())
    assert report.modes == {"RGB": 2, "L": 1} and report.sizes == {"24×18": 2, "30×30": 1}, "masks do not count"
    assert len(images_of(folder_section(mask_files="Use"), tmp_path)[0].ids) == 5


@pytest.mark.parametrize(
    ("name", "what"),
    [("a/@eaDir/1.jpg/SYNOPHOTO_THUMB_M.jpg", "system folder"), ("#recycle/old.png", "system folder"),
     ("$RECYCLE.BIN/x.png", "system folder"), ("__MACOSX/a/1.png", "system folder"), ("a/SYNOPHOTO_THUMB_M.jpg", "thumbnail"),
     ("a/image000_thumb.png", "thumbnail")],
)  # fmt: skip
def test_what_storage_and_recycle_bins_hold_is_left_out(tmp_path, site, name, what):
    fill(site / "a", 1)
    (site / name).parent.mkdir(parents=True, exist_ok=True)
    draw(seed=5).save(site / name)
    report = checked(folder_section(), tmp_path)
    assert (report.listed, list(report.left_out)) == (1, [what])


@pytest.mark.parametrize("value", [0, 128, 255])
def test_blank_images_are_bad(tmp_path, site, value):
    fill(site / "a", 1)
    for name in ("blank.png", "blank.jpg"):
        Image.new("RGB", (40, 40), (value,) * 3).save(site / "a" / name)
    report = checked(folder_section(), tmp_path)
    assert bad_of(report) == {("a/blank.png", "Blank"), ("a/blank.jpg", "Blank")}
    refused(folder_section(), tmp_path, failures.BAD_IMAGES, "2 of 3 images", "Blank")
    assert images_of(folder_section(on_bad_image="Skip"), tmp_path)[0].ids == ("a/image000.png",)


def jpeg(size=(400, 300), **options):
    content = io.BytesIO()
    draw(size=size).save(content, "JPEG", **options)
    return content.getvalue()


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"quality": 30}, {"optimize": True}, {"restart_marker_rows": 1}]
)
def test_jpegs_of_which_half_is_zero_are_damaged(options):
    content = jpeg(**options)
    half = len(content) // 2
    assert decode_bytes(content, Input(32, 3)).size == (400, 300)
    with pytest.raises(RefusedImageError) as raised:
        decode_bytes(content[:half] + bytes(len(content) - half), Input(32, 3))
    assert raised.value.reason == "Damaged"


@pytest.mark.parametrize("padding", [0, 100])
def test_whole_jpegs_with_zeros_behind_them_are_read(padding):
    assert decode_bytes(jpeg() + bytes(padding), Input(32, 3)).size == (400, 300)


def test_one_file_is_one_image_by_whatever_name(tmp_path, site):
    fill(site, 3)
    rows = [
        ("image000", "a"),
        ("image000.png", "a"),
        ("image001", ""),
        ("./image001.png", "b"),
        ("image002", "a"),
        ("image002.png", "b"),
    ]
    write_table(site / "table.csv", ["image", "label"], rows)
    assert bad_of(checked(table_section(), tmp_path)) == {
        ("image000.png", "DuplicateId"), ("image001", "DuplicateId"), ("image002", "LabelAmbiguous"), ("image002.png", "LabelAmbiguous"),
    }  # fmt: skip
    images, _ = images_of(table_section(on_bad_image="Skip"), tmp_path)
    assert (images.ids, images.labels.tolist()) == (("image000", "./image001.png"), [0, 1])


def divided(site):
    names = fill(site, 5)
    write_table(
        site / "table.csv",
        ["image", "label", "split"],
        zip(names, "ababa", ["train", "Test", "val", "train", "TEST"], strict=True),
    )
    return names


def test_a_tables_own_division_is_refused_until_it_is_said_whether_it_counts(tmp_path, site):
    names = divided(site)
    refused(
        table_section(),
        tmp_path,
        failures.SPLIT_IGNORED,
        '"split"',
        "3 of 5 images",
        "splitColumn: split",
        "splitColumn: None",
    )
    assert images_of(table_section(split_column="None"), tmp_path)[0].ids == tuple(names)


def test_a_tables_own_division_is_kept_to(tmp_path, site):
    names = divided(site)
    place = {"format": "CsvManifest", "claim_name": "hospital", "manifest": "table.csv", "split_column": "split"}
    assert images_of(SiloData(**place), tmp_path)[0].ids == (names[0], names[3])
    assert images_of(ServerData(**place, use="Test"), tmp_path)[0].ids == (names[1], names[4])
    assert images_of(ServerData(**place, use="Validation"), tmp_path)[0].ids == (names[2],)
    parts = [
        images_of(SiloData(**place, use="Part", partition={"recipe": "Iid", "parts": 2, "part": part}), tmp_path)[0].ids
        for part in (0, 1)
    ]
    assert {name for part in parts for name in part} == {names[0], names[3]}


@pytest.mark.parametrize(
    ("column", "cells", "trained"),
    [("dataset", ["train", "test", "train"], (0, 2)), ("is_test", ["0", "1", "0"], (0, 2)), ("Test", ["false", "True", "FALSE"], (0, 2)),
     ("train", ["1.0", "0.0", "1.0"], (0, 2)), ("is_val", ["no", "no", "yes"], (0, 1))],
)  # fmt: skip
def test_a_division_is_found_by_what_a_column_says(tmp_path, site, column, cells, trained):
    names = fill(site, 3)
    write_table(site / "table.csv", ["image", "label", column], zip(names, "aba", cells, strict=True))
    refused(table_section(), tmp_path, failures.SPLIT_IGNORED, f'"{column}" 1 of 3 images', f"splitColumn: {column}")
    images, _ = images_of(table_section(split_column=column), tmp_path)
    assert images.ids == tuple(names[row] for row in trained)


@pytest.mark.parametrize(
    ("column", "cells"),
    [("phase", ["train", "train", "train"]), ("stage", ["test", "test", "test"]), ("test", ["12", "13", "1"]), ("smoker", ["0", "1", "0"])],
)  # fmt: skip
def test_other_columns_divide_nothing(tmp_path, site, column, cells):
    names = fill(site, 3)
    write_table(site / "table.csv", ["image", "label", column], zip(names, "aba", cells, strict=True))
    assert len(images_of(table_section(), tmp_path)[0].ids) == 3


def test_a_tables_division_of_other_words_is_refused(tmp_path, site):
    names = fill(site, 2)
    write_table(site / "table.csv", ["image", "label", "fold"], zip(names, "ab", ["1", "2"], strict=True))
    assert len(images_of(table_section(), tmp_path)[0].ids) == 2
    refused(
        table_section(split_column="fold"), tmp_path, failures.MANIFEST_WRONG, '"fold" has the value "1"', "validation"
    )


@pytest.mark.parametrize(
    ("most", "count", "white", "share"),
    [(65535, 1, 4095, 1 / 4096), (65535, 2048, 4095, 0.5), (65535, 0, 4095, 0.0), (30000, 2048, 65535, 0.0)],
)
def test_marks_and_padding_far_above_an_image_do_not_make_it_black(most, count, white, share):
    pixels = np.full((64, 64), 4095, np.uint16)
    pixels[:32] = np.arange(2048).reshape(32, 64)
    pixels.reshape(-1)[4096 - count :] = most
    if most == 30000:
        pixels[40:, :32] = 29000
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    decoded_image = decode_bytes(content.getvalue(), Input(64, 1))
    assert (decoded_image.white, decoded_image.above) == (white, share)


def test_the_report_tells_what_share_of_an_image_lies_above_its_white(tmp_path, site):
    (site / "a").mkdir()
    pixels = np.linspace(0, 4095, 4096).astype(np.uint16).reshape(64, 64)
    pixels[0, 0] = 65535
    Image.fromarray(pixels).save(site / "a" / "x.png")
    report = checked(folder_section(), tmp_path)
    assert report.above == {"a/x.png": 1 / 4096}
    assert any("0.02% of the pixels, such as a/x.png" in remark for remark in report.all_remarks())


@pytest.mark.parametrize("other", ["A", "ａ"])
def test_classes_that_people_read_as_one_are_refused(other):
    with pytest.raises(ValueError, match="people read as one class"):
        model_of(("a", other))


def test_names_of_classes_match_however_their_accents_are_stored(tmp_path, site):
    composed, apart = "n\u00e6vus \u00e9", "n\u00e6vus e\u0301"
    fill(site / apart, 1)
    fill(site / "b", 1, start=1)
    assert sorted(images_of(folder_section(), tmp_path, classes=(composed, "b"))[0].labels.tolist()) == [0, 1]


@pytest.mark.parametrize(
    "text",
    ["image,label,,\nimage000,a,,\nimage001,b,,\n", "sep=;\nimage;label\nimage000;a\nimage001;b\n",
     '"sep=,"\r\nimage,label\r\nimage000,a\r\nimage001,b\r\n', "\n\nimage\tlabel\nimage000\ta\nimage001\tb\n"],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_tables_are_read_as_spreadsheets_write_them(tmp_path, site, text, encoding):
    fill(site, 2)
    (site / "table.csv").write_bytes(text.encode(encoding))
    assert images_of(table_section(), tmp_path)[0].labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("names", "hint"),
    [(["0", "1", "2"], "3 of 3 missing images would match with leading zeros"),
     (["C:\\data\\scans\\IMAGE1.jpg", "D:\\image2.tif", "E:\\image3.png"], "would match"),
     (["00001.jpg", "00002.jpg", "00009.jpg"], "2 of 3 missing images would match with another suffix"),
     (["other/00001", "other/00002", "nothing"], "2 of 3 missing images would match without the folder"),
     (["scan 1", "scan-2", "scan 77"], "2 of 3 missing images would match by their numbers alone")],
)  # fmt: skip
def test_names_that_nearly_match_are_told_by_cause(tmp_path, site, names, hint):
    for place in range(3):
        draw(seed=place).save(site / f"0000{place}.png")
        draw(seed=place + 3).save(site / f"image{place + 1}.png")
    write_table(site / "table.csv", ["image", "label"], [(name, "a") for name in names])
    bad = checked(table_section(), tmp_path).bad
    assert {one.reason for one in bad} <= {"Missing"}
    assert not bad or any(hint in one.detail for one in bad)
    assert len(bad) == 3 or hint == "would match"


def test_files_of_equal_bytes_in_two_folders_are_one_image(tmp_path, site):
    for folder in ("part_1", "part_2"):
        fill(site / folder, 2)
    draw(seed=9).save(site / "part_2" / "image001.png")
    write_table(site / "table.csv", ["image", "label"], [("image000", "a"), ("image001", "b")])
    assert bad_of(checked(table_section(), tmp_path)) == {("image001", "Ambiguous")}


def test_long_texts_of_a_png_are_skipped():
    info = PngImagePlugin.PngInfo()
    info.add_text("history", "x" * 3_000_000, zip=True)
    info.add_itxt("more", "y" * 3_000_000, zip=True)
    content = io.BytesIO()
    image = draw()
    image.save(content, "PNG", pnginfo=info, icc_profile=bytes(3_000_000))
    np.testing.assert_array_equal(
        decode_bytes(content.getvalue(), Input(18, 3)).pixels, np.asarray(image)[:, 3:21].transpose(2, 0, 1)
    )


def test_the_orientation_that_a_text_of_a_png_says_is_applied():
    info = PngImagePlugin.PngInfo()
    info.add_itxt("XML:com.adobe.xmp", '<rdf:Description tiff:Orientation="3"/>')
    content = io.BytesIO()
    image = draw(size=(18, 18))
    image.save(content, "PNG", pnginfo=info)
    turned = np.asarray(image)[::-1, ::-1].transpose(2, 0, 1)
    np.testing.assert_array_equal(decode_bytes(content.getvalue(), Input(18, 3)).pixels, turned)


def test_damage_of_a_png_is_seen_beside_its_texts():
    content = io.BytesIO()
    draw().save(content, "PNG")
    content_bytes = bytearray(content.getvalue())
    content_bytes[content_bytes.index(b"IDAT") + 10] ^= 0xFF
    assert zlib.crc32(content_bytes)
    with pytest.raises(RefusedImageError):
        decode_bytes(bytes(content_bytes), Input(16, 3))


@pytest.fixture
def without_rights(monkeypatch):
    """Let reading fail as for a user without rights, below folders and of files called locked; root may read everything."""
    scan, opened = os.scandir, os.open

    def scandir(path):
        if "locked" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    def open_file(file, *args, **kwargs):
        if "locked" in str(file):
            raise PermissionError(13, "Permission denied", str(file))
        return opened(file, *args, **kwargs)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(os, "open", open_file)


def test_folders_that_may_not_be_read_are_left_out_and_named(tmp_path, site, without_rights):
    fill(site / "img", 2)
    (site / "lost+found").mkdir()
    (site / "other locked").mkdir()
    write_table(site / "table.csv", ["image", "label"], [("image000", "a"), ("image001", "b")])
    report = checked(table_section(), tmp_path)
    assert (report.usable, report.left_out) == (
        2,
        {"system folder": ("lost+found/",), "unreadable folder": ("other locked/",)},
    )
    write_table(site / "table.csv", ["image", "label"], [("image000", "a"), ("image007", "b")])
    assert bad_of(checked(table_section(), tmp_path)) == {("image007", "Unreadable")}


def test_a_folder_of_a_class_that_may_not_be_read_is_bad(tmp_path, site, without_rights):
    fill(site / "a", 2)
    (site / "b" / "locked").mkdir(parents=True)
    assert bad_of(checked(folder_section(), tmp_path)) == {("b/locked/", "Unreadable")}


def test_most_images_without_rights_are_refused_as_a_whole(tmp_path, site, without_rights):
    for place in range(3):
        draw(seed=place).save(site / f"{'locked' if place else 'open'}{place}.png")
    assert bad_of(checked(folder_section(), tmp_path)) == {("locked1.png", "Unreadable"), ("locked2.png", "Unreadable")}
    refused(
        folder_section(on_bad_image="Skip"), tmp_path, failures.DATA_MISSING, "2 of 3 images may not be read", "fsGroup"
    )


@pytest.mark.parametrize("format_", ["ImageFolder", "Digits", "MedMnist"])
def test_a_column_of_a_format_without_a_table_is_refused(format_):
    with pytest.raises(ValueError, match="which has no table"):
        ServerData(format=format_, claim_name="hospital", use="Test", split_column="split")


def test_a_reader_that_does_not_divide_is_refused(tmp_path, site, monkeypatch):
    divided(site)
    monkeypatch.setattr(CsvManifest, "listing", lambda self, *what: replace(list_manifest(*what), split=None))
    refused(
        table_section(split_column="split"),
        tmp_path,
        failures.MANIFEST_WRONG,
        "does not say which images are for a test",
    )


def test_percentages_of_divided_images_are_refused():
    with pytest.raises(ValueError, match="divided already"):
        table_section(split_column="split", test_percent=20)
