"""Folders, tables and the digits, good and bad; which images a section means."""

import numpy as np
import pytest
from drawn_images import draw, fill, write_table
from read_sections import ISIC, images_of, model_of, refused

from anchorage.api.data import ServerData, SiloData
from anchorage.api.errors import data as failures
from anchorage.learning.data import check, read, reading


def section(kind="CsvManifest", **fields):
    if kind == "CsvManifest":
        fields = {"manifest": "table.csv", **fields}
    return SiloData(format=kind, claim_name="site", **fields)


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


def test_published_layout_of_isic_2018_works_unchanged(tmp_path, site):
    names = fill(site / "ISIC2018_Task3_Training_Input", 14, suffix=".jpg")
    (site / "ISIC2018_Task3_Training_Input" / "ATTRIBUTION.txt").write_text("by")
    rows = [[name, *(("1.0" if place % 7 == c else "0.0") for c in range(7))] for place, name in enumerate(names)]
    write_table(site / "ISIC2018_Task3_Training_GroundTruth.csv", ["image", *ISIC], rows)
    part = section(manifest="ISIC2018_Task3_Training_GroundTruth.csv")
    images, report = images_of(part, tmp_path, classes=ISIC, size=16)
    assert images.images.shape == (14, 3, 16, 16)
    assert images.labels.tolist() == [*range(7), *range(7)]
    assert images.stratum_names == ISIC
    assert images.ids == tuple(names)
    assert report.counts == (2,) * 7
    assert report.sizes == {"24×18": 14}
    assert report.modes == {"RGB": 14}


def test_class_folders_give_labels_and_files_beside_them_none(tmp_path, site):
    fill(site / "benign", 3)
    fill(site / "malignant", 2, start=3)
    fill(site, 1, start=5)
    fill(site / ".cache", 1, start=6)
    images, report = images_of(section("ImageFolder"), tmp_path, classes=("benign", "malignant"))
    assert dict(zip(images.ids, images.labels.tolist(), strict=True)) == {
        "benign/image000.png": 0, "benign/image001.png": 0, "benign/image002.png": 0,
        "image005.png": -1, "malignant/image003.png": 1, "malignant/image004.png": 1,
    }  # fmt: skip
    assert images.stratum_names == ("benign", "malignant")
    assert (report.counts, report.unlabelled, report.usable) == ((3, 2), 1, 6)


def test_a_flat_folder_has_no_labels(tmp_path, site):
    fill(site / "images", 3)
    images, _ = images_of(section("ImageFolder", path="images"), tmp_path, classes=ISIC, channels=1)
    assert images.labels.tolist() == [-1, -1, -1]
    assert images.images.shape == (3, 1, 8, 8)
    assert images.stratum_names == ISIC


def test_a_site_without_a_class_keeps_the_federations_class_ids(tmp_path, site):
    fill(site / "nevus", 2)
    for classes, expected in ((("melanoma", "nevus"), 1), (("nevus", "melanoma"), 0), (("a", "b", "nevus"), 2)):
        images, _ = images_of(section("ImageFolder"), tmp_path, classes=classes)
        assert images.labels.tolist() == [expected] * 2
        assert images.stratum_names == classes


def test_a_folder_that_is_no_class_is_refused_by_name_or_left_out(tmp_path, site):
    fill(site / "nevus", 2)
    fill(site / "Melanom", 1, start=2)
    part, classes = section("ImageFolder"), ("melanoma", "nevus")
    words = ('the folder "Melanom" (1 images)', "melanoma, nevus", "classMap: {Melanom: melanoma}")
    refused(part, tmp_path, failures.CLASSES_DIFFER, str(site), *words, classes=classes)
    mapped = section("ImageFolder", class_map={"Melanom": "melanoma"})
    assert images_of(mapped, tmp_path, classes=classes)[0].labels.tolist() == [0, 1, 1]
    images, report = images_of(section("ImageFolder", on_bad_image="Skip"), tmp_path, classes=classes)
    assert images.labels.tolist() == [1, 1]
    assert [(bad.id, bad.reason) for bad in report.bad] == [("Melanom/image002.png", "LabelOutsideClasses")]
    assert check(part, tmp_path, model_of(classes).task)[0].bad == report.bad


