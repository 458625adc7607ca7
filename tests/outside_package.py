"""The package of another author that docs/writing-a-method.md describes: its files are taken from the guide as they stand."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "writing-a-method.md"
MODULES = {
    "trimmed_mean": "class TrimmedMean",
    "hard_classes": "class HardClasses",
    "margin": "class Margin",
    "two_convolutions": "class TwoConvolutions",
    "balanced_dvw": "BALANCED_DVW = Preset(",
}


def block(marker: str, language: str = "python") -> str:
    """Return the guide's one block of a language that holds `marker`."""
    found = [text for text in re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL) if marker in text]
    assert len(found) == 1, marker
    return str(found[0])


def lay_out(folder: Path) -> None:
    """Lay the package out in a folder as `pip` would."""
    (folder / "acme").mkdir()
    (folder / "acme" / "__init__.py").touch()
    for module, marker in MODULES.items():
        (folder / "acme" / f"{module}.py").write_text(block(marker))
    metadata = folder / "acme-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(_entries("anchorage.pieces") + "\n" + _entries("anchorage.methods"))


def documents() -> list[dict[str, Any]]:
    """Return the digits example, a federation and its silos, with the guide's pieces in it."""
    own = yaml.safe_load(block("acme.TwoConvolutions", "yaml"))["spec"]
    federation, *silos = yaml.safe_load_all((ROOT / "examples" / "fedavg-digits.yaml").read_text())
    federation["spec"] |= {"method": own["method"] | {"local": {"epochs": 1}}, "rounds": 2}
    federation["spec"]["model"] |= own["model"]
    return [federation, *silos]


def documents_of_pseudo_labels() -> list[dict[str, Any]]:
    """Return the digits example, whose silos have no labels, with the guide's pseudo-labeller."""
    method = yaml.safe_load(block("pseudoLabels: {plugin: {name: acme.Margin", "yaml"))["spec"]["method"]
    federation, *silos = yaml.safe_load_all((ROOT / "examples" / "digits.yaml").read_text())
    federation["spec"] |= {"method": method | {"local": {"epochs": 1}}, "rounds": 2}
    return [federation, *silos]


def _entries(group: str) -> str:
    """Return an entry-point table of the guide as an installed package has it."""
    lines = block(f'entry-points."{group}"', "toml").partition(f'entry-points."{group}"]\n')[2]
    return f"[{group}]\n" + lines.replace('"', "")
