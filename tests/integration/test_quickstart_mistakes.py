"""Thirty and more ways to get docs/quickstart-your-images.md wrong: each is refused or warned of by name, with what to do, and no traceback."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from drawn_hospitals import SHAPES
from PIL import Image
from printed_pages import blocks

from fedctl.failures import ending
from fedctl.main import app

PAGE = "quickstart-your-images.md"
(INIT,) = blocks(PAGE, "Write the federation file", "sh")
CHECK, VALIDATE, RUN = "data check -f shapes.yaml --data-root data", "validate -f shapes.yaml", "run -f shapes.yaml"
DATA = Path("data")


@dataclass(frozen=True)
class Mistake:
    """One thing done wrong on the page's way."""

    make: Callable[[], object]
    """Does it, in the folder that holds `data` and `shapes.yaml`."""
    command: str
    """What the user types after `fedctl`."""
    status: int
    """The command's exit status; 0 where it warns."""
    words: str
    """What it says, among other words."""


def init(changed: str = "", into: str = "") -> str:
    """The page's first command, with a change, for another file."""
    script = INIT.replace("\\\n", " ").replace("shapes.yaml", "other.yaml")
    assert changed in script
    return " ".join(script.replace(changed, into).split()[1:])


def nothing() -> None:
    """The mistake is in the command."""


def edit(before: str, after: str) -> Callable[[], object]:
    """Write something else into the federation file."""

    def make() -> None:
        file = Path("shapes.yaml")
        text = file.read_text()
        assert before in text, text
        file.write_text(text.replace(before, after, 1))

    return make


def copied(source: str, target: str) -> Callable[[], object]:
    return lambda: shutil.copy(DATA / source, DATA / target)


def table(before: str, after: str) -> Callable[[], object]:
    """Change the table of hospital-c."""

    def make() -> None:
        file = DATA / "hospital-c" / "labels.csv"
        text = file.read_text()
        assert before in text
        file.write_text(text.replace(before, after))

    return make


def twice_as_large() -> None:
    """The same picture, stored anew: other bytes."""
    source = DATA / "server" / "test" / "cross" / "cross000.png"
    image = Image.open(source)
    image.resize((64, 64), Image.Resampling.NEAREST).save(DATA / "server" / "anchors" / "cross" / "large.png")


def only_documents() -> None:
    shutil.rmtree(DATA / "hospital-a")
    (DATA / "hospital-a").mkdir()
    (DATA / "hospital-a" / "scan.pdf").write_bytes(b"%PDF")


def masks() -> None:
    for name, new in (("Circles", "images"), ("Squares", "masks")):
        (DATA / "hospital-b" / name).rename(DATA / "hospital-b" / new)


def link_out() -> None:
    outside = Path("outside.png").absolute()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(outside)
    (DATA / "hospital-b" / "Circles" / "more.png").symlink_to(outside)