def test_folders_of_a_site_without_labels_may_have_any_name(tmp_path, site):
    fill(site / "patient 7", 2)
    fill(site / "nevus", 1, start=2)
    images, report = read(section("ImageFolder"), tmp_path, model_of(("melanoma", "nevus"), 8, 3), 1, labelled=False)
    assert (images.labels.tolist(), report.bad) == ([1, -1, -1], ())


def test_a_map_to_a_class_that_there_is_not_is_refused(tmp_path, site):
    fill(site / "x", 1)
    part = section("ImageFolder", class_map={"x": "c"})
    refused(part, tmp_path, failures.CLASSES_DIFFER, "classMap leads to c", "a, b")


def test_two_names_of_a_class_and_exchanged_names(tmp_path, site):
    for place, name in enumerate(("a", "b", "third")):
        fill(site / name, 1, start=place)
    part = section("ImageFolder", class_map={"a": "b", "b": "a", "third": "a"})
    assert images_of(part, tmp_path)[0].labels.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("header", "cells", "classes", "expected"),
    [
        (["image", "label"], ["0", "1", "", "1"], ("0", "1"), [0, 1, -1, 1]),
        (["File", "Diagnosis"], ["nv", "mel", "mel", ""], ("mel", "nv"), [1, 0, 0, -1]),
        (["File", "Diagnosis"], ["nv", "mel", "mel", ""], ("nv", "mel"), [0, 1, 1, -1]),
        (["image_id", "dx"], ["nv", "nv", "nv", "nv"], ("mel", "nv"), [1, 1, 1, 1]),
        (["image", "age"], ["50", "61", "", "70"], ("mel", "nv"), [-1, -1, -1, -1]),
    ],
)
def test_label_columns(tmp_path, site, header, cells, classes, expected):
    names = fill(site, 4)
    write_table(site / "table.csv", header, zip(names, cells, strict=True))
    assert images_of(section(), tmp_path, classes=classes)[0].labels.tolist() == expected


def test_labels_that_are_codes_are_never_taken_for_positions(tmp_path, site):
    names = fill(site, 4)
    write_table(site / "table.csv", ["image", "label"], zip(names, "1221", strict=True))
    classes = ("normal", "pneumonia")
    words = ('labels "1" (2 images), "2" (2 images)', "normal, pneumonia", "classMap: {'1': CLASS, '2': CLASS}")
    refused(section(), tmp_path, failures.CLASSES_DIFFER, *words, classes=classes)
    mapped = section(class_map={"1": "normal", "2": "pneumonia"})
    assert images_of(mapped, tmp_path, classes=classes)[0].labels.tolist() == [0, 1, 1, 0]


def test_columns_may_be_named_and_cells_separated_by_semicolons(tmp_path, site):
    names = fill(site / "pictures", 2)
    rows = "".join(f"7;{name}.png;b;p{place}\n" for place, name in enumerate(names))
    (site / "table.csv").write_text("\ufeffage;picture;finding;patient\n" + rows, encoding="utf-8")
    part = section(image_column="picture", label_column="finding", group_by="patient")
    images, report = images_of(part, tmp_path)
    assert (images.labels.tolist(), images.groups, report.groups) == ([1, 1], ("p0", "p1"), 2)
    refused(section(label_column="label"), tmp_path, failures.MANIFEST_WRONG, 'no column "label"', "finding")


def test_images_are_found_by_path_and_by_name(tmp_path, site):
    fill(site / "a", 1)
    fill(site / "b", 2, start=1)
    (site / "b" / "image002.png").rename(site / "b" / "image000.png")
    write_table(site / "table.csv", ["image"], [["a/image000.png"], ["b/image000"], ["image001"], ["image000"]])
    assert [(bad.id, bad.reason) for bad in check(section(), tmp_path, model_of(("a", "b")).task)[0].bad] == [
        ("image000", "Ambiguous")
    ]


