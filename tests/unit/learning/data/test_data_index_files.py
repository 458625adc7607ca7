"""Published lists of images by silo, as CSV, JSON and text."""

import json

import numpy as np
import pytest
from drawn_images import fill, write_table
from read_sections import model_of

from anchorage.api.data import Partition, ServerData, SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.errors import data as failures
from anchorage.api.model import ModelDescription
from anchorage.learning.data import Pools, read, write_index
from anchorage.learning.data.index_files import MatchedIndex, read_index
from anchorage.learning.data.listing import Listing
from anchorage.pieces.task.classification import Classification


def section(kind="CsvManifest", **fields):
    if kind == "CsvManifest":
        fields = {"manifest": "table.csv", **fields}
    return SiloData(format=kind, claim_name="site", **fields)


def listed(use, file, silo=None):
    """Return the section of a part that a list names."""
    if use == "Part":
        return section(use=use, partition=Partition(recipe="File", file=file, silo=silo))
    kind = {"format": "CsvManifest", "claim_name": "site", "manifest": "table.csv"}
    return ServerData(**kind, use=use, partition_file=file)


def images_of(part, root):
    task = Classification(classes=("0", "1"))
    return read(part, root, ModelDescription(network="LeafCnn", task=task, image_size=8), 1)


def refused(part, root, failure, *words):
    with pytest.raises(AnchorageError) as raised:
        images_of(part, root)
    assert raised.value.failure is failure
    assert "\n" not in raised.value.message
    for word in words:
        assert word in raised.value.message


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


def published_split(site):
    names = fill(site, 8)
    rows = [(names[0], "train", "server"), (names[1], "train", "server"), (names[2], "train", "0"), (names[3], "train", "0"),
            (names[4], "train", "1"), (names[5], "validation", ""), (names[6], "test", ""), (names[7], "test", "")]  # fmt: skip
    write_table(site / "split.csv", ["image_id", "part", "silo"], rows)
    write_table(site / "table.csv", ["image", "label"], [(name, place % 2) for place, name in enumerate(names)])
    return names


def test_a_published_split_is_used_as_it_is(tmp_path, site):
    names = published_split(site)

    def ids(use, **fields):
        part = listed(use, "split.csv", **fields)
        return images_of(part, tmp_path)[0].ids

    assert ids("Anchors") == tuple(names[:2])
    assert ids("Validation") == (names[5],)
    assert ids("Part", silo="0") == tuple(names[2:4])
    assert ids("Test") == tuple(names[6:])
    assert len(ids("All")) == 8
    part = section(use="Part", partition=Partition(recipe="File", file="split.csv", silo="9"))
    refused(part, tmp_path, failures.PARTITION_FILE_DIFFERS, 'no part "9"', "server, 0, 1")


@pytest.mark.parametrize("lines", ["image001\nimage003\n", "1\n3\n", "image001.png\nfolder/image003.png\n"])
def test_a_list_names_images_or_rows(tmp_path, site, lines):
    fill(site, 5)
    (site / "mine.txt").write_text(lines)
    part = section("ImageFolder", use="Part", partition=Partition(recipe="File", file="mine.txt"))
    assert images_of(part, tmp_path)[0].ids == ("image001.png", "image003.png")


def test_a_list_of_other_images_is_refused(tmp_path, site):
    fill(site, 2)
    part = section("ImageFolder", use="Part", partition=Partition(recipe="File", file="mine.txt"))
    refused(part, tmp_path, failures.DATA_MISSING, "mine.txt")
    (site / "mine.txt").write_text("image001\nimage007\n")
    refused(part, tmp_path, failures.PARTITION_FILE_DIFFERS, "1 images", "image007")
    (site / "mine.txt").write_text("0\n2\n")
    refused(part, tmp_path, failures.PARTITION_FILE_DIFFERS, '"2"')
    (site / "mine.csv").write_text("image,hospital\nimage001,a\n")
    part = section("ImageFolder", use="Part", partition=Partition(recipe="File", file="mine.csv", silo="a"))
    refused(part, tmp_path, failures.MANIFEST_WRONG, 'no column "silo"')


def taken(root, file, use="Part", silo=None):
    """Return the numbers of the images of a part, and their labels."""
    part = listed(use, file, silo)
    listing = Pools().choose(part, root, model_of(("0", "1")).task, 0).labelled_listing()
    return [int(name[-3:]) for name in listing.ids], listing.labels.tolist()


@pytest.mark.parametrize(
    "document",
    [
        {"0": [2, 3], "1": [4]},
        [[2, 3], [4]],
        {"data_partition": {"0": [2, 3], "1": [4]}},
        {
            "data_partition": {"0": [0, 1], "1": [2]},
            "train_list": [2, 3, 4, 5],
            "test_list": [6, 7],
            "validation_list": [1],
        },
        {"labeled": {"0": [2, 3], "1": [4]}, "unlabeled": {}},
        {"0": ["image002", "folder/image003.png"], "1": ["image004"]},
    ],
)
def test_lists_in_json_work_as_they_are_published(tmp_path, site, document):
    published_split(site)
    (site / "split.json").write_text(json.dumps(document))
    assert taken(tmp_path, "split.json", silo="0") == ([2, 3], [0, 1])
    assert taken(tmp_path, "split.json", silo="1") == ([4], [0])
    if "test_list" in document:
        assert taken(tmp_path, "split.json", use="Test") == ([6, 7], [0, 1])
        assert taken(tmp_path, "split.json", use="Validation") == ([1], [1])


