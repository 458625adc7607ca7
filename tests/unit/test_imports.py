"""The product uses other packages by what they document: it imports no private module or name of theirs."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "core/anchorage",
    "server/anchorage_server",
    "operator/anchorage_operator",
    "silo_agent/anchorage_silo",
    "cli/fedctl",
)
PRODUCT = [ROOT / folder for folder in FOLDERS]
OWN_PACKAGES = {folder.name for folder in PRODUCT}


def private_imports(source: str) -> list[str]:
    """Return what a module imports of other packages' private modules and names, as ``module`` or ``module.name``."""
    imported = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in imported if name.split(".")[0] not in OWN_PACKAGES | {"__future__"} and is_private(name)]


def is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


@pytest.mark.parametrize("package", PRODUCT, ids=lambda folder: folder.name)
def test_no_private_module_of_another_package_is_imported(package: Path) -> None:
    files = sorted(file for file in package.rglob("*.py") if "_pb2" not in file.name)
    assert files
    imports_by_file = {str(file.relative_to(ROOT)): private_imports(file.read_text()) for file in files}
    assert {file: names for file, names in imports_by_file.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from kopf._core.engines.peering import Identity", ["kopf._core.engines.peering.Identity"]),
        ("def f():\n    import torch._dynamo as d", ["torch._dynamo"]),
        ("from numpy import _core", ["numpy._core"]),
        ("import torch, _thread", ["_thread"]),
        ("from PIL import __version__", []),
        ("from __future__ import annotations\nfrom anchorage._x import y\nfrom . import _z\nimport torch.nn", []),
    ],
)
def test_private_imports_are_found(source: str, expected: list[str]) -> None:
    assert private_imports(source) == expected
