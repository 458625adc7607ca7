"""Who holds which image in the studies with a frozen encoder: nobody holds what another one scores or trains on."""

import importlib.util
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from drawn_images import write_table

from anchorage.api.files import load_federation

QUALITY = Path(__file__).parents[3] / "benchmarks" / "quality"
SITES = np.array(["rosendahl", "vidir-modern", "vidir-molemax", "vienna-dias"])
COUNT = 7 * 200
DOCUMENTS = [f for f in sorted((QUALITY / "ham10000" / "frozen").glob("*.yaml")) if "kind: Federation" in f.read_text()]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Return every table of 1,400 images without pixels: of ten of a class in turn eight train, one validates and one tests."""
    spec = importlib.util.spec_from_file_location("prepare_sites", QUALITY / "prepare_sites.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = np.arange(COUNT)
    names = np.array([f"ISIC_{row:07d}" for row in rows])
    parts = np.array(["train"] * 8 + ["validation", "test"])[rows % 10]
    split = [
        [name, part, "" if part != "train" else str(row // 10 % 10)]
        for row, name, part in zip(rows, names, parts, strict=True)
    ]
    split += [[name, "test", ""] for name, part in zip(names, parts, strict=True) if part == "validation"]
    for row in range(0, COUNT, 200):
        split[row][2] = "server"
    data = tmp_path_factory.mktemp("data")
    (data / "isic18").mkdir()
    write_table(data / "isic18" / "split_labels_at_server.csv", ["image_id", "part", "silo"], split)
    tables_by_name = dict(module.tables(data, names, rows // 200, parts, SITES[rows % 4]))
    return tables_by_name, dict(zip(names, rows // 200, strict=True))


def test_no_image_stands_in_a_table_twice(tables) -> None:
    for name, rows in tables[0].items():
        images = [image for image, _, _ in rows]
        assert len(images) == len(set(images)), name
        assert {part for _, part, _ in rows} >= {"train", "validation", "test"}


def test_the_server_has_as_many_of_every_class_and_the_sites_the_same_images(tables) -> None:
    tables_read, classes = tables

    def held(name):
        return {(image, silo) for image, part, silo in tables_read[name] if part == "train"}

    def server(name):
        return {image for image, silo in held(name) if silo == "server"}

    draws = [f"server-70-{number}" for number in range(5)]
    assert all(set(Counter(classes[image] for image in server(name)).values()) == {10} for name in draws)
    assert set(Counter(classes[image] for image in server("server-350")).values()) == {50}
    assert set.union(*(server(name) for name in draws)) == server("server-350")
    sites = [{row for row in held(name) if row[1] != "server"} for name in (*draws, "server-350")]
    assert all(each == sites[0] for each in sites) and not server("server-350") & {image for image, _ in sites[0]}


def test_the_published_test_part_is_without_its_validation_images(tables) -> None:
    counts = Counter(part for _, part, _ in tables[0]["ten-server"])
    assert counts == {"train": COUNT * 8 // 10, "validation": COUNT // 10, "test": COUNT // 10}


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda path: path.stem)
def test_every_document_names_silos_of_its_table(tables, file) -> None:
    study = load_federation(file)
    for silo in study.silos:
        partition = silo.spec.managed.data.partition
        held = {name for _, part, name in tables[0][partition.file.removesuffix(".csv")] if part == "train"}
        assert partition.silo in held
        assert {section.partition_file for section in study.federation.spec.server_data.values()} == {partition.file}
