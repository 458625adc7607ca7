"""Where code of other authors is loaded in a federation of real processes: at silos in confined processes, and of a run that names it alone."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from outside_package import ROOT, documents, lay_out
from package_environment import environment_with

pytest.importorskip("sklearn")
pytestmark = pytest.mark.outside_package

MARK = """import os, sys, tempfile
from pathlib import Path

name = getattr(sys.modules["__main__"].__spec__, "name", "")
name = sys.argv[0] if name == "fedctl.shared_imports" else name
Path(tempfile.gettempdir(), f"acme-{os.getpid()}").write_text(name)
"""
"""A package that leaves the name of the program that imports it, in a file with the process id: of a confined one in its own folder.

A trainer that is forked calls itself by its first argument; the process that it is forked from is called by a path.
"""
AGENT, TRAINER = "anchorage_silo", "anchorage_silo.trainer"


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    """Lay the package out as `pip` would, and have processes that are not confined leave their marks in one folder."""
    for name in ("packages", "marks"):
        (tmp_path / name).mkdir()
    lay_out(tmp_path / "packages")
    (tmp_path / "packages" / "acme" / "__init__.py").write_text(MARK)
    return {**environment_with(tmp_path / "packages"), "TMPDIR": str(tmp_path / "marks")}


def python(environment: Mapping[str, str], folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def marks(folder: Path) -> set[str]:
    """Return the names of the programs that left marks below a folder."""
    return {file.read_text() for file in folder.rglob("acme-*")}


def test_agents_load_no_code_of_others_and_say_which_their_trainers_load(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "study.yaml").write_text(yaml.safe_dump_all(documents()))
    python(environment, tmp_path, "fedctl.main", "run", "-f", "study.yaml", "--no-compare", "--workdir", "run")
    unconfined = marks(tmp_path / "marks")
    assert "anchorage_server.__main__" in unconfined
    assert not {name for name in unconfined if name.startswith(AGENT) or "shared_imports" in name}
    agents = sorted((tmp_path / "run" / "silos").iterdir())
    assert len(agents) == 3
    for agent in agents:
        assert marks(agent) == {TRAINER}
        (log,) = agent.rglob("audit.jsonl")
        (join,) = (entry for entry in map(json.loads, log.read_text().splitlines()) if entry["kind"] == "join")
        assert join["packages"] == {"acme": "0.1.0"}
    silos = json.loads(python(environment, tmp_path, "fedctl.main", "silos", "--workdir", "run", "-o", "json"))
    assert [silo["packages"] for silo in silos] == [["acme 0.1.0"]] * 3
    shown = python(
        {**environment, "COLUMNS": "300"}, tmp_path, "fedctl.main", "silos", "--workdir", "run", "-o", "wide"
    )
    assert shown.count("acme 0.1.0") == 3


def test_a_run_that_names_no_piece_of_it_loads_it_nowhere(environment: Mapping[str, str], tmp_path: Path) -> None:
    federation, *silos = yaml.safe_load_all((ROOT / "examples" / "fedavg-digits.yaml").read_text())
    federation["spec"] |= {"rounds": 1, "method": {"name": "FedAvg", "local": {"epochs": 1}}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump_all([federation, *silos]))
    python(environment, tmp_path, "fedctl.main", "run", "-f", "study.yaml", "--no-compare", "--workdir", "run")
    assert marks(tmp_path / "marks") == marks(tmp_path / "run") == set()
    silos = json.loads(python(environment, tmp_path, "fedctl.main", "silos", "--workdir", "run", "-o", "json"))
    assert [silo["packages"] for silo in silos] == [[]] * 3
