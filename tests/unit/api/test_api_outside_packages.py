"""Packages of other authors are loaded where a document names a piece that they provide, and no sooner; who they are is known without them."""

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import outside_package
import pytest

from anchorage.api import piece as piece_module
from anchorage.api.piece import ENTRY_POINTS, providers

LOADED = "import json, sys; print(json.dumps(sorted(name for name in sys.modules if name.partition('.')[0] == 'acme')))"
READ = "from anchorage.api.slot import read_piece; "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    outside_package.lay_out(tmp_path)
    return tmp_path


def python(folder: Path, code: str) -> Any:
    """Return what a process prints, as JSON, in which the packages are installed."""
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "code",
    [
        "import anchorage_silo.agent, anchorage_silo.review, anchorage_silo.policy_check",
        READ + "read_piece('weighting', {'dvw': {}})",
        "from anchorage.methods import PRESETS; PRESETS['FedAvg'], PRESETS.get('NoSuch'), 'acme.Own' in PRESETS",
        "from anchorage.api.piece import providers, versions_of; versions_of(providers('acme.TrimmedMean'))",
        "from anchorage.api.federation import Federation; Federation.model_json_schema()",
    ],
)
def test_nothing_is_loaded_that_is_not_named(folder: Path, code: str) -> None:
    assert python(folder, f"{code}\n{LOADED}") == []


def test_of_a_package_the_module_of_the_piece_is_loaded_alone(folder: Path) -> None:
    code = READ + "read_piece('aggregation', {'plugin': {'name': 'acme.TrimmedMean'}})"
    assert python(folder, f"{code}\n{LOADED}") == ["acme", "acme.trimmed_mean"]


def test_a_method_of_a_package_loads_it_alone(folder: Path) -> None:
    loaded = python(folder, f"from anchorage.methods import PRESETS; PRESETS['BalancedDvw']\n{LOADED}")
    assert loaded == ["acme", "acme.balanced_dvw"]


def test_a_name_that_no_package_has_loads_none_of_another_word(folder: Path) -> None:
    code = f"""
{READ}
from pydantic import ValidationError
try:
    read_piece('aggregation', {{'plugin': {{'name': 'other.TrimmedMean'}}}})
except ValidationError as error:
    assert "found 'other.TrimmedMean'" in str(error), error
else:
    raise AssertionError
{LOADED}
"""
    assert python(folder, code) == []


def test_who_they_are_is_known_without_them(folder: Path) -> None:
    code = "import json; from anchorage.api.piece import providers, versions_of; print(json.dumps([versions_of(providers(name)) for name in {}]))"
    names = ["acme.TrimmedMean", "acme.Regression", "acme.TwoConvolutions", "SmallCnn", "other.X"]
    loaded = python(folder, code.format(names))
    assert loaded == [{"acme": "0.1.0"}, {"acme_tasks": "0.1.0"}, {"acme": "0.1.0"}, {}, {}]


@pytest.mark.parametrize(
    ("module", "name", "provided"),
    [
        ("acme.trimmed_mean", "acme.TrimmedMean", True),
        ("acme", "acme/net", True),
        ("acme_images.npy", "acme.Npy", True),
        ("Acme_Images", "acme.Npy", True),
        ("acmetools", "acme.Npy", False),
        ("other.acme", "acme.Npy", False),
        ("acme", "acme_images.Npy", False),
    ],
)
def test_which_package_provides_a_piece_its_metadata_say(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str, provided: bool
) -> None:
    point = EntryPoint("x", module, ENTRY_POINTS)
    monkeypatch.setattr(piece_module, "entry_points", lambda group: [point])
    assert providers(name) == ([point] if provided else [])


def test_a_module_called_as_the_piece_is_the_only_one_that_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint(name, f"acme.{name}", ENTRY_POINTS) for name in ("a", "trimmed-mean", "trimmed", "z")]
    monkeypatch.setattr(piece_module, "entry_points", lambda group: points)
    assert [point.name for point in providers("acme.TrimmedMean")] == ["trimmed-mean"]
    assert [point.name for point in providers("acme.Other")] == ["a", "trimmed", "trimmed-mean", "z"]