A = "--silo hospital-a=data/hospital-a"
MAP = "--class-map hospital-b:Crosses=cross"
FIRST_A, FIRST_C = DATA / "hospital-a" / "scans" / "a000.jpg", DATA / "hospital-c" / "img" / "c000.png"
LABELS = DATA / "hospital-c" / "labels.csv"
MISTAKES = {
    # the first command
    "a folder that is not there": Mistake(
        nothing, init("data/server/anchors", "data/server/anchor"), 3, "(anchors) is no folder; check the path"
    ),
    "anchors that are the test images": Mistake(
        nothing, init("data/server/anchors", "data/server/test"), 2, "test and anchors share images"
    ),
    "anchors around the test images": Mistake(
        nothing, init("data/server/anchors", "data/server"), 2, "validation and anchors share images"
    ),
    "parts of a data set as classes": Mistake(
        nothing,
        f"init --out other.yaml --silo a=data/server:labels {A}",
        3,
        "a has the folders anchors, test, validation",
    ),
    "a local name that nobody explains": Mistake(nothing, init(MAP), 3, "--class-map hospital-b:Crosses=CLASS"),
    "a map to a class that is none": Mistake(
        nothing, init(MAP, MAP.replace("=cross", "=star")), 2, "leads to star; the classes are circle, cross, square"
    ),
    "a map of a name that is not there": Mistake(
        nothing, init(MAP, f"{MAP} --class-map hospital-b:Star=cross"), 2, "found --class-map hospital-b:Star=cross"
    ),
    "two hospitals of one name": Mistake(
        nothing, init("hospital-a=data", "hospital-b=data"), 2, "two silos have the same name"
    ),
    "a hospital's name in capitals": Mistake(
        nothing, init("hospital-a=data", "Hospital_A=data"), 2, "lower-case letters, digits and dashes"
    ),
    "labels where a folder is no class": Mistake(
        nothing, init(A, f"{A}:labels"), 3, '"scans" of hospital-a (12 images)'
    ),
    "a column of labels by another name": Mistake(
        table("label,", "finding,"), init(), 3, "with --label-column hospital-c:COLUMN (finding, patient_id)"
    ),
    "a column of labels that is not there": Mistake(
        nothing,
        f"{init()} --label-column hospital-c:findings",
        3,
        'labels.csv has no column "findings"; it has image, label, patient_id',
    ),
    "a column of a folder without a table": Mistake(
        nothing, f"{init()} --label-column hospital-b:finding", 3, "leave --label-column hospital-b:finding out"
    ),
    "a column of labels of nobody": Mistake(
        nothing, f"{init()} --label-column hospital-d:finding", 2, "found --label-column hospital-d:finding"
    ),
    "one hospital without labels, and no anchors": Mistake(
        nothing, f"init --out other.yaml {A}", 2, "found no labels to learn from"
    ),
    "only documents": Mistake(only_documents, init(), 3, "1 .pdf); check path and manifest, or save the images"),
    "images beside their masks": Mistake(
        masks, init(MAP), 3, "data/hospital-b has the folders images and masks, which look like images and their masks"
    ),
    "several findings per image": Mistake(
        table("c000.png,CIRCLE", "c000.png,CIRCLE|SQUARE"), init(MAP), 3, "Anchorage classifies one class per image"
    ),
    "a table of other images": Mistake(table("\nc0", "\nscan-0"), init(), 3, "hospital-c (first: scan-0"),
    "one class alone": Mistake(
        nothing,
        "init --out other.yaml --silo hospital-a=data/hospital-a:labels",
        2,
        "other.yaml is not written, as it would not be valid: spec.task.classification.classes: found scans",
    ),
    "a file that is there already": Mistake(
        nothing, f"init --out shapes.yaml {A}", 2, "shapes.yaml is there already and is not overwritten"
    ),
    # images
    "an empty image": Mistake(lambda: FIRST_A.write_bytes(b""), CHECK, 3, "hospital-a: scans/a000.jpg: Empty: 0 bytes"),
    "an image cut short": Mistake(
        lambda: FIRST_A.write_bytes(FIRST_A.read_bytes()[:300]), CHECK, 3, "scans/a000.jpg: Damaged"
    ),
    "a PostScript program called .png": Mistake(
        lambda: FIRST_C.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0"), CHECK, 3, "c000.png: NotAnImage"
    ),
    "a link out of the folder": Mistake(
        link_out, CHECK, 3, "Circles/more.png: OutsideFolder: a link out of the claim's folder"
    ),
    "a training image among the test images": Mistake(
        copied("hospital-b/Circles/b000.tif", "server/test/circle/x.tif"),
        CHECK,
        3,
        "found 1 test image among the images of hospital-b, such as Circles/b000.tif",
    ),
    "an anchor among the validation images": Mistake(
        copied("server/anchors/cross/cross000.png", "server/validation/cross/x.png"),
        CHECK,
        3,
        "found 1 validation image among the images of anchors",
    ),
    "an anchor that looks like a test image": Mistake(
        twice_as_large, CHECK, 0, "1 pair of images that look the same, such as cross/large.png and cross/cross000.png"
    ),
    "an image under two classes": Mistake(
        copied("server/anchors/cross/cross000.png", "server/anchors/circle/y.png"),
        CHECK,
        0,
        "anchors: same image, other label: 1 times",
    ),
    "a folder that is no class": Mistake(
        lambda: (DATA / "hospital-b" / "Crosses").rename(DATA / "hospital-b" / "Stars"),
        CHECK,
        3,
        'the folder "Stars" is no class: mend it, or name its class in classMap',
    ),
    # a table
    "a row without its image": Mistake(lambda: FIRST_C.unlink(), CHECK, 3, "hospital-c: c000.png: Missing"),
    "another name of the labels' column": Mistake(
        table("label,", "finding,"), CHECK, 3, "the column that labelColumn names"
    ),
    "another name of a class": Mistake(
        table("CROSS", "STAR"), CHECK, 3, 'c002.png and 3 others: LabelOutsideClasses: the label "STAR" is no class'
    ),
    "a class as a number": Mistake(
        table("CROSS", "2"), CHECK, 3, 'the label "2" is no class: mend it, or name its class in classMap'
    ),
    "Latin-1": Mistake(
        lambda: LABELS.write_text(f"{LABELS.read_text()}\u00e9\n", encoding="latin-1"),
        CHECK,
        3,
        "labels.csv is no CSV file in UTF-8",
    ),
    "a spreadsheet called .csv": Mistake(
        lambda: LABELS.write_bytes(b"PK\x03\x04" + bytes(range(256))), CHECK, 3, "labels.csv is no CSV file in UTF-8"
    ),
    "an image listed twice": Mistake(
        table("c001.png", "c000.png"),
        CHECK,
        3,
        "c000.png and 1 others: LabelAmbiguous: the table lists it 2 times with different labels",
    ),
    # the file
    "nothing in it": Mistake(
        lambda: Path("shapes.yaml").write_text(""), VALIDATE, 2, "found no document with kind: Federation"
    ),
    "a map to a class that is none, by hand": Mistake(
        edit("Circles: circle", "Circles: circles"),
        VALIDATE,
        3,
        "classMap.Circles: found 'circles', did you mean circle? allowed are circle, cross, square, for 'Circles'",
    ),
    "a silo of another federation": Mistake(
        edit("federation: shapes", "federation: shape"), VALIDATE, 2, "allowed is 'shapes', the federation of this file"
    ),
    "a path out of its folder": Mistake(
        edit("path: anchors", "path: ../../etc"), VALIDATE, 2, "allowed is a path that stays below its folder"
    ),
    "a misspelt field": Mistake(
        edit("rounds: 250", "raunds: 250"),
        VALIDATE,
        2,
        "shapes.yaml:8: spec.raunds: found an unknown field, did you mean rounds?",
    ),
    "a misspelt method": Mistake(
        edit("name: FedAvgUDA", "name: FedAvgUDB"), VALIDATE, 2, "found 'FedAvgUDB', did you mean FedAvgUDA?"
    ),
    "a misspelt network": Mistake(
        edit("network: MoonCnn", "network: MonCnn"), VALIDATE, 2, "found 'MonCnn', did you mean MoonCnn?"
    ),
    "no rounds": Mistake(
        edit("rounds: 250", "rounds: 0"), VALIDATE, 2, "spec.rounds: found 0, allowed is a whole number"
    ),
    "a tab": Mistake(edit("  rounds: 250", "\trounds: 250"), VALIDATE, 2, "shapes.yaml:8: found character"),
    "a field twice": Mistake(
        edit("rounds: 250", "rounds: 250\n  rounds: 30"),
        VALIDATE,
        2,
        "spec.rounds: found a second time, first in line 8",
    ),
    "a class twice": Mistake(edit("classes: [circle,", "classes: [cross,"), VALIDATE, 2, "found cross more than once"),
    "a quorum of more silos than there are": Mistake(
        edit("minSilos: 3", "minSilos: 4"),
        VALIDATE,
        2,
        "found 4, but the federation has 3 silos; lower it, or add silos",
    ),
    "a method without use for unlabelled images": Mistake(
        nothing,
        f'{VALIDATE} --set spec.warmUp=[] --set spec.method={{"name":"FedAvg"}}',
        0,
        "warning: hospital-a: labels: None, and FedAvg learns from labelled images alone",
    ),
    "a tracking address without scheme": Mistake(
        edit("registeredModel: shapes}", "registeredModel: shapes, uri: mlflow:5000}"),
        VALIDATE,
        2,
        "allowed is a URI such as http://mlflow:5000",
    ),
    # other commands
    "an override of no field": Mistake(nothing, f"{VALIDATE} --set spec.round=4", 2, "did you mean rounds?"),
    "a data root that is not there": Mistake(
        nothing, f"{CHECK}a", 3, "server/anchors is no folder; check claimName, path and the data root"
    ),
    "an initial model that is not there": Mistake(
        nothing,
        f"{RUN} --data-root data --set spec.model.initial=best.safetensors",
        3,
        "best.safetensors is no file; check spec.model.initial",
    ),
    "a silo that is not there": Mistake(
        nothing, f"{CHECK} --silo hospital-d", 2, "found --silo hospital-d, allowed are"
    ),
    "a federation file that is not there": Mistake(
        nothing, "run -f shape.yaml", 2, "shape.yaml: No such file or directory"
    ),
    "the status before a run": Mistake(nothing, "status shapes", 2, "found no run of shapes"),
    "predictions before a run": Mistake(
        nothing, "predict -m shapes data/server/test/cross", 2, "shapes has no model.json and is no run"
    ),
    "an export over another file": Mistake(
        nothing, "model export -m shapes --format onnx --out shapes.yaml", 2, "is not overwritten; name another --out"
    ),
    "an export of no format": Mistake(nothing, "model export shapes --format pickle", 2, "pickle"),
    "a command that is none": Mistake(nothing, "trian -f shapes.yaml", 2, "No such command 'trian'"),
}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's folders, with few images."""
    place = tmp_path_factory.mktemp("hospitals")
    SHAPES.lay_out(place / "data", (2, 2, 3), 4)
    return place


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told(
    mistake: Mistake, drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(drawn, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)

    def fedctl(command: str) -> int:
        monkeypatch.setattr(sys, "argv", ["fedctl", *command.split()])
        return ending(app)

    assert fedctl(" ".join(INIT.replace("\\\n", " ").split()[1:])) == 0
    mistake.make()
    capsys.readouterr()
    status = fedctl(mistake.command)
    output = capsys.readouterr()
    assert status == mistake.status, output
    assert mistake.words in " ".join((output.out + output.err).split()), output