def test_every_bad_image_is_reported_then_refused_or_skipped(tmp_path, site):
    names = fill(site, 4, suffix=".jpg")
    content = (site / "image001.jpg").read_bytes()
    (site / "image001.jpg").write_bytes(content[: len(content) // 2])
    (site / "image002.jpg").write_bytes(b"")
    (site / "image009.jpg").write_text("no image")
    rows = [*((name, "a") for name in names), ("image000", "b"), ("gone", "b"), ("image009", "b")]
    write_table(site / "table.csv", ["image", "label"], rows)
    error = refused(
        section(),
        tmp_path,
        failures.BAD_IMAGES,
        "6 of 7 images",
        "image000 (LabelAmbiguous",
        "image001 (Damaged",
        "onBadImage: Skip",
    )
    assert (error.code, error.failure.exit_code) == ("ANC-1203", 3)
    images, report = images_of(section(on_bad_image="Skip"), tmp_path)
    assert images.ids == ("image003",)
    assert images.images.shape == (1, 3, 8, 8)
    assert {(bad.id, bad.reason) for bad in report.bad} == {
        ("image001", "Damaged"), ("image002", "Empty"), ("image000", "LabelAmbiguous"),
        ("gone", "Missing"), ("image009", "NotAnImage"),
    }  # fmt: skip
    document = check(section(), tmp_path, model_of(("a", "b")).task)[0].as_document()
    assert (document["listed"], document["usable"], len(document["bad"])) == (7, 1, 6)


def test_one_hot_rows_need_one_class(tmp_path, site):
    names = fill(site, 4)
    write_table(
        site / "table.csv",
        ["image", "a", "b"],
        [(names[0], 1, 0), (names[1], 1, 1), (names[2], 0, 0), (names[3], "", "")],
    )
    report, _ = check(section(), tmp_path, model_of(("a", "b")).task)
    assert [(bad.id, bad.reason) for bad in report.bad] == [(names[1], "LabelAmbiguous"), (names[2], "LabelAmbiguous")]
    assert (report.counts, report.unlabelled) == ((1, 0), 1)
    chosen = section(on_bad_image="Skip")
    assert images_of(chosen, tmp_path, classes=("b", "a"))[0].labels.tolist() == [1, -1]


def test_one_hot_columns_are_found_by_name(tmp_path, site):
    names = fill(site, 3)
    rows = [(names[0], 1, 0, 0, 1), (names[1], 0, 1, 0, 0), (names[2], 0, 0, 1, 1)]
    write_table(site / "table.csv", ["image", "nv", "melanoma", "df", "male"], rows)
    classes = ("df", "mel", "nv", "vasc")
    mapped = section(class_map={"melanoma": "mel"})
    assert images_of(mapped, tmp_path, classes=classes)[0].labels.tolist() == [2, 1, 0]
    skipping = section(on_bad_image="Skip")  # the table as a whole is wrong, not single images
    for part in (section(), skipping):
        words = ('"melanoma" (1 images)', "df, mel, nv, vasc", "{melanoma: CLASS}")
        refused(part, tmp_path, failures.CLASSES_DIFFER, *words, classes=classes)
    refused(section(), tmp_path, failures.CLASSES_DIFFER, "columns", "nv", "df", "male", classes=("x", "y"))


def test_a_wrong_row_does_not_make_a_class_of_what_else_is_told(tmp_path, site):
    names = fill(site, 4)
    rows = [(names[0], 1, 0, 1), (names[1], 0, 1, 0), (names[2], 1, 1, 1), (names[3], 0, 0, 1)]
    write_table(site / "table.csv", ["image", "a", "b", "male"], rows)
    refused(section(), tmp_path, failures.BAD_IMAGES, "2 of 4 images", "LabelAmbiguous")
    images, _ = images_of(section(on_bad_image="Skip"), tmp_path)
    assert images.labels.tolist() == [0, 1]


def test_equal_files_are_duplicates_and_different_labels_conflict(tmp_path, site):
    draw(seed=1).save(site / "x.png")
    for name in ("y", "z"):
        (site / f"{name}.png").write_bytes((site / "x.png").read_bytes())
    draw(seed=2).save(site / "w.png")
    (site / "v.png").write_bytes((site / "w.png").read_bytes())
    write_table(site / "table.csv", ["image", "label"], [("x", "a"), ("y", "a"), ("z", "b"), ("w", "b"), ("v", "b")])
    report, _ = check(section(), tmp_path, model_of(("a", "b")).task)
    assert report.duplicates == (("x", "y", "z"), ("w", "v"))
    assert report.conflicts == (("x", "y", "z"),)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"image,label,label\n", '"label" twice'),
        (b"image,label\nx,1,2\n", "row 2 has 3 cells"),
        (b"image\n\xff\xfe\n", "UTF-8"),
        (b'image,label\n"x,1\n', "no CSV"),
    ],
)
def test_tables_that_cannot_be_understood(tmp_path, site, content, words):
    (site / "table.csv").write_bytes(content)
    refused(section(), tmp_path, failures.MANIFEST_WRONG, words)


