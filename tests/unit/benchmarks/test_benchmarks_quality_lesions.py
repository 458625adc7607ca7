"""Who holds which image in the studies of masks and of findings of skin lesions."""

import csv
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from drawn_images import write_table

from anchorage.api.files import load_federation

QUALITY = Path(__file__).parents[3] / "benchmarks" / "quality"
FINDINGS = ("malignant", "melanocytic", "keratinocytic", "vascular", "large", "touches_border")
SITES = ("vidir_molemax", "vidir_modern", "rosendahl", "vienna_dias")
SIDE = 8
COUNT = 6400
"""Images; two in a row are of one lesion, and of its site and part."""


def rows_of(folder: Path, table: str) -> list[dict[str, str]]:
    """Read a table."""
    with (folder / f"{table}.csv").open(newline="", encoding="utf-8") as text:
        return list(csv.DictReader(text))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Unpack drawn files in the layout of the shared ones."""
    spec = importlib.util.spec_from_file_location("prepare_lesions", QUALITY / "prepare_lesions.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["prepare_lesions"] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["prepare_lesions"]
    data, out = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("out")
    (data / "isic18").mkdir()
    lesions = np.arange(COUNT) // 2
    names = np.array([f"ISIC_{row:07d}" for row in range(COUNT)])
    sites, parts = lesions % 4, np.array(["train", "val", "test", "test"])[lesions // 4 % 4]
    content = np.frombuffer(b"jpeg", np.uint8)
    np.savez(
        data / "isic18" / "train_200x150.npz",
        jpeg_bytes=np.tile(content, COUNT),
        offsets=np.arange(COUNT + 1) * len(content),
        image_id=names,
        lesion_id=lesions.astype(str),
        site=sites,
        site_names=np.array(SITES),
        split_lesion_grouped=parts,
    )
    masks = np.packbits(np.ones((COUNT, SIDE * SIDE), np.uint8), axis=1)
    np.savez(data / "isic18" / "masks_200x150.npz", masks_packed=masks, image_id=names, shape=(SIDE, SIDE))
    rows = [
        [names[row], lesions[row], SITES[sites[row]], parts[row], *["1", "0", "-1", "1", "0", "1"]]
        for row in range(COUNT)
    ]
    write_table(data / "isic18" / "concepts.csv", ["image_id", "lesion_id", "site", "part", *FINDINGS], rows)
    module.prepare(module.Archive.open(data / "isic18"), out / "ham-lesions")
    return out / "ham-lesions"


@pytest.mark.parametrize("study", ["masks", "findings"])
def test_no_lesion_is_in_two_of_training_validation_and_tests(folder, study) -> None:
    tables = [rows_of(folder, f"{study}-{name}") for name in ("pooled", "validation", "test", "test-vienna-dias")]
    held = [{row["lesion_id"] for row in table} for table in tables]
    assert len(set.union(*held)) == sum(map(len, held))


@pytest.mark.parametrize(("study", "counts"), [("masks", (120, 90, 300)), ("findings", (200, 300, 450))])
def test_every_site_gives_as_many_images_and_the_pool_holds_what_the_sites_hold(folder, study, counts) -> None:
    sites = [rows_of(folder, f"{study}-{site.replace('_', '-')}") for site in SITES[:3]]
    assert [len(table) for table in sites] == [counts[0]] * 3
    pooled = [row["image"] for row in rows_of(folder, f"{study}-pooled")]
    assert pooled == [row["image"] for table in sites for row in table]
    assert (len(rows_of(folder, f"{study}-validation")), len(rows_of(folder, f"{study}-test"))) == counts[1:]


def test_three_images_of_each_site_keep_their_mask_in_the_study_of_few(folder) -> None:
    for site in ("vidir-molemax", "vidir-modern", "rosendahl"):
        few, many = rows_of(folder, f"masks-few-{site}"), rows_of(folder, f"masks-{site}")
        assert [row["image"] for row in few] == [row["image"] for row in many]
        assert sum(bool(row["mask"]) for row in few) == 3
        assert {row["mask"] for row in few} <= {"", *(row["mask"] for row in many)}
        assert all((folder / row["mask"]).is_file() for row in many)


def test_one_site_has_no_column_of_two_findings_and_the_pool_leaves_its_cells_empty(folder) -> None:
    lacking, pooled = rows_of(folder, "findings-vidir-modern"), rows_of(folder, "findings-pooled")
    assert {"keratinocytic", "large"}.isdisjoint(lacking[0]) and "malignant" in lacking[0]
    images = {row["image"] for row in lacking}
    assert {row["large"] for row in pooled if row["image"] in images} == {""}
    assert {row["large"] for row in pooled if row["image"] not in images} == {"0"}
    assert {row["large"] for row in rows_of(folder, "findings-test-vidir-modern")} == {"0"}


@pytest.mark.parametrize("file", ["masks", "masks-one", "masks-few-sites", "findings", "findings-one"])
def test_every_document_names_tables_that_are_written(folder, file) -> None:
    study = load_federation(QUALITY / "lesions" / f"{file}.yaml")
    sections = [silo.spec.managed.data for silo in study.silos] + list(study.federation.spec.server_data.values())
    assert all((folder / section.manifest).is_file() for section in sections)
