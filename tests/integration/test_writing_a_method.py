"""The worked examples of docs/writing-a-method.md, a package of another author: its files are taken from the guide as they stand."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from outside_package import ROOT, block, documents, documents_of_pseudo_labels, lay_out
from package_environment import environment_with

from anchorage.transport.tensors.chunks import CHUNK_BYTES
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

pytest.importorskip("sklearn")
pytestmark = pytest.mark.outside_package


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Lay the package out as `pip` would."""
    folder = tmp_path_factory.mktemp("site")
    lay_out(folder)
    return environment_with(folder)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Write the digits example with the guide's pieces in it."""
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump_all(documents()))
    return file


def run(environment: Mapping[str, str], *arguments: str, status: int = 0, folder: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=600, cwd=folder
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def fedctl(environment: Mapping[str, str], *arguments: str, status: int = 0, folder: Path = ROOT) -> str:
    return run(environment, "-m", "fedctl.main", *arguments, status=status, folder=folder)


def test_describe_shows_options_and_what_leaves_the_silo(environment: Mapping[str, str]) -> None:
    (description,) = json.loads(fedctl(environment, "methods", "describe", "acme.HardClasses", "-o", "json"))
    assert description["slot"] == "localLoss"
    assert description["options"]["power"]["default"] == "0.5"
    assert [(array["name"], array["direction"]) for array in description["auxiliaryData"]] == [("class_losses", "up")]
    assert "TrimmedMean" in fedctl(environment, "methods", "describe", "acme.TrimmedMean")
    assert "BalancedDvw" in fedctl(environment, "methods", "describe", "BalancedDvw")


@pytest.mark.parametrize("of", [documents, documents_of_pseudo_labels], ids=["three slots", "pseudo-labels"])
def test_simulation_and_processes_end_with_the_same_bytes(
    environment: Mapping[str, str], study: Path, tmp_path: Path, of: Callable[[], list[dict[str, Any]]]
) -> None:
    """In one process, and over gRPC with an agent and a trainer process per silo."""
    study.write_text(yaml.safe_dump_all(of()))
    simulated = json.loads(
        fedctl(environment, "simulate", "-f", str(study), "--workdir", f"{tmp_path}/one", "-o", "json")
    )
    fedctl(environment, "run", "-f", str(study), "--no-compare", "--workdir", f"{tmp_path}/many", folder=tmp_path)
    rounds = json.loads(fedctl(environment, "rounds", "--workdir", f"{tmp_path}/many", "-o", "json"))
    assert rounds[-1]["digest"] == simulated["seeds"][0]["rounds"][-1]["digest"]
    assert rounds[0]["digest"] != rounds[-1]["digest"]


def test_the_reading_of_updates_chunk_by_chunk() -> None:
    layout = Layout.of(
        [("w", "F32", (CHUNK_BYTES // 2,)), ("steps", "I64", ()), ("b", "F16", (3,))]
    )  # more than a chunk
    rng = np.random.default_rng(0)

    def drawn(layout: Layout) -> ModelBytes:
        arrays = {"w": rng.normal(size=CHUNK_BYTES // 2).astype("f4"), "b": rng.normal(size=3).astype("f2")}
        return ModelBytes.from_arrays(layout, {**arrays, "steps": np.array(7), "head": np.ones(2, "f4")})

    updates = [drawn(layout), drawn(layout)]
    model = drawn(Layout.of([("head", "F32", (2,)), *((t.name, t.dtype, t.shape) for t in layout.tensors)]))
    module: dict[str, Any] = {}
    exec(block("def squared_distances"), module)
    distances, before = module["squared_distances"](updates, layout, model), model.arrays()
    for distance, arrays in zip(distances, (update.arrays() for update in updates), strict=True):
        due = sum(float(((arrays[n].astype("f8") - before[n]) ** 2).sum()) for n in ("w", "b"))
        assert distance == pytest.approx(due)


def test_mistakes_in_its_options_have_a_line(environment: Mapping[str, str], study: Path) -> None:
    study.write_text(study.read_text().replace("0.34", "1.5"))
    output = fedctl(environment, "validate", "-f", str(study), status=2)
    assert re.search(r"study\.yaml:\d+: spec\.method\.aggregation\.plugin\.options\.share: found \"1\.5\"", output)


def test_its_needs_are_checked_by_fedctl_and_the_operator_alike(environment: Mapping[str, str], study: Path) -> None:
    override = ("--set", "spec.method.weighting={sampleCount: {}}")
    assert "weighs nobody" in fedctl(environment, "validate", "-f", str(study), *override, status=2)
    code = (
        "import sys, yaml; from anchorage.methods import validate_documents as check; from anchorage.api.mistakes import DocumentError\n"
        "federation, *silos = yaml.safe_load_all(open(sys.argv[1]))\n"
        "check(federation, silos)\n"
        "federation['spec']['method']['weighting'] = {'sampleCount': {}}\n"
        "try: check(federation, silos)\n"
        "except DocumentError as error: print(error)\n"
        "assert 'torch' not in sys.modules"
    )
    assert "weighs nobody" in run(environment, "-c", code, str(study))


def test_without_the_package_its_names_are_unknown(study: Path) -> None:
    output = fedctl(dict(os.environ), "validate", "-f", str(study), status=2)
    assert "acme.TrimmedMean" in output
    assert "acme.HardClasses" in output
    assert "acme.TwoConvolutions" in output