def test_partly_labelled_lists_take_labels_away(tmp_path, site):
    published_split(site)
    document = {"labeled": {"0": [1]}, "unlabeled": {"0": [0, 3]}, "train_list": [7, 5, 4, 3], "test_list": [1]}
    (site / "split.json").write_text(json.dumps(document))
    assert taken(tmp_path, "split.json", silo="0") == ([3, 5, 7], [-1, 1, -1])
    assert taken(tmp_path, "split.json", use="Test") == ([1], [1])
    rows = [("image002", "train", "a", "0"), ("image003", "train", "a", "1"), ("image004", "train", "b", "0")]
    write_table(site / "split.csv", ["image", "part", "silo", "labelled"], rows)
    assert taken(tmp_path, "split.csv", silo="a") == ([2, 3], [-1, 1])
    assert taken(tmp_path, "split.csv", silo="b") == ([4], [-1])


def test_what_is_written_is_read_again(tmp_path, site):
    published_split(site)
    entries = [("image000", "train", "server", True), ("image003", "train", "a", True), ("image001", "train", "a", False),
               ("image005", "test", "", True), ("image004", "validation", "", True)]  # fmt: skip
    write_index(site / "made.csv", entries)
    assert taken(tmp_path, "made.csv", silo="a") == ([1, 3], [-1, 1])
    assert taken(tmp_path, "made.csv", use="Test") == ([5], [1])
    assert taken(tmp_path, "made.csv", use="Validation") == ([4], [0])
    assert taken(tmp_path, "made.csv", use="Anchors") == ([0], [0])


@pytest.mark.parametrize(
    ("text", "failure", "words"),
    [
        ('{"0": [2, 8]}', failures.PARTITION_FILE_DIFFERS, '"8"'),
        ('{"0": [2, -1]}', failures.PARTITION_FILE_DIFFERS, '"-1"'),
        ('{"0": ["image002", "image099"]}', failures.PARTITION_FILE_DIFFERS, '"image099"'),
        ('{"labeled": {"0": ["image099"]}, "unlabeled": {"0": [1]}}', failures.PARTITION_FILE_DIFFERS, "image099"),
        ('{"data_partition": {"0": [4]}, "train_list": [2, 3]}', failures.PARTITION_FILE_DIFFERS, "the rows 0 to 1"),
        ('{"1": [2]}', failures.PARTITION_FILE_DIFFERS, 'no part "0"; it has 1'),
        ('{"0": [1.5]}', failures.MANIFEST_WRONG, '"0" is no list of names or row numbers'),
        ('{"0": [true]}', failures.MANIFEST_WRONG, '"0" is no list'),
        ('"all"', failures.MANIFEST_WRONG, "no lists by silo"),
        ("{", failures.MANIFEST_WRONG, "split.json:1 is no JSON"),
    ],
)
def test_lists_that_do_not_fit_are_refused(tmp_path, site, text, failure, words):
    published_split(site)
    (site / "split.json").write_text(text)
    refused(
        section(use="Part", partition=Partition(recipe="File", file="split.json", silo="0")), tmp_path, failure, words
    )


def test_a_pickle_is_never_opened(tmp_path, site):
    published_split(site)
    (site / "split.pth").write_bytes(b"\x80\x02cos\nsystem\n(S'touch opened'\ntR.")
    part = section(use="Part", partition=Partition(recipe="File", file="split.pth", silo="0"))
    refused(part, tmp_path, failures.MANIFEST_WRONG, "pickles (.pth) are never opened", "docs/data.md")


def test_a_mark_that_is_none_is_refused(tmp_path, site):
    published_split(site)
    write_table(site / "split.csv", ["image", "silo", "labelled"], [("image000", "a", "yes")])
    part = section(use="Part", partition=Partition(recipe="File", file="split.csv", silo="a"))
    refused(part, tmp_path, failures.MANIFEST_WRONG, 'row 2 has "yes" under labelled')


@pytest.mark.known_answers
def test_public_partition_files_have_the_known_sizes(site, known):
    """Lists of the published form and sizes: `data_partition` by client; for ISIC 2018 within `train_list`."""
    computed = {"totals": [], "labelled_fraction": []}
    for name, sizes in known.inputs("M4_public_partition_sizes").items():
        total = images = sum(sizes)
        lists = np.split(np.random.default_rng(total).permutation(total), np.cumsum(sizes)[:-1])
        document = {"data_partition": {k: rows.tolist() for k, rows in enumerate(lists)}}
        if name == "ISIC2018":
            images = total + 2003  # the others are the test's
            order = np.random.default_rng(1).permutation(images).tolist()
            document |= {"train_list": order[:total], "test_list": order[total:]}
        (site / "lists.json").write_text(json.dumps(document))
        ids = tuple(map(str, range(images)))
        labels = np.zeros(images, dtype=np.int64)
        pool = Listing(ids, ids, (None,) * images, labels, labels, ("a",), {})
        matched_index = MatchedIndex(read_index(site / "lists.json"), pool)
        held = [matched_index.rows(str(k))[0] for k in range(len(sizes))]
        assert [len(rows) for rows in held] == sizes
        assert len(np.unique(np.concatenate(held))) == total
        assert name != "ISIC2018" or len(matched_index.rows("test")[0]) == 2003
        computed["totals"].append(total)
        computed["labelled_fraction"].append(len(held[0]) / total)
    known.check("M4_public_partition_sizes", computed)
