"""The made files are in step with their sources, and the command that makes them touches nothing else."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import make_files
from makers import field_reference
from makers.markers import replace_between

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def made() -> tuple[Path, ...]:
    """Every file that is made, below the project's root."""
    return tuple(path.relative_to(ROOT) for path in make_files.wanted(ROOT))


@pytest.fixture
def checkout(tmp_path: Path, made: tuple[Path, ...]) -> Path:
    """A copy of everything that is made, in step."""
    for path in made:
        copy = tmp_path / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, copy)
    return tmp_path


def test_the_project_s_files_are_in_step() -> None:
    command = [sys.executable, ROOT / "tools" / "make_files.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_it_makes_a_file_of_every_kind(made: tuple[Path, ...]) -> None:
    names = {path.as_posix() for path in made}
    assert {"docs/federation.md", "docs/conditions.md", "docs/errors.md", "docs/methods/FedAvg.md"} <= names
    assert {"crds/silos.yaml", "cli/fedctl/definitions.json"} <= names
    assert {f"charts/anchorage/templates/crd-{kind}.yaml" for kind in ("federations", "silos")} <= names
    for chart in ("anchorage", "silo-agent"):
        assert {f"charts/{chart}/{name}" for name in ("values.yaml", "values.schema.json", "README.md")} <= names


def test_drift_is_told_and_left_and_then_mended(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edited, missing, left_over = (
        checkout / name for name in ("docs/errors.md", "docs/methods/FedAvg.md", "docs/methods/x.md")
    )
    edited.write_text("edited")
    missing.unlink()
    left_over.write_text("of a method that is no more")
    assert make_files.main(["--root", str(checkout), "--check"]) == 1
    output = capsys.readouterr().err
    assert output.count("make generate") == 3
    assert all(str(path) in output for path in (edited, missing, left_over))
    assert edited.read_text() == "edited"
    assert make_files.main(["--root", str(checkout)]) == 0
    assert make_files.main(["--root", str(checkout), "--check"]) == 0
    assert missing.is_file()
    assert not left_over.exists()


def test_what_is_written_by_hand_stays(checkout: Path) -> None:
    page = checkout / field_reference.PAGE
    marks = (field_reference.CHANGES_BEGIN, field_reference.CHANGES_END, field_reference.BEGIN, field_reference.END)
    page.write_text("before\n\n{}\nwhat it was\n{}\n\nbetween\n\n{}\nwhat it was\n{}\n\nafter\n".format(*marks))
    assert make_files.main(["--root", str(checkout)]) == 0
    text = page.read_text()
    assert text.startswith("before\n\n<!--")
    assert text.endswith("-->\n\nafter\n")
    assert "\n\nbetween\n\n" in text
    assert field_reference.changes() in text and field_reference.fields() in text
    assert "what it was" not in text


def test_a_page_without_its_marks_is_refused(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = checkout / field_reference.PAGE
    page.write_text("no marks")
    assert make_files.main(["--root", str(checkout)]) == 2
    assert "once each" in capsys.readouterr().err
    assert page.read_text() == "no marks"
    page.unlink()
    assert make_files.main(["--root", str(checkout)]) == 2


@pytest.mark.parametrize("text", ["none", "[", "][", "[][", "[]]"])
def test_each_mark_stands_once_and_in_order(text: str) -> None:
    with pytest.raises(ValueError, match="once each"):
        replace_between(text, "[", "]", "new")
