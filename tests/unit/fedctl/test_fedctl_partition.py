"""``fedctl data partition``: bars in the terminal and in a picture, and a list that the recipe File reads."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from anchorage.api.errors import AnchorageError, commands
from fedctl.main import app

FEDERATION = """
apiVersion: anchorage.dev/v1alpha1
kind: Federation
metadata: {name: tiny}
spec:
  rounds: 1
  task: {classification: {classes: [a, b]}}
  model: {network: SmallCnn, imageSize: 8}
  method: {name: FedAvgSemi}
  anchorData: {DATA, use: Anchors, SERVER}
  evaluation: {validation: {DATA, use: Validation, SERVER}, test: {DATA, use: Test, SERVER}}
"""
SILO = """
---
apiVersion: anchorage.dev/v1alpha1
kind: Silo
metadata: {name: NAME}
spec:
  federation: tiny
  labels: LABELS
  managed: {data: {DATA, use: Part, labelledPercent: PERCENT, PARTITION}}
"""
DATA = "format: CsvManifest, claimName: site, manifest: table.csv"
SHARED = "testPercent: 20, validationPercent: 20, anchors: 4"
DRAWN = SHARED + ', partition: {recipe: ClassQuota, parts: 3, part: %d, classesPerPart: "2x1,1x2"}'


def fedctl(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def partition(*arguments: object) -> dict[str, Any]:
    result = fedctl("data", "partition", *arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    holders: dict[str, Any] = json.loads(result.output)
    return holders


def study(folder: Path, drawn: bool) -> Path:
    """Write a federation whose images are drawn, or taken from the list ``split.csv``."""
    listed = "partition: {recipe: File, file: split.csv}"
    text = FEDERATION.replace("SERVER", SHARED if drawn else "partitionFile: split.csv")
    for place, (name, labels, percent) in enumerate((("a", "All", 100), ("b", "None", 100), ("c", "Partial", 50))):
        partition = DRAWN % place if drawn else listed.replace("}", f", silo: {name}}}")
        silo = SILO.replace("NAME", name).replace("LABELS", labels).replace("PARTITION", partition)
        text += silo.replace("PERCENT", str(percent if drawn else 100))
    (folder / "study.yaml").write_text(text.replace("DATA", DATA))
    return folder / "study.yaml"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    site = tmp_path / "site"
    site.mkdir()
    (site / "table.csv").write_text("image,label\n" + "".join(f"i{row:02d},{'ab'[row % 2]}\n" for row in range(60)))
    return tmp_path


def test_a_list_that_is_written_is_a_partition_again(root: Path) -> None:
    drawn = partition("-f", study(root, True), "--write", root / "site" / "split.csv")
    assert [(name, held["images"], sum(held["labelled"])) for name, held in drawn.items()] == [
        ("anchors", 4, 4),
        ("validation", 10, 10),
        ("test", 12, 12),
        ("a", 12, 12),
        ("b", 11, 0),
        ("c", 11, 6),
    ]
    assert sum(count > 0 for count in drawn["b"]["counts"]) == 1
    listed = partition("-f", study(root, False))
    assert [held["images"] for held in listed.values()] == [held["images"] for held in drawn.values()]
    assert [held["counts"] for held in listed.values()] == [held["counts"] for held in drawn.values()]
    assert listed["c"]["labelled"] == drawn["c"]["labelled"]


@pytest.mark.parametrize(("name", "head"), [("bars.png", b"\x89PNG"), ("bars.svg", b"<?xml")])
def test_bars_are_drawn(name: str, head: bytes, root: Path) -> None:
    pytest.importorskip("matplotlib")
    partition("-f", study(root, True), "--plot", root / name)
    assert (root / name).read_bytes().startswith(head)


def test_a_bar_has_every_image_of_its_holder_and_labelled_ones_solid(root: Path, monkeypatch: Any) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    drawn: list[Any] = []
    monkeypatch.setattr(figures.Figure, "savefig", lambda figure, path: drawn.append(figure))
    holders = partition("-f", study(root, True), "--plot", root / "x.svg")
    (axes,) = drawn[0].axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(holders)
    for place, held in enumerate(holders.values()):
        bars = [bar for bar in axes.patches if round(bar.get_y() + bar.get_height() / 2) == place]
        assert sum(bar.get_width() for bar in bars) == held["images"]
        assert sum(bar.get_width() for bar in bars if bar.get_alpha() is None) == sum(held["labelled"])


def test_files_that_cannot_be_written_are_refused(root: Path) -> None:
    file = study(root, True)
    assert fedctl("data", "partition", "-f", file, "--plot", root / "x.pdf").exit_code == 2
    for option in ("--plot", "--write"):
        if option == "--plot":
            pytest.importorskip("matplotlib")
        caught = fedctl("data", "partition", "-f", file, option, root / "no" / "x.svg").exception
        assert isinstance(caught, AnchorageError) and caught.failure is commands.WORKDIR_UNUSABLE


def test_a_list_is_of_one_folder(root: Path) -> None:
    file = study(root, True)
    text = (
        file.read_text()
        .replace("use: Anchors, testPercent: 20", "use: All, onBadImage: Skip")
        .replace("Anchors", "All")
    )
    (root / "other").mkdir()
    (root / "other" / "table.csv").write_text("image,label\no,0\n")
    file.write_text(text.replace("claimName: site", "claimName: other", 1))
    result = fedctl("data", "partition", "-f", file, "--write", root / "x.csv")
    assert result.exit_code == 2 and not (root / "x.csv").exists()


def test_fast_and_slow_silos_take_sizes_in_turn(root: Path) -> None:
    """The largest part goes to the first kind of silo, the next one to the second, and so on."""
    quota_partition = "testPercent: 20, partition: {recipe: ClassQuota, parts: 2, part: %d, sizes: Skewed}"
    silos = [
        SILO.replace("NAME", name).replace("PARTITION", quota_partition % part)
        for part, name in enumerate(("fast", "slow"))
    ]
    scored = "evaluation: {test: {DATA, use: Test, testPercent: 20}}\n"
    text = FEDERATION.replace("use: Anchors, SERVER", "use: All").partition("evaluation")[0] + scored + "".join(silos)
    (root / "study.yaml").write_text(text.replace("LABELS", "All").replace("PERCENT", "100").replace("DATA", DATA))
    held = partition("-f", root / "study.yaml", "--silos", 4)
    assert {name: part["images"] for name, part in held.items() if name not in ("anchors", "test")} == {
        "fast-0": 19,
        "slow-1": 14,
        "fast-2": 10,
        "slow-3": 5,
    }


def test_a_field_that_a_recipe_does_not_read_is_told_of(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    place = "silo.spec.managed.data.partition."
    digits = Path(__file__).parents[3] / "examples" / "digits.yaml"
    output = fedctl(
        "data", "partition", "-f", digits, "--set", f"{place}recipe=Iid", "--set", f"{place}minSize=3"
    ).stderr
    assert output.splitlines() == [
        "partition.alpha is set, but Iid does not read it; PerClient, PerClass, PerClassCapped would",
        "partition.minSize is set, but Iid does not read it; PerClass, PerClassCapped would",
    ]
    assert fedctl("data", "partition", "-f", digits).stderr == ""


def test_a_long_tail_is_drawn_for_every_recipe_but_a_list(root: Path) -> None:
    factor = "silo.spec.managed.data.partition.imbalanceFactor=3"
    drawn = fedctl(
        "data", "partition", "-f", study(root, drawn=True), "--data-root", root, "--set", factor, "-o", "json"
    )
    holders = json.loads(drawn.stdout)
    assert [sum(holders[name]["counts"][c] for name in "abc") for c in (0, 1)] == [17, 5] and drawn.stderr == ""
    fedctl(
        "data", "partition", "-f", study(root, drawn=True), "--data-root", root, "--write", root / "site" / "split.csv"
    )
    listed = fedctl("data", "partition", "-f", study(root, drawn=False), "--data-root", root, "--set", factor)
    assert listed.exit_code == 0
    assert listed.stderr.startswith("partition.imbalanceFactor is set, but File does not read it; Iid, PerClient")
