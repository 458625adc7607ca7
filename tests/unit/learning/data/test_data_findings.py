"""Several findings per image as sites write them: a column for each, a column that lists them, folders; what nobody said is unknown."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from drawn_images import fill, write_table

from anchorage.api.data import SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import CLASSES_DIFFER, MANIFEST_WRONG, PARTITION_IMPOSSIBLE
from anchorage.learning.data import Pools, check
from anchorage.learning.data.findings import SiteFindings, rarest
from anchorage.learning.data.labels import is_known
from anchorage.learning.data.listing import Listing
from anchorage.pieces.task.multi_label import MultiLabel

TASK = MultiLabel(labels=("Effusion", "Mass", "Edema"))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "site"
    folder.mkdir(parents=True)
    return folder


def section(site: Path, columns: dict[str, Sequence[str]], **fields: object) -> SiloData:
    """Write a table with a drawn image per row, and return its section."""
    rows = len(next(iter(columns.values())))
    cells = list(zip(fill(site, rows), *columns.values(), strict=True))
    write_table(site / "table.csv", ["image", *columns], cells)
    return SiloData.model_validate(
        {"format": "CsvManifest", "claim_name": "site", "manifest": "table.csv", **fields}, by_name=True
    )


def listing(data: SiloData, site: Path, *, labelled: bool = True) -> Listing:
    return Pools().choose(data, site.parent, TASK, 1, labelled).labelled_listing()


def labels(data: SiloData, site: Path, *, labelled: bool = True) -> list[list[int]]:
    return listing(data, site, labelled=labelled).labels.tolist()


def test_a_column_per_finding_says_present_absent_uncertain_or_nothing(site: Path) -> None:
    columns = {"mass": ["1", "0.0", "-1", ""], "Effusion": ["0", "1.0", "", ""], "sex": ["0", "1", "1", "0"]}
    data = section(site, columns)
    assert labels(data, site) == [[0, 1, -1], [1, 0, -1], [-1, 2, -1], [-1, -1, -1]]
    assert listing(data, site).labels.dtype == np.int8
    negative = data.model_copy(update={"blank": "Negative"})
    assert labels(negative, site) == [[0, 1, -1], [1, 0, -1], [0, 2, -1], [0, 0, -1]]


def test_columns_are_named_or_mapped(site: Path) -> None:
    columns = {"fluid": ["1", "0"], "mass": ["0", "1"], "edema": ["1", "1"]}
    data = section(site, columns, class_map={"fluid": "effusion"}, label_columns=("fluid", "mass"))
    assert labels(data, site) == [[1, 0, -1], [0, 1, -1]]
    with pytest.raises(AnchorageError, match='no column "pleura"') as caught:
        labels(data.model_copy(update={"label_columns": ("pleura",)}), site)
    assert caught.value.failure is MANIFEST_WRONG
    with pytest.raises(AnchorageError, match="labelColumns has fluid, which is no finding") as caught:
        labels(data.model_copy(update={"class_map": {}}), site)
    assert caught.value.failure is CLASSES_DIFFER
    with pytest.raises(AnchorageError, match="has the columns mass and edema of the finding Mass"):
        labels(data.model_copy(update={"class_map": {"edema": "Mass"}, "label_columns": ()}), site)


@pytest.mark.parametrize("column", ["label", "Finding Labels"])
def test_one_column_lists_findings_and_those_that_no_row_names_are_unknown(site: Path, column: str) -> None:
    data = section(site, {column: ["Effusion|mass", "No Finding", "", "Mass"]})
    assert labels(data, site) == [[1, 1, -1], [0, 0, -1], [-1, -1, -1], [0, 1, -1]]
    renamed_column = data.model_copy(update={"label_column": column, "label_columns": ("Edema",)})
    assert labels(renamed_column, site)[1] == [0, 0, 0]
    assert labels(data.model_copy(update={"blank": "Negative"}), site)[2] == [0, 0, -1]


def test_separator_and_words_that_do_not_count_are_the_sites(site: Path) -> None:
    data = section(site, {"label": ["mass; effusion", "healthy", "hernia;edema"]}, label_separator=";")
    data = data.model_copy(update={"no_finding": ("Healthy", "hernia")})
    assert labels(data, site) == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]


def test_a_word_that_is_no_finding_is_refused_left_out_or_not_wanted(site: Path) -> None:
    data = section(site, {"label": ["mass", "mass|efusion", "hernia"]})
    with pytest.raises(AnchorageError) as caught:
        labels(data, site)
    assert caught.value.failure is CLASSES_DIFFER
    assert (
        "classMap: {'efusion': Effusion, 'hernia': FINDING}" in caught.value.message
        and "noFinding" in caught.value.message
    )
    report, _ = check(data, site.parent, TASK)
    assert [(bad.reason, bad.detail[:37]) for bad in report.bad] == [
        ("LabelOutsideClasses", 'the label "mass|efusion" has "efusion'),
        ("LabelOutsideClasses", 'the label "hernia" has "hernia", whic'),
    ]
    assert labels(data, site, labelled=False)[1:] == [[-1, -1, -1], [-1, -1, -1]]


def test_a_cell_that_says_nothing_that_is_read_makes_its_image_bad(site: Path) -> None:
    data = section(site, {"Mass": ["1", "0", "maybe", "2"]})
    report, _ = check(data, site.parent, TASK)
    assert [bad.reason for bad in report.bad] == ["LabelUnreadable"] * 2
    assert report.bad[0].detail == 'the column "Mass" has "maybe": 1, 0, -1 for uncertain, or nothing is read'


def test_a_folders_name_is_read_as_a_list(site: Path) -> None:
    for name in ("mass", "Mass|Effusion", "no finding"):
        (site / name).mkdir()
        fill(site / name, 1)
    (site / "beside.png").write_bytes(next((site / "mass").iterdir()).read_bytes())
    listing_of_folder = listing(SiloData(format="ImageFolder", claim_name="site"), site)
    of = dict(
        zip((name.split("/")[0] for name in listing_of_folder.ids), listing_of_folder.labels.tolist(), strict=True)
    )
    assert of == {"mass": [0, 1, -1], "Mass|Effusion": [1, 1, -1], "no finding": [0, 0, -1], "beside.png": [-1, -1, -1]}


def test_an_image_is_labelled_when_anything_was_said_of_it() -> None:
    entries = np.array([[0, 0, 0], [-1, 2, -1], [-1, -1, -1], [-1, 1, -1]], np.int8)
    assert is_known(entries).tolist() == [True, True, False, True]
    assert rarest(entries).tolist() == [3, 3, -1, 1]


def test_strata_are_the_rarest_finding_of_each_image() -> None:
    entries = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1], [0, 0, 1], [0, 0, 0]], np.int8)
    assert rarest(entries).tolist() == [1, 0, 2, 2, 3]


def test_a_class_map_leads_to_findings_that_there_are() -> None:
    with pytest.raises(AnchorageError, match="classMap leads to hernia; the federation has Effusion, Mass, Edema"):
        SiteFindings(TASK.labels, {"h": "hernia"})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"recipe": "PerClient", "parts": 2}, "the recipe PerClient, which is by classes"),
        ({"recipe": "Iid", "parts": 2, "labelled_per_class": 1}, "labelledPerClass, which is by classes"),
        ({"recipe": "Iid", "parts": 2, "imbalance_factor": 2}, "imbalanceFactor, which is by classes"),
    ],
)
def test_divisions_by_class_are_refused(site: Path, fields: dict[str, object], words: str) -> None:
    partition = {"part": 0, **fields}
    data = section(site, {"Mass": ["1", "0"] * 4}, use="Part", partition=partition)
    with pytest.raises(AnchorageError, match=words) as caught:
        labels(data, site)
    assert caught.value.failure is PARTITION_IMPOSSIBLE and "multiLabel has no single class" in caught.value.message


def test_anchors_are_drawn_at_random(site: Path) -> None:
    data = section(
        site, {"Mass": ["1", "0"] * 4}, anchors=2, use="Part", partition={"recipe": "Iid", "parts": 2, "part": 0}
    )
    with pytest.raises(AnchorageError, match="anchorDraw Balanced, which is by classes.*set anchorDraw: Random"):
        labels(data, site)
    assert len(labels(data.model_copy(update={"anchor_draw": "Random"}), site)) == 3


def test_random_parts_keep_patients_together(site: Path) -> None:
    patients = [f"p{row // 3}" for row in range(18)]
    columns = {"Mass": ["1", "0"] * 9, "patient": patients}
    parts = [
        listing(section(site, columns, use="Part", partition={"recipe": "Iid", "parts": 3, "part": part}), site)
        for part in range(3)
    ]
    groups = [set(part.groups) for part in parts]
    assert all(not one & other for one, other in zip(groups, groups[1:] + groups[:1], strict=True))
    assert [len(part) for part in parts] == [6, 6, 6] and set().union(*groups) == set(patients)
