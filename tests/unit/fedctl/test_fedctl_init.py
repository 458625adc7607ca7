"""``fedctl init``: from folders of images, as hospitals have them, to a file that validates and runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from drawn_folders import fill
from drawn_scans import CR, CT, MR, ULTRASOUND, write_dicom, write_nifti
from typer.testing import CliRunner, Result

from anchorage.api.errors import AnchorageError, Failure
from anchorage.api.errors import data as failures
from anchorage.api.errors.documents import LABELS_MISSING, WRONG_FORM
from anchorage.api.errors.silo import IMAGES_UNLABELLED
from anchorage.api.files import Study
from anchorage.learning.data import check
from anchorage.methods import validate_study
from anchorage.pieces.task.multi_label import MultiLabel
from fedctl.class_names import fold
from fedctl.main import app

SERVER = ("--anchors", "data/server/anchors", "--validation", "data/server/val", "--test", "data/server/test")


def table(folder: Path, labels: Mapping[str, str], name: str = "labels.csv", column: str = "diagnosis") -> None:
    """Write a table, and an image for each of its rows in a folder beside it."""
    fill(folder / "img", [""], len(labels))
    for image, file in zip(labels, sorted((folder / "img").glob("x0*.png")), strict=True):
        file.rename(folder / "img" / f"{image}.png")
    rows = [f"{image},{label}" for image, label in labels.items()]
    (folder / name).write_text("\n".join([f"image_id,{column}", *rows]) + "\n")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a coordinating site and three hospitals, each with its own layout."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data"
    for part in ("anchors", "val", "test"):
        fill(folder / "server" / part, ["NORMAL", "PNEUMONIA"])
    fill(folder / "hospital-a" / "images", ["normal", "Pneumonia"])
    fill(folder / "hospital-b", [""])
    table(folder / "hospital-c", {"c0": "normal", "c1": "pneumonia", "c2": "pneumonia", "c3": ""})
    return folder


def fedctl(*arguments: object, answers: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=answers)


def init(*arguments: object, answers: str | None = None) -> Study:
    result = fedctl("init", "--out", "xray.yaml", *arguments, answers=answers)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return validate_study(Path("xray.yaml"))


def refused(failure: Failure, *arguments: object) -> str:
    error = fedctl("init", "--out", "xray.yaml", *arguments).exception
    assert isinstance(error, AnchorageError) and error.failure is failure, error
    assert not Path("xray.yaml").exists()
    return error.message


def sections(study: Study) -> dict[str, tuple[str, str | None, str, str | None]]:
    silos = {silo.metadata.name: silo.spec.managed.data for silo in study.silos if silo.spec.managed}
    sections = {**study.federation.spec.server_data, **silos}
    return {name: (s.format, s.claim_name, s.path, s.manifest) for name, s in sections.items()}


def silo(name: str, folder: str, *, labels: bool = False) -> tuple[str, str]:
    return ("--silo", f"{name}=data/{folder}" + (":labels" if labels else ""))


UNLABELLED = (*silo("a", "hospital-a/images"), *silo("b", "hospital-b"), *silo("c", "hospital-c"))


def test_folders_of_every_layout_become_sections() -> None:
    study = init(*SERVER, *UNLABELLED)
    assert sections(study) == {
        "anchors": ("ImageFolder", "server", "anchors", None),
        "validation": ("ImageFolder", "server", "val", None),
        "test": ("ImageFolder", "server", "test", None),
        "a": ("ImageFolder", "hospital-a", "images", None),
        "b": ("ImageFolder", "hospital-b", ".", None),
        "c": ("CsvManifest", "hospital-c", ".", "labels.csv"),
    }
    spec = study.federation.spec
    assert study.federation.metadata.name == "xray" and spec.task.classes == ("NORMAL", "PNEUMONIA")
    assert (spec.method.name, spec.model.image_size, spec.model.channels) == ("FedAvgFixMatchAlternate", 16, 1)
    assert {silo.spec.labels for silo in study.silos} == {"None"}


def test_it_ends_with_the_commands_that_go_on() -> None:
    result = fedctl("init", "--out", "xray.yaml", *SERVER, *UNLABELLED)
    assert "xray.yaml: valid: federation xray, FedAvgFixMatchAlternate" in result.stdout
    assert result.stdout.splitlines()[-2:] == [
        "  fedctl data check -f xray.yaml --data-root data",
        "  fedctl run -f xray.yaml --data-root data",
    ]
    assert fedctl("data", "check", "-f", "xray.yaml", "--data-root", "data").exit_code == 0


@pytest.mark.parametrize(
    ("silos", "method", "labels"),
    [
        (UNLABELLED, "FedAvgFixMatchAlternate", ["None", "None", "None"]),
        (
            (*silo("a", "hospital-a/images", labels=True), *silo("v", "server/val", labels=True)),
            "FedAvg",
            ["All", "All"],
        ),
        ((*silo("a", "hospital-a/images", labels=True), *silo("b", "hospital-b")), "FedAvgUDA", ["All", "None"]),
        ((*silo("c", "hospital-c", labels=True),), "FedAvgUDA", ["Partial"]),
    ],
)
def test_the_method_suits_where_the_labels_are(silos: Sequence[str], method: str, labels: Sequence[str]) -> None:
    study = init("--anchors", "data/server/anchors", *silos)
    assert study.federation.spec.method.name == method
    assert [silo.spec.labels for silo in study.silos] == labels


@pytest.mark.parametrize(
    "silos", [UNLABELLED, (*silo("a", "hospital-a/images", labels=True), *silo("b", "hospital-b"))]
)
def test_what_it_writes_runs(silos: Sequence[str]) -> None:
    init(*SERVER, *silos)
    text = Path("xray.yaml").read_text()
    for long, short in (
        ("rounds: 250", "rounds: 2"),
        ("rounds: 60", "rounds: 1"),
        ("pretrainSteps: 1000", "pretrainSteps: 1"),
    ):
        text = text.replace(long, short)
    Path("xray.yaml").write_text(text)
    result = fedctl("simulate", "-f", "xray.yaml", "--data-root", "data", "--set", "spec.rounds=2", "--device", "cpu")
    assert result.exit_code == 0, result.output + repr(result.exception)


def test_names_spelt_alike_are_mapped_and_shown() -> None:
    study = init(*SERVER, *silo("a", "hospital-a/images", labels=True), *silo("c", "hospital-c", labels=True))
    maps = [silo.spec.managed.data.class_map for silo in study.silos if silo.spec.managed]
    assert maps[0] == {"normal": "NORMAL", "Pneumonia": "PNEUMONIA"}
    assert maps[1] == {"normal": "NORMAL", "pneumonia": "PNEUMONIA"}
    assert "a wrong one trains on wrong labels" in Path("xray.yaml").read_text()


@pytest.mark.parametrize(
    "names", [("no tumour", "No_Tumor"), ("naevus", "Nevus"), ("Gliomas", "glioma"), ("Ménière", "meniere")]
)
def test_spellings_of_one_word_are_alike(names: tuple[str, str]) -> None:
    assert fold(names[0]) == fold(names[1])


@pytest.mark.parametrize(
    "names",
    [("typical", "atypical"), ("grade 1", "grade 2"), ("pneumonia", "no pneumonia"), ("0", "1"), ("hypo", "hyper")],
)
def test_other_words_are_not(names: tuple[str, str]) -> None:
    assert fold(names[0]) != fold(names[1])


def test_other_names_are_refused_with_the_option_that_maps_them(data: Path) -> None:
    (data / "hospital-a" / "images" / "normal").rename(data / "hospital-a" / "images" / "healthy")
    options = (*SERVER, *silo("a", "hospital-a/images", labels=True))
    message = refused(failures.CLASSES_DIFFER, *options)
    assert '"healthy" of a (4 images): spelt like none of the classes NORMAL, PNEUMONIA' in message
    assert "--class-map a:healthy=CLASS" in message and "--classes NORMAL,PNEUMONIA,healthy" in message
    study = init(*options, "--class-map", "a:healthy=NORMAL")
    assert study.silos[0].spec.managed is not None
    assert study.silos[0].spec.managed.data.class_map == {"healthy": "NORMAL", "Pneumonia": "PNEUMONIA"}


def test_classes_are_named_and_ordered_by_the_option() -> None:
    study = init("--classes", "pneumonia, normal", *SERVER, *UNLABELLED)
    assert study.federation.spec.task.classes == ("pneumonia", "normal")
    assert study.federation.spec.server_data["anchors"].class_map == {"NORMAL": "normal", "PNEUMONIA": "pneumonia"}


def test_names_that_yaml_reads_as_something_else_stay_text(data: Path) -> None:
    names = ["08", "1e5", "no", "a: b #c", "ä"]
    fill(data / "odd", names)
    study = init("--anchors", "data/odd", *silo("b", "hospital-b"))
    assert sorted(study.federation.spec.task.classes) == sorted(names)


def test_a_folder_whose_name_is_no_claim_goes_into_the_path(data: Path) -> None:
    (data / "hospital-b").rename(data / "Clinic 2024")
    study = init(*SERVER, *silo("b", "Clinic 2024"))
    assert sections(study)["b"] == ("ImageFolder", "data", "Clinic 2024", None)
    assert sections(study)["anchors"] == ("ImageFolder", "data", "server/anchors", None)


def test_colours_and_large_images_decide_the_model(data: Path) -> None:
    fill(data / "derm", ["a", "b"], mode="RGB", side=200)
    fill(data / "derm2", [""], mode="RGB", side=200)
    model = init("--anchors", "data/derm", *silo("d", "derm2")).federation.spec.model
    assert (model.channels, model.image_size) == (3, 64)


def test_a_column_of_labels_by_another_name_is_named(data: Path) -> None:
    table(data / "hospital-c", {"c0": "normal", "c1": "pneumonia"}, column="finding")
    study = init(*SERVER, *silo("c", "hospital-c", labels=True), "--label-column", "c:finding")
    assert study.silos[0].spec.managed is not None
    assert study.silos[0].spec.managed.data.label_column == "finding" and study.silos[0].spec.labels == "All"


@pytest.mark.parametrize("role", ["anchors", "validation", "test"])
def test_images_of_the_server_need_labels(data: Path, role: str) -> None:
    table(data / "set", {"s0": "normal", "s1": "pneumonia"}, column="Diagnose")
    fill(data / "sorted", ["normal", "pneumonia"])
    arguments = ["--silo", "s=data/sorted:labels", f"--{role}", "data/set", *silo("b", "hospital-b")]
    message = refused(LABELS_MISSING, *arguments)
    assert f"none of the 2 images of {role} has a label" in message and f"--label-column {role}:COLUMN" in message
    init(*arguments, "--label-column", f"{role}:Diagnose")


def test_a_column_that_divides_a_table_counts(data: Path) -> None:
    table(data / "hospital-c", {"c0": "normal", "c1": "pneumonia"})
    file = data / "hospital-c" / "labels.csv"
    head, *rows = file.read_text().splitlines()
    parts = ("train", "test")
    file.write_text(
        "\n".join([f"{head},split", *(f"{row},{part}" for row, part in zip(rows, parts, strict=True))]) + "\n"
    )
    study = init(*SERVER, *silo("c", "hospital-c", labels=True))
    assert study.silos[0].spec.managed is not None
    assert study.silos[0].spec.managed.data.split_column == "split"


@pytest.mark.parametrize("place", ["mnist", "mnist/pneumoniamnist.npz"])
def test_a_data_set_of_medmnist_is_a_site(data: Path, place: str) -> None:
    (data / "mnist").mkdir()
    arrays = {
        f"{part}_images": np.random.default_rng(0).integers(0, 256, (4, 28, 28), np.uint8)
        for part in ("train", "val", "test")
    }
    labels = {f"{part}_labels": np.array([[0], [1], [0], [1]], np.uint8) for part in ("train", "val", "test")}
    np.savez(data / "mnist" / "pneumoniamnist.npz", **arrays, **labels)
    study = init(*SERVER, *silo("m", place, labels=True))
    assert study.silos[0].spec.managed is not None
    section = study.silos[0].spec.managed.data
    assert (section.format, section.claim_name, section.manifest) == ("MedMnist", "mnist", "pneumoniamnist.npz")
    Path("xray.yaml").unlink()
    named = (*SERVER, *silo("m", place, labels=True), "--label-column", "m:finding")
    assert "has no table of images" in refused(failures.DATA_MISSING, *named)
    np.savez(data / "mnist" / "second.npz", **arrays, **labels)
    if place == "mnist":
        message = refused(failures.DATA_MISSING, *SERVER, *silo("m", place, labels=True))
        assert "several data sets: pneumoniamnist.npz, second.npz" in message


def test_what_is_missing_is_said_in_the_file() -> None:
    init("--anchors", "data/server/anchors", *UNLABELLED)
    text = Path("xray.yaml").read_text()
    assert "# evaluation: without images of the server no round is scored." in text
    assert "validation: missing; the best model is then the last one" in text and "test: missing;" in text


def test_an_existing_file_is_never_overwritten() -> None:
    Path("xray.yaml").write_text("mine")
    result = fedctl("init", "--out", "xray.yaml", *SERVER, *UNLABELLED)
    assert result.exit_code == 2 and "is not overwritten; name another file with --out" in result.output.replace(
        "\n", " "
    )
    assert Path("xray.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "failure", "words"),
    [
        (silo("b", "hospital-b"), LABELS_MISSING, ["--anchors DIR", "NAME=DIR:labels"]),
        (silo("b", "hospital-b", labels=True), IMAGES_UNLABELLED, ["none of its 4 images", "folder per class"]),
        (silo("b", "nowhere"), failures.DATA_MISSING, ["nowhere (b) is no folder"]),
        ((*SERVER, *silo("b", "dicom")), failures.NO_IMAGES, ["1 DICOMDIR"]),
        ((*SERVER, *silo("b", "tables")), failures.DATA_MISSING, ["labels.csv, more.csv", "name one"]),
        (
            ("--anchors", "data/kaggle", *silo("b", "hospital-b")),
            failures.CLASSES_DIFFER,
            ["test, train", "no classes"],
        ),
    ],
)
def test_folders_that_do_not_do_are_refused_by_name(
    data: Path, options: Sequence[str], failure: Failure, words: Sequence[str]
) -> None:
    (data / "dicom").mkdir()
    (data / "dicom" / "DICOMDIR").write_bytes(b"x")
    table(data / "tables", {"t0": "normal"})
    (data / "tables" / "more.csv").write_text("image_id,dx\nt0,normal\n")
    fill(data / "kaggle", ["train/NORMAL", "test/NORMAL"])
    message = refused(failure, *options)
    assert all(word in message for word in words), message


def test_what_is_not_valid_is_not_written_and_blocks_no_second_try(data: Path) -> None:
    fill(data / "one", ["NORMAL"])
    message = refused(WRONG_FORM, *silo("a", "one", labels=True))
    assert message == (
        "xray.yaml is not written, as it would not be valid: "
        "spec.task.classification.classes: found NORMAL, allowed are at least 2 classes"
    )
    fill(data / "one", ["PNEUMONIA"])
    init(*silo("a", "one", labels=True))


def labelled(folder: Path, labels: Sequence[str]) -> None:
    """Write a table of images with these labels, which may hold commas."""
    table(folder, {f"t{row}": f'"{label}"' for row, label in enumerate(labels)})


@pytest.mark.parametrize("mark", ["|", ";", ", "])
def test_labels_that_list_findings_are_of_the_task_multi_label(data: Path, mark: str) -> None:
    labels = ["mass", "edema", f"mass{mark}edema", "healthy"]
    labelled(data / "hospital-d", labels)
    study = init(*silo("d", "hospital-d", labels=True))
    assert study.federation.spec.task == MultiLabel(labels=("edema", "mass"))
    section = study.silos[0].spec.managed.data
    assert section.label_separator == mark.strip() and section.no_finding == ("healthy",)
    report, _ = check(section, data, study.federation.spec.task)
    assert report.findings == {"edema": (2, 2, 0, 0), "mass": (2, 2, 0, 0)}
    Path("xray.yaml").unlink()
    study = init(*silo("d", "hospital-d", labels=True), "--class-map", f"d:{labels[2]}=mass")
    assert study.federation.spec.task.classes == ("edema", "healthy", "mass")


def test_class_names_with_commas_are_no_several_findings(data: Path) -> None:
    labelled(data / "hospital-d", ["atelectasis, right", "atelectasis, left", "effusion", "atelectasis, right"])
    classes = init(*silo("d", "hospital-d", labels=True)).federation.spec.task.classes
    assert classes == ("atelectasis, left", "atelectasis, right", "effusion")


@pytest.mark.parametrize("cells", ["1,1,0,1", "1,0,-1,0"])
def test_columns_of_findings_are_of_the_task_multi_label(data: Path, cells: str) -> None:
    fill(data / "hospital-d", [""], 3)
    rows = [f"{file.stem},{cells}" for file in sorted((data / "hospital-d").glob("*.png"))]
    (data / "hospital-d" / "labels.csv").write_text("\n".join(["image,mass,edema,nodule,sex", *rows]) + "\n")
    study = init(*silo("d", "hospital-d", labels=True))
    assert study.federation.spec.task == MultiLabel(labels=("mass", "edema", "nodule"))
    assert study.silos[0].spec.managed.data.label_columns == ("mass", "edema", "nodule")
    assert study.silos[0].spec.labels == "All"


def test_classes_that_were_asked_for_have_no_several_findings(data: Path) -> None:
    fill(data / "hospital-d", [""], 3)
    rows = [f"{file.stem},1,1,0" for file in sorted((data / "hospital-d").glob("*.png"))]
    (data / "hospital-d" / "labels.csv").write_text("\n".join(["image,mass,edema,nodule", *rows]) + "\n")
    message = refused(
        failures.TASK_UNSUPPORTED, *silo("d", "hospital-d", labels=True), "--classes", "mass,edema,nodule"
    )
    assert "hold 6 ones for 3 images: several findings" in message and "--label-column d:" in message


@pytest.mark.parametrize("labels", [True, False])
def test_folders_of_images_and_masks_are_refused(data: Path, labels: bool) -> None:
    fill(data / "hospital-d", ["images", "masks"])
    message = refused(failures.TASK_UNSUPPORTED, *SERVER, *silo("d", "hospital-d", labels=labels))
    assert "the folders images and masks" in message and "for masks set task: {segmentation" in message


UNMATCHED = "image,label\nscan-1.jpg,NORMAL\nscan-2.jpg,PNEUMONIA\n"


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("place", ["hospital-b", "hospital-b/labels.csv"])
def test_a_table_of_images_that_are_not_there_is_refused(data: Path, place: str, labels: bool) -> None:
    (data / "hospital-b" / "labels.csv").write_text(UNMATCHED)
    message = refused(failures.DATA_MISSING, *SERVER, *silo("b", place, labels=labels))
    assert 'labels.csv (b): none of its 2 names in the column "image" is an image below' in message
    assert "(first: scan-1.jpg); correct the names" in message


def test_beside_folders_of_classes_such_a_table_is_warned_of(data: Path) -> None:
    (data / "hospital-a" / "images" / "labels.csv").write_text(UNMATCHED)
    result = fedctl("init", "--out", "xray.yaml", *silo("a", "hospital-a/images", labels=True))
    assert result.exit_code == 0 and "none of its 2 names" in result.stderr and "folders' names" in result.stderr
    assert sections(validate_study(Path("xray.yaml")))["a"][0] == "ImageFolder"


@pytest.mark.parametrize(
    "content",
    ["id,age,sex\np1,60,f\np2,71,m\n", "field,meaning\nage,in years\n", "patient_id,diagnosis\np1,NORMAL\n", "image\n"],
    ids=["patients", "a description", "diagnoses of patients", "a header alone"],
)
def test_tables_that_name_no_images_are_passed_over(data: Path, content: str) -> None:
    (data / "hospital-b" / "metadata.csv").write_text(content)
    result = fedctl("init", "--out", "xray.yaml", *SERVER, *silo("b", "hospital-b"))
    assert result.exit_code == 0 and "metadata.csv" not in result.output, result.output
    assert sections(validate_study(Path("xray.yaml")))["b"][0] == "ImageFolder"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--silo", "Hospital_B=data/hospital-b"), "NAME=DIR"),
        (("--silo", "data/hospital-b"), "NAME=DIR"),
        (("--silo", "test=data/hospital-b"), "images of the server"),
        ((*SERVER, *UNLABELLED, *silo("a", "hospital-b")), "same name"),
        ((*SERVER, *silo("a", "server/test")), "share images"),
        ((*SERVER, *silo("a", "server")), "share images"),
        ((*SERVER, *UNLABELLED, "--class-map", "a:nothing=NORMAL"), "ROLE:LOCAL=CLASS"),
        ((*SERVER, *UNLABELLED, "--class-map", "anchors:NORMAL=x", "--classes", "NORMAL,b"), "--class-map leads to x"),
    ],
)
def test_options_without_meaning_are_refused(options: Sequence[str], words: str) -> None:
    result = fedctl("init", "--out", "xray.yaml", *options)
    assert result.exit_code == 2 and not Path("xray.yaml").exists()
    assert words in " ".join(result.output.replace("│", " ").split())


def test_the_interview_asks_for_what_no_option_says(data: Path) -> None:
    (data / "hospital-a" / "images" / "normal").rename(data / "hospital-a" / "images" / "healthy")
    fill(data / "hospital-a" / "images", ["COVID"])
    table(data / "hospital-d", {"d0": "NORMAL", "d1": "PNEUMONIA"}, column="finding")
    answers = [
        "",  # file: the default
        "data/nowhere",  # anchors: asked again
        "data/server/anchors",
        "",  # no validation images
        "data/server/test",
        "Hospital A",  # no name that a silo can have
        "data/hospital-a/images",
        "y",
        "hospital-a",
        "data/hospital-a/images",
        "y",
        "hospital-b",
        "data/hospital-b",
        "n",
        "hospital-d",
        "data/hospital-d",
        "y",
        "",  # no more silos
        "findings",  # no column of its table: asked again
        "finding",
        "PNEUMONIA, NORMAL",  # classes, in another order
        "",  # COVID: a class of its own
        "NORMAL",  # healthy
    ]
    result = fedctl("init", answers="\n".join(answers) + "\n")
    assert result.exit_code == 0, result.output
    study = validate_study(Path("federation.yaml"))
    assert study.federation.spec.task.classes == ("PNEUMONIA", "NORMAL", "COVID")
    assert [(silo.metadata.name, silo.spec.labels) for silo in study.silos] == [
        ("hospital-a", "All"),
        ("hospital-b", "None"),
        ("hospital-d", "All"),
    ]
    assert study.silos[0].spec.managed is not None
    assert study.silos[0].spec.managed.data.class_map == {"Pneumonia": "PNEUMONIA", "healthy": "NORMAL"}
    assert set(study.federation.spec.server_data) == {"anchors", "test"}
    assert "warning: anchors has no image of COVID" in result.stderr


@pytest.mark.parametrize(
    ("kind", "modality", "intensity"),
    [(CT, "CT", "window"), (CR, "DX", "dicomWindow"), (MR, "MR", "zScore"), (ULTRASOUND, "US", None)],
)
def test_a_pacs_export_becomes_a_section_of_dicom_and_an_intensity(
    data: Path, kind: str, modality: str, intensity: str | None
) -> None:
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 4000, (24, 20)).astype(np.uint16)
        file = data / "pacs" / f"P{number}" / "ST1" / f"I{number}"
        write_dicom(file, pixels, SOPClassUID=kind, Modality=modality, BurnedInAnnotation="NO")
    study = init(*SERVER, *silo("b", "pacs"))
    (member,) = study.silos
    assert member.spec.managed is not None and member.spec.managed.data.format == "DicomFolder"
    chosen_intensity = study.federation.spec.model.intensity
    assert (chosen_intensity and chosen_intensity.name) == intensity


def test_an_export_below_folders_of_classes_is_labelled_by_them(data: Path) -> None:
    for number in range(4):
        pixels = np.random.default_rng(number).integers(0, 4000, (24, 20)).astype(np.uint16)
        write_dicom(
            data / "pacs" / ("NORMAL" if number % 2 else "PNEUMONIA") / f"P{number}" / "ST1" / f"I{number}", pixels
        )
    study = init(*silo("b", "pacs", labels=True))
    assert study.federation.spec.task.label_names == ("NORMAL", "PNEUMONIA")
    (member,) = study.silos
    assert member.spec.managed is not None and member.spec.managed.data.format == "DicomFolder"


def test_volumes_in_class_folders_get_an_intensity_without_a_unit(data: Path) -> None:
    for number in range(4):
        volume = np.random.default_rng(number).normal(900, 80, (12, 12, 3)).astype(np.float32)
        write_nifti(data / "heads" / ("NORMAL" if number % 2 else "PNEUMONIA") / f"{number}.nii.gz", volume)
    study = init(*silo("b", "heads", labels=True))
    assert study.federation.spec.model.intensity is not None
    assert (study.federation.spec.model.intensity.name, study.federation.spec.model.channels) == ("zScore", 1)