def test_missing_folders_and_empty_ones(tmp_path, site):
    refused(section("ImageFolder"), tmp_path, failures.NO_IMAGES, str(site))
    refused(section("ImageFolder", path="x"), tmp_path, failures.DATA_MISSING, str(site / "x"))
    refused(section(), tmp_path, failures.DATA_MISSING, "table.csv")
    (site / "table.csv").write_text("image,label\n")
    refused(section(), tmp_path, failures.NO_IMAGES)
    (site / "table.csv").write_text("image,label\nx,a\n")
    refused(section(on_bad_image="Skip"), tmp_path, failures.NO_IMAGES, "none of 1 images")


def test_images_beyond_memory_are_refused_before_they_are_decoded(tmp_path, site, monkeypatch):
    fill(site, 2)
    monkeypatch.setattr(reading, "available_bytes", lambda: 100)
    refused(section("ImageFolder"), tmp_path, failures.IMAGES_EXCEED_MEMORY, "imageSize")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"format": "ImageFolder"}, "without claimName"),
        ({"format": "CsvManifest", "claimName": "x"}, "without manifest"),
        ({"format": "Digits", "use": "Test"}, "without testPercent"),
        ({"format": "Digits", "use": "Validation", "testPercent": 20}, "without validationPercent"),
        ({"format": "Digits", "use": "Anchors"}, "without anchors"),
        ({"format": "Digits", "use": "Part"}, "without partition"),
        ({"format": "Digits", "use": "Part", "partition": {"recipe": "Iid", "parts": 2}}, "partition.part"),
        ({"format": "Digits", "partition": {"recipe": "Iid", "parts": 2, "part": 2}}, "0 to 1"),
        ({"format": "Digits", "partition": {"recipe": "Iid"}}, "without parts"),
        ({"format": "Digits", "partition": {"recipe": "File"}}, "without file"),
        (
            {"format": "Digits", "partition": {"recipe": "Shards", "parts": 2, "classesPerPart": "8x1,2x2"}},
            "for 2 parts",
        ),
        ({"format": "Digits", "partition": {"recipe": "Shards", "parts": 2, "classesPerPart": "5,5"}}, "for 2 parts"),
        (
            {"format": "Digits", "partition": {"recipe": "Shards", "parts": 2, "classesPerPart": "5x1,0x1"}},
            "for 2 parts",
        ),
        ({"format": "Digits", "partition": {"recipe": "Shards", "parts": 2, "classesPerPart": "x"}}, "pattern"),
        ({"format": "ImageFolder", "claimName": "x", "path": "a/../../b"}, "stays below"),
    ],
)
def test_sections_that_mean_nothing_are_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        kind = ServerData if fields.get("use") in ("Test", "Validation", "Anchors") else SiloData
        kind.model_validate(fields)


def test_real_training_images_read_in_their_published_split(tmp_path, real_images):
    """The first images of ISIC 2018 through folder, table and published split at once."""
    with np.load(real_images / "isic18" / "train_200x150.npz") as archive:
        offsets, ids, labels = archive["offsets"], archive["image_id"][:40], archive["labels"][:40]
        content = archive["jpeg_bytes"][: offsets[40]]
    site = tmp_path / "site"
    site.mkdir()
    for row, name in enumerate(ids):
        (site / f"{name}.jpg").write_bytes(content[offsets[row] : offsets[row + 1]].tobytes())
    write_table(
        site / "table.csv",
        ["image", *ISIC],
        [(name, *np.eye(7, dtype=int)[label]) for name, label in zip(ids, labels, strict=True)],
    )
    images, report = images_of(section(), tmp_path, classes=ISIC, size=32)
    assert images.labels.tolist() == labels.tolist()
    assert report.sizes == {"200×150": 40}
    assert not report.bad
