"""Labels of other tasks than classification are recognised, and labels that merely look like them are not."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from drawn_images import fill, write_table
from read_sections import model_of

from anchorage.api.data import SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import TASK_UNSUPPORTED
from anchorage.learning.data import Pools, check
from anchorage.learning.data.label_kinds import several_findings

CLASSES = ("effusion", "mass", "edema")


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["effusion|mass", "effusion", "mass"], ["effusion|mass"]),
        (["Effusion;Mass", "effusion", "mass"], ["Effusion;Mass"]),
        (["effusion, mass", "effusion", "mass"], ["effusion, mass"]),
        (["effusion|mass", "mass|edema", "edema|effusion"], ["effusion|mass", "mass|edema", "edema|effusion"]),
        (["effusion|mass", "effusion|rare", "effusion", "mass"], ["effusion|mass", "effusion|rare"]),
        (["atelectasis, right"], []),
        (["atelectasis, right", "atelectasis, left", "atelectasis", "effusion, right"], []),
        (["pneumonia, viral", "pneumonia, bacterial", "normal"], []),
        (["effusion|mass"], []),
        (["a|", ", b", ";", "|"], []),
        (["grade 1", "grade 2"], []),
    ],
)
def test_labels_that_name_several_findings(labels: Sequence[str], names: Sequence[str]) -> None:
    assert several_findings(labels, labels) == names


def test_parts_that_are_classes_of_the_federation_are_findings() -> None:
    assert several_findings(["effusion, mass"], CLASSES) == ["effusion, mass"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "site"
    folder.mkdir(parents=True)
    return folder


def table(site: Path, labels: Sequence[str], **fields: object) -> SiloData:
    write_table(site / "table.csv", ["image", "label"], list(zip(fill(site, len(labels)), labels, strict=True)))
    return SiloData.model_validate(
        {"format": "CsvManifest", "claim_name": "site", "manifest": "table.csv", **fields}, by_name=True
    )


def choose(section: SiloData, site: Path, *, labelled: bool = True) -> list[int]:
    return Pools().choose(section, site.parent, model_of(CLASSES).task, 1, labelled).labelled_listing().labels.tolist()


def test_a_run_does_not_begin_with_several_findings(site: Path) -> None:
    section = table(site, ["effusion", "mass", "effusion|mass", "effusion|mass"])
    with pytest.raises(
        AnchorageError, match=r"table\.csv: 2 images have labels such as .effusion.mass.: several"
    ) as caught:
        choose(section, site)
    assert caught.value.failure is TASK_UNSUPPORTED
    assert "Anchorage classifies one class per image; give each image one label" in caught.value.message
    report, _ = check(section, site.parent, model_of(CLASSES).task)
    assert {bad.reason for bad in report.bad} == {"SeveralFindings"} and len(report.bad) == 2
    assert "the task multiLabel learns them" in report.bad[0].detail


def test_several_findings_can_be_left_out_mapped_or_not_wanted(site: Path) -> None:
    labels = ["effusion", "mass", "effusion|mass"]
    skipping = table(site, labels, on_bad_image="Skip")
    assert check(skipping, site.parent, model_of(CLASSES).task)[0].usable == 2
    mapped = skipping.model_copy(update={"on_bad_image": "Refuse", "class_map": {"effusion|mass": "mass"}})
    assert choose(mapped, site) == [0, 1, 1]
    assert choose(mapped.model_copy(update={"class_map": {}}), site, labelled=False)[2] == -1


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("names", [("images", "masks"), ("Img", "Ground_Truth"), ("image", "labels", "more")])
def test_folders_of_images_and_masks_are_refused(site: Path, names: Sequence[str], labelled: bool) -> None:
    for name in names:
        fill(site / name, 2)
    section = SiloData(format="ImageFolder", claim_name="site")
    with pytest.raises(AnchorageError, match=f"folders {names[0]} and {names[1]}.*for masks set task") as caught:
        choose(section, site, labelled=labelled)
    assert caught.value.failure is TASK_UNSUPPORTED


def test_folders_that_are_classes_are_no_masks(site: Path) -> None:
    for name in ("image", "mask"):
        fill(site / name, 1)
    section = SiloData(format="ImageFolder", claim_name="site")
    assert Pools().choose(
        section, site.parent, model_of(("mask", "image")).task, 1
    ).labelled_listing().labels.tolist() == [1, 0]


def test_a_row_of_several_classes_is_told_so(site: Path) -> None:
    names = fill(site, 2)
    write_table(site / "table.csv", ["image", *CLASSES], [(names[0], 1, 1, 0), (names[1], 0, 1, 0)])
    section = SiloData(format="CsvManifest", claim_name="site", manifest="table.csv")
    (bad,) = check(section, site.parent, model_of(CLASSES).task)[0].bad
    assert bad.reason == "LabelAmbiguous" and "1,1,0: several findings per image are no single class" in bad.detail
