"""The packages of another author that docs/writing-a-method.md and docs/writing-a-task.md describe: their files are taken from the guides as they
stand.
"""

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from anchorage.api.piece import PIECES
from anchorage.pieces.slots import ImageTask

ROOT = Path(__file__).parents[2]
GUIDE, TASK_GUIDE = ROOT / "docs" / "writing-a-method.md", ROOT / "docs" / "writing-a-task.md"
MODULES = {
    "trimmed_mean": "class TrimmedMean",
    "hard_classes": "class HardClasses",
    "margin": "class Margin",
    "two_convolutions": "class TwoConvolutions",
    "balanced_dvw": "BALANCED_DVW = Preset(",
}


TASK_MODULES = {"regression": "class Regression", "numbers": "class NumberReader"}


def block(marker: str, language: str = "python", guide: Path = GUIDE) -> str:
    """Return a guide's one block of a language that holds `marker`."""
    blocks = [text for text in re.findall(rf"```{language}\n(.*?)```", guide.read_text(), re.DOTALL) if marker in text]
    assert len(blocks) == 1, marker
    return str(blocks[0])


def lay_out(folder: Path) -> None:
    """Lay the packages out in a folder as `pip` would."""
    (folder / "acme").mkdir()
    (folder / "acme" / "__init__.py").touch()
    for guide, modules in ((GUIDE, MODULES), (TASK_GUIDE, TASK_MODULES)):
        for module, marker in modules.items():
            (folder / "acme" / f"{module}.py").write_text(block(marker, guide=guide))
    of_methods = _entries("anchorage.pieces", GUIDE) + "\n" + _entries("anchorage.methods", GUIDE)
    for name, entries in (("acme", of_methods), ("acme_tasks", _entries("anchorage.pieces", TASK_GUIDE))):
        metadata = folder / f"{name}-0.1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
        (metadata / "entry_points.txt").write_text(entries)


def load_regression(folder: Path, monkeypatch: pytest.MonkeyPatch) -> type[ImageTask]:
    """Register the task of the guide in this process, until the test is over.

    Parameters
    ----------
    folder : Path
        Where the packages are laid out; it is empty.
    monkeypatch : MonkeyPatch
        The test's.
    """
    PIECES.of("task")  # every package is loaded
    monkeypatch.setattr(PIECES, "_pieces", dict(PIECES._pieces))
    lay_out(folder)
    monkeypatch.syspath_prepend(folder)
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        monkeypatch.delitem(sys.modules, name)
    task: type[ImageTask] = import_module("acme.regression").Regression
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        monkeypatch.delitem(sys.modules, name)  # the next test's folder is another one
    return task


def documents() -> list[dict[str, Any]]:
    """Return the digits example, a federation and its silos, with the guide's pieces in it."""
    spec = yaml.safe_load(block("acme.TwoConvolutions", "yaml"))["spec"]
    federation, *silos = yaml.safe_load_all((ROOT / "examples" / "fedavg-digits.yaml").read_text())
    federation["spec"] |= {"method": spec["method"] | {"local": {"epochs": 1}}, "rounds": 2}
    federation["spec"]["model"] |= spec["model"]
    return [federation, *silos]


def documents_of_pseudo_labels() -> list[dict[str, Any]]:
    """Return the digits example, whose silos have no labels, with the guide's pseudo-labeller."""
    method = yaml.safe_load(block("pseudoLabels: {plugin: {name: acme.Margin", "yaml"))["spec"]["method"]
    federation, *silos = yaml.safe_load_all((ROOT / "examples" / "digits.yaml").read_text())
    federation["spec"] |= {"method": method | {"local": {"epochs": 1}}, "rounds": 2}
    return [federation, *silos]


def documents_of_regression() -> list[dict[str, Any]]:
    """Return the digits example with the guide's task: how large the digit is."""
    task = yaml.safe_load(block("acme.Regression", "yaml", TASK_GUIDE))["spec"]["task"]
    task["plugin"]["options"] = {"quantity": "digit", "mean": "4.5", "deviation": "3"}
    federation, *silos = yaml.safe_load_all((ROOT / "examples" / "fedavg-digits.yaml").read_text())
    federation["spec"] |= {"task": task, "method": {"name": "FedAvg", "local": {"epochs": 1}}, "rounds": 2}
    return [federation, *silos]


def _entries(group: str, guide: Path) -> str:
    """Return an entry-point table of a guide as an installed package has it."""
    lines = block(f'entry-points."{group}"', "toml", guide).partition(f'entry-points."{group}"]\n')[2]
    return f"[{group}]\n" + lines.replace('"', "")
