"""What lies in a site's folder beside images that are read: other files, links, images that a table does not name."""

import numpy as np
import pytest
from drawn_images import draw, fill, write_table
from PIL import Image
from read_sections import model_of

from anchorage.api.data import Partition, SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.errors import data as failures
from anchorage.learning.data import Pools, check

CLASSES = ("a", "b")
DICOM = bytes(128) + b"DICM" + bytes(64)


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "root" / "site"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def elsewhere(tmp_path):
    folder = tmp_path / "elsewhere"
    fill(folder, 2)
    return folder


def section(kind="ImageFolder", **fields):
    manifest = {"manifest": "table.csv"} if kind == "CsvManifest" else {}
    return SiloData(format=kind, claim_name="site", **{**manifest, **fields})


def checked(site, **fields):
    return check(section(**fields), site.parent, model_of(CLASSES).task)[0]


def refused(site, failure, *words, **fields):
    with pytest.raises(AnchorageError) as raised:
        Pools().choose(section(**fields), site.parent, model_of(CLASSES).task, 1)
    assert raised.value.failure is failure
    for word in words:
        assert word in raised.value.message


def test_a_folder_of_other_files_is_told_so(site):
    (site / "report.pdf").touch()
    (site / "notes").write_text("no DICOM")
    refused(site, failures.NO_IMAGES, "2 other files", "1 .pdf", "1 no suffix", ".png")


def test_files_that_are_not_images_are_counted_by_kind(site):
    fill(site / "a", 2)
    for name in ("a/x.txt", "a/y.txt", "thumbs.DB", "scan", ".hidden", "a/1.2.3", "DICOMDIR"):
        (site / name).write_bytes(b"x")
    report = checked(site)
    assert report.not_images == {".txt": 2, "no suffix": 2, ".db": 1, "DICOMDIR": 1}
    assert (report.listed, report.not_listed) == (2, 0)
    assert report.as_document()["notImages"] == report.not_images


def test_images_that_the_table_does_not_name_are_counted(site):
    names = fill(site / "images", 5)
    write_table(site / "table.csv", ["image", "label"], [(name, "a") for name in names[:3]])
    (site / "split.csv").write_text("image,silo\nimage000,0\n")
    fields = {"use": "Part", "partition": Partition(recipe="File", file="./split.csv", silo="0")}
    report = checked(site, kind="CsvManifest", **fields)
    assert (report.listed, report.not_listed, report.not_images) == (1, 2, {})


def test_a_table_that_names_other_files_is_told_so(site):
    (site / "images").mkdir()
    (site / "images" / "x.dcm").write_bytes(DICOM)
    (site / "images" / "z.txt").touch()
    write_table(site / "table.csv", ["image"], [["x"], ["images/z.txt"], ["z"]])
    bad = {bad.id: (bad.reason, bad.detail) for bad in checked(site, kind="CsvManifest").bad}
    assert bad["x"][0] == "Unsupported"
    assert bad["images/z.txt"] == ("Unsupported", "images/z.txt is no image that is read (.txt)")
    assert bad["z"][0] == "Missing"


def test_links_out_of_the_claims_folder_are_not_followed(site, elsewhere):
    fill(site / "a", 1)
    (site / "a" / "out.png").symlink_to(elsewhere / "image000.png")
    (site / "b").symlink_to(elsewhere)
    (site / "notes.txt").symlink_to(elsewhere / "image001.png")
    report = checked(site)
    assert [(bad.id, bad.reason) for bad in report.bad] == [("a/out.png", "OutsideFolder"), ("b", "OutsideFolder")]
    assert (report.usable, report.not_images) == (1, {".txt": 1})


def test_links_that_stay_inside_are_followed_and_linked_folders_counted(site):
    fill(site / "store", 2)
    (site / "a").mkdir()
    (site / "a" / "in.png").symlink_to("../store/image000.png")
    (site / "b").symlink_to("store")
    report = checked(site, class_map={"store": "a"})
    assert (report.listed, report.usable, report.not_images) == (3, 3, {"linked folder": 1})


def test_the_claims_folder_may_be_a_link_itself(site, elsewhere):
    (site.parent / "linked").symlink_to(elsewhere)
    assert (
        check(SiloData(format="ImageFolder", claim_name="linked"), site.parent, model_of(CLASSES).task)[0].usable == 2
    )


def test_names_of_a_table_lead_not_out_by_links(site, elsewhere):
    fill(site, 1)
    (site / "out.png").symlink_to(elsewhere / "image000.png")
    (site / "folder").symlink_to(elsewhere)
    write_table(site / "table.csv", ["image"], [["image000"], ["out"], ["folder/image001.png"]])
    bad = checked(site, kind="CsvManifest").bad
    assert [(bad.id, bad.reason) for bad in bad] == [("out", "OutsideFolder"), ("folder/image001.png", "OutsideFolder")]


def test_folders_tables_and_lists_that_lead_out_are_refused(site, elsewhere):
    write_table(elsewhere / "table.csv", ["image", "silo"], [("image000", "0")])
    fill(site, 1)
    (site / "images").symlink_to(elsewhere)
    (site / "table.csv").symlink_to(elsewhere / "table.csv")
    refused(site, failures.OUTSIDE_FOLDER, "images", "link out of", path="images")
    refused(site, failures.OUTSIDE_FOLDER, "table.csv", kind="CsvManifest")
    refused(site, failures.OUTSIDE_FOLDER, kind="CsvManifest", manifest="images/table.csv")
    partition = Partition(recipe="File", file="table.csv", silo="0")
    refused(site, failures.OUTSIDE_FOLDER, "table.csv", use="Part", partition=partition)


def test_links_to_nothing_and_in_a_circle_are_missing_images(site):
    fill(site, 1)
    (site / "nothing.png").symlink_to("gone.png")
    assert [(bad.id, bad.reason) for bad in checked(site).bad] == [("nothing.png", "Missing")]
    (site / "circle.png").symlink_to("circle.png")
    refused(site, failures.DATA_MISSING, "circle.png")


def test_the_report_tells_windows_and_pages(site):
    (site / "a").mkdir()
    for place, largest in enumerate((4000, 3000, 900)):
        ramp = np.linspace(0, largest, 16, dtype=np.uint16).reshape(4, 4)
        Image.fromarray(ramp).save(site / "a" / f"{place}.png")
    draw().save(site / "a" / "pages.tif", save_all=True, append_images=[draw(seed=1)])
    report = checked(site)
    assert report.windows == {"0-4095": 2, "0-1023": 1}
    assert report.paged == ("a/pages.tif",)
