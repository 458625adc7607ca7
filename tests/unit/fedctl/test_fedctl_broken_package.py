"""A package that raises at import is named by the commands that need its pieces, and disturbs no other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fedctl.workdir import Workdir

DIGITS = Path(__file__).parents[3] / "examples" / "digits.yaml"
LOG = {"time": "2026-11-21T12:00:00.000+00:00", "level": "INFO", "message": "round committed"}


@pytest.fixture(params=["anchorage.pieces", "anchorage.methods"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return a folder with a package as `pip` lays it out, and a run that was begun."""
    (tmp_path / "acme.py").write_text('raise RuntimeError("no licence for 2026\\nsecond line")\n')
    metadata = tmp_path / "acme_methods-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-methods\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(f"[{request.param}]\nacme = acme:METHOD\n")
    named = {"anchorage.pieces": "FedAvg, weighting: {plugin: {name: acme.Own}}", "anchorage.methods": "Acme"}
    federation = yaml.safe_load(DIGITS.read_text().partition("---")[0])
    federation["spec"]["method"] = yaml.safe_load(f"{{name: {named[request.param]}}}")
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(federation) + "---" + DIGITS.read_text().partition("---")[2])
    run = Workdir(tmp_path / ".anchorage" / "digits")
    run.make()
    run.federation.write_text(DIGITS.read_text())
    run.log("server").write_text(json.dumps(LOG) + "\n")
    return tmp_path


def python(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    command = [sys.executable, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )


NEEDS = {
    "anchorage.pieces": [
        ("validate", "-f", "own.yaml"),
        ("run", "-f", "own.yaml"),
        ("methods", "describe", "acme.Own"),
    ],
    "anchorage.methods": [("validate", "-f", "own.yaml"), ("run", "-f", "own.yaml"), ("methods", "list")],
}


@pytest.mark.parametrize(("folder", "command"), [(g, c) for g in NEEDS for c in NEEDS[g]], indirect=["folder"])
def test_commands_that_need_pieces_name_the_package_in_one_line(folder: Path, command: tuple[object, ...]) -> None:
    done = python(folder, "-m", "fedctl.main", *command)
    assert done.returncode == 2 and done.stdout == ""
    message, more = done.stderr.splitlines()
    assert message.startswith("ANC-1111 PresetBroken: the package acme-methods 1.2 cannot be loaded")
    assert "RuntimeError: no licence for 2026; mend or uninstall it" in message
    assert more == "see fedctl explain ANC-1111"


def test_documents_without_its_pieces_are_read_without_it(folder: Path) -> None:
    done = python(folder, "-m", "fedctl.main", "validate", "-f", DIGITS)
    assert done.returncode == 0, done.stderr


OTHERS = ("status", "silos", "rounds", "events", "logs", "version", "explain ANC-1111", "status -o json")
IN_TURN = """
import json, sys
from typer.testing import CliRunner
from fedctl.main import app
done = [CliRunner().invoke(app, command.split()) for command in sys.argv[1:]]
print(json.dumps([(each.exit_code, each.stderr, each.stdout) for each in done]))
"""


def test_other_commands_do_not_import_it(folder: Path) -> None:
    done = python(folder, "-c", IN_TURN, *OTHERS)
    assert (done.returncode, done.stderr) == (0, "")
    answers = dict(zip(OTHERS, json.loads(done.stdout), strict=True))
    for command, (code, stderr, _) in answers.items():
        assert (code, stderr) == (0, ""), command
    assert json.loads(answers["status -o json"][2])["metadata"]["name"] == "digits"
