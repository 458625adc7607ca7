"""Mistakes of another author's pieces, in one process: each ends the run with a message that names piece, hook, file and what was due."""

import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from mistaken_package import MODULE, documents, lay_out, line_of, plugin

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from anchorage.api.errors import AnchorageError, learning
from anchorage.api.piece import PIECES
from anchorage.methods import validate_study
from anchorage.simulation.run import simulate


@pytest.fixture(scope="module", autouse=True)
def _package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install the package for this module's tests."""
    folder = tmp_path_factory.mktemp("site")
    lay_out(folder)
    PIECES.of("weighting")  # every other package is loaded
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PIECES, "_pieces", dict(PIECES._pieces))
        patch.syspath_prepend(folder)
        importlib.import_module(MODULE)
        yield
    sys.modules.pop(MODULE)


def failure_of(tmp_path: Path, method: Mapping[str, Any], *overrides: str, **options: str) -> AnchorageError:
    """Simulate a federation, and return what it ends with."""
    file = tmp_path / "mistaken.yaml"
    file.write_text(documents(method, **options))
    with pytest.raises(AnchorageError) as caught:
        simulate(validate_study(file, overrides), tmp_path, tmp_path / "state")
    return caught.value


def described(slot: str, name: str) -> str:
    """Return how a message names a piece of the package."""
    line = line_of(f'@piece("acme.{name}")')
    return f"{slot} acme.{name} ({MODULE}.py:{line} of acme-mistakes 0.1.0): "


RETURNS = [
    (
        "weighting",
        "TooFewWeights",
        "weigh returned 2 weights for 3 silos, none for clinic-2; due: one finite number >= 0 per silo",
    ),
    ("weighting", "ListOfWeights", "weigh returned list of 3 items for 3 silos; due: one finite number >= 0 per silo"),
    (
        "weighting",
        "NanWeights",
        "weigh returned no usable weight for 3 silos, such as nan; due: one finite number >= 0 per silo",
    ),
    (
        "aggregation",
        "NanMean",
        "aggregate returned NaN or infinite numbers in the tensor classifier.bias; due: a ModelBytes",
    ),
    ("aggregation", "ArraysForModel", "aggregate returned dict of 26 items; due: a ModelBytes of finite numbers"),
    (
        "serverStep",
        "NanStep",
        "apply returned NaN or infinite numbers in the tensor classifier.bias; due: a ModelBytes",
    ),
]


@pytest.mark.parametrize(("slot", "name", "expected"), RETURNS, ids=[name for _, name, _ in RETURNS])
def test_the_server_names_the_piece_that_returned_something_wrong(
    tmp_path: Path, slot: str, name: str, expected: str
) -> None:
    failure = failure_of(tmp_path, {slot: plugin(f"acme.{name}")})
    assert failure.failure is learning.PIECE_WRONG
    assert failure.message.startswith(described(slot, name) + expected)


AT_SILOS = [
    ("localLoss", "LossPerImage", "the loss of round_loss returned Tensor of float32 [4]; due: the mean loss, a float tensor"),
    ("localLoss", "NanLoss", "the loss of round_loss returned nan for finite Tensor of float32 [4, 10]; due: a finite number"),
    ("localLoss", "Undeclared", "auxiliary of its RoundPart returned the array hardness; due: arrays that auxiliary() of a piece"),
]  # fmt: skip


@pytest.mark.parametrize(("slot", "name", "expected"), AT_SILOS, ids=[name for _, name, _ in AT_SILOS])
def test_a_silo_names_itself_and_the_piece(tmp_path: Path, slot: str, name: str, expected: str) -> None:
    failure = failure_of(tmp_path, {slot: plugin(f"acme.{name}")})
    assert failure.failure is learning.PIECE_WRONG
    assert failure.message.startswith("silo clinic-0: " + described(slot, name) + expected)


LABELS = [
    ("NoClass", r"label returned labels from 3 to \d\d; due: labels from 0 to 9"),
    ("LabelsAsFloats", r"label returned Tensor of float32 \[\d\d\] and Tensor of bool \[\d\d\]; due: labels, int64 \[\d\d\]"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "expected"), LABELS, ids=[name for name, _ in LABELS])
def test_pseudo_labels_that_are_no_classes(tmp_path: Path, name: str, expected: str) -> None:
    failure = failure_of(tmp_path, {"pseudoLabels": plugin(f"acme.{name}")}, labels="None")
    assert failure.failure is learning.PIECE_WRONG
    assert re.match(re.escape("silo clinic-0: " + described("pseudoLabels", name)) + expected, failure.message)


def test_a_network_that_makes_no_embeddings(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, {}, network="acme.FlatMaps")
    expected = "encoder returned an encoder that makes Tensor of float32 [1, 4, 6, 6] of one image; due: one that makes"
    assert failure.message.startswith(described("network", "FlatMaps") + expected)


RAISED = [
    ("weighting", "RaisingWeights", "", 'raise KeyError("similarity")', "weigh raised KeyError at {}: 'similarity'"),
    (
        "localLoss",
        "RaisingLoss",
        "silo clinic-0: ",
        "raise ValueError",
        "loss.loss raised ValueError at {}: no temperature for patient 17",
    ),
]


@pytest.mark.parametrize(("slot", "name", "party", "line", "expected"), RAISED, ids=[each[1] for each in RAISED])
def test_an_exception_has_the_line_inside_the_piece_and_is_the_cause(
    tmp_path: Path, slot: str, name: str, party: str, line: str, expected: str
) -> None:
    failure = failure_of(tmp_path, {slot: plugin(f"acme.{name}")})
    assert failure.failure is learning.PIECE_WRONG
    assert failure.message == party + described(slot, name) + expected.format(f"{MODULE}.py:{line_of(line)}")
    assert failure.__cause__ is not None


def test_an_exception_in_a_network_names_the_network(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, {}, network="acme.NoClue")
    assert failure.failure is learning.PIECE_WRONG
    where = f"{MODULE}.py:{line_of('raise RuntimeError')}"
    assert failure.message.endswith(f"Raising.forward raised RuntimeError at {where}: shapes do not fit")


def test_a_learning_rate_that_is_too_high_is_still_what_is_blamed(tmp_path: Path) -> None:
    local = "spec.method.local={epochs: 20, batchSize: 4, optimiser: {sgd: {learningRate: '100000'}}}"
    failure = failure_of(tmp_path, {}, local)
    assert "lower learningRate" in failure.message
    assert "localLoss" not in failure.message
