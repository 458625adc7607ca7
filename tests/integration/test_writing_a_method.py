"""The worked example of docs/writing-a-method.md, a package of another author: its files are taken from the guide as they stand."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("sklearn")

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "writing-a-method.md"


def block(marker: str) -> str:
    """Return the guide's one Python block that holds `marker`."""
    found = [text for text in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL) if marker in text]
    assert len(found) == 1, marker
    return str(found[0])


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Lay the package out as `pip` would, and its test beside it."""
    folder = tmp_path_factory.mktemp("try")
    (folder / "balanced_dvw.py").write_text(block("BALANCED_DVW = Preset("))
    (folder / "test_balanced_dvw.py").write_text(block("import BALANCED_DVW"))
    metadata = folder / "balanced_dvw-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: balanced-dvw\nVersion: 0.1.0\n")
    (entry,) = re.findall(r"^balanced-dvw = .*$", GUIDE.read_text(), re.MULTILINE)
    (metadata / "entry_points.txt").write_text("[anchorage.methods]\n" + entry.replace('"', "") + "\n")
    return {**os.environ, "PYTHONPATH": str(folder), "FOLDER": str(folder)}


def run(environment: Mapping[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_own_test_passes(environment: Mapping[str, str]) -> None:
    file = f"{environment['FOLDER']}/test_balanced_dvw.py"
    assert "2 passed" in run(environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", file)


def test_fedctl_knows_it_and_it_trains(environment: Mapping[str, str], tmp_path: Path) -> None:
    assert "BalancedDvw" in run(environment, "-m", "fedctl.main", "methods", "describe", "BalancedDvw")
    sets = ["--set", "spec.method.name=BalancedDvw", "--set", "spec.rounds=1"]
    file = ["-f", "examples/fedavg-digits.yaml", "--workdir", str(tmp_path)]
    assert "accuracy" in run(environment, "-m", "fedctl.main", "simulate", *file, *sets, "-o", "json")
