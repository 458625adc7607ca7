"""Every alternative of every slot does what it claims: with a task that it says it serves a federation trains, and beside others it is refused.

The other task is regression, of a package outside the tree (docs/writing-a-task.md); classification is played by all other tests.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from outside_package import documents_of_regression, load_regression
from pydantic.alias_generators import to_camel

from anchorage.api.method import SLOTS
from anchorage.api.mistakes import DocumentError
from anchorage.api.piece import PIECES
from anchorage.methods import validate_study
from anchorage.simulation.run import simulate

pytestmark = pytest.mark.outside_package

UNIFORM = {"weighting": {"uniform": {}}}
PLAIN_SGD = {"local": {"epochs": 1, "optimiser": {"sgd": {"momentum": "0", "weightDecay": "0"}}}}
EXTRA_SLOTS: dict[tuple[str, str], dict[str, Any]] = {
    **{
        ("aggregation", name): UNIFORM
        for name in ("median", "trimmedMean", "multiKrum", "zeno", "layerCosine", "privateMean")
    },
    **{("server_step", name): UNIFORM for name in ("mix", "mixPolynomial", "mixHinge")},
    ("server_step", "controlVariates"): {**UNIFORM, **PLAIN_SGD},
    ("weighting", "stepCount"): {"selfSupervised": {"clusters": {}}},
}
"""Further slots that an alternative needs."""
TWO_ROUNDS = {"frozen", "clusters", "stepCount"}
"""What begins in the second one: behind another method, or with the centroids of the first."""
ASYNCHRONOUS = {"mix", "mixPolynomial", "mixHinge"}
OF_PSEUDO_LABELS = {"selectedCount", "usedCount", "fedAvgSemi", "learningStatus"}
"""Weightings by pseudo-labels, all of which serve classification alone."""
ALTERNATIVES = [(slot, name) for slot in SLOTS for name in PIECES.of(slot) if "." not in name]


@pytest.fixture
def regression(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the task."""
    folder = tmp_path / "site"
    folder.mkdir()
    load_regression(folder, monkeypatch)


def documents(slot: str, name: str) -> str:
    """Return a federation of five silos and one round with an alternative and what it needs."""
    federation, first, *_ = documents_of_regression()
    spec, pool = federation["spec"], {"format": "Digits", "testPercent": 80, "validationPercent": 20, "anchors": 16}
    spec["method"] |= {**EXTRA_SLOTS.get((slot, name), {}), to_camel(slot): {name: {}}}
    spec |= {"anchorData": {**pool, "use": "Anchors"}}
    spec["evaluation"] = {"validation": {**pool, "use": "Validation"}}
    spec["protocol"]["mode"] = "Asynchronous" if name in ASYNCHRONOUS else "Synchronous"
    if name == "frozen":  # whose model must be one that was trained
        spec["warmUp"] = [{"method": "FedAvg", "rounds": 1}]
    spec["rounds"] = 2 if name in TWO_ROUNDS else 1
    silos = []
    for part in range(5):
        data = {**pool, "use": "Part", "partition": {"recipe": "Iid", "parts": 5, "part": part}}
        silo = {**first["spec"], "managed": {"data": data}}
        silos.append({**first, "metadata": {"name": f"clinic-{part}"}, "spec": silo})
    return yaml.safe_dump_all([federation, *silos])


@pytest.mark.parametrize(("slot", "name"), ALTERNATIVES)
def test_an_alternative_trains_with_every_task_that_it_claims(
    slot: str, name: str, regression: None, tmp_path: Path
) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(documents(slot, name))
    if PIECES[slot, name].tasks is not None:
        with pytest.raises(DocumentError, match=f"found {name}, which serves [a-zA-Z ]+, but the task is acme.Reg"):
            validate_study(file)
        return
    if name in OF_PSEUDO_LABELS:
        with pytest.raises(DocumentError, match=f"found {name}, which"):
            validate_study(file)
        return
    record, _ = simulate(validate_study(file), Path(), tmp_path / "run")
    scored = ["mean_absolute_error"] if "mean_absolute_error" in record.metrics else ["loss"]
    assert all(np.isfinite(record.metrics[metric]) for metric in scored)
    assert any(silo.state == "Counted" for silo in record.silos)
