"""The same documents and seed end with the same model, in processes and in one process, undisturbed or not, whoever comes first."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from federation_documents import digits_study
from federation_processes import SIGKILLED, Site

from anchorage.api.files import Study
from anchorage.simulation import run as simulation
from anchorage.simulation.run import simulate

pytest.importorskip("sklearn")


def simulated(study: Study) -> str:
    record, _ = simulate(study, study.file.parent, study.file.parent / "simulation")
    return record.digest


def simulated_in_reverse(study: Study, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the digest when the silos connect, train and answer in the opposite order; the document's order stays."""
    settings = simulation.round_settings(study)
    monkeypatch.setattr(simulation, "round_settings", lambda _: settings)
    reverse = replace(study, silos=study.silos[::-1])
    record, _ = simulate(reverse, study.file.parent, study.file.parent / "reverse")
    return record.digest


@pytest.mark.parametrize("method", ["FedAvg", "FedAnchor", "SemiAnAgg", "DVW", "CBAFed", "FedMatch"])
def test_the_order_in_which_silos_arrive_changes_nothing(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = digits_study(tmp_path, method)
    assert simulated_in_reverse(study, monkeypatch) == simulated(study)


def test_another_seed_is_another_model(tmp_path: Path) -> None:
    study, other = (digits_study(tmp_path / str(seed), "FedAvg", rounds=1, seed=seed) for seed in (1, 2))
    assert simulated(study) != simulated(other)


KILL = "SIGKILL"
RUNS: list[tuple[str, int, tuple[str | int, ...], tuple[str | int, ...]]] = [
    ("FedAnchor", 2, (), ("trained", 1, KILL)),
    ("SemiAnAgg", 3, ("weigh", 2, KILL), ("trained", 2, KILL)),
    ("DVW", 2, ("evaluate at silos", 1, KILL), ("announced", 2, KILL)),
]
"""Method, silos, the server's accident, and the first silo's (of `federation_accident`)."""


@pytest.mark.parametrize(("method", "silos", "of_server", "of_silo"), RUNS)
def test_killed_processes_reach_the_model_of_one_process(
    method: str,
    silos: int,
    of_server: tuple[str | int, ...],
    of_silo: tuple[str | int, ...],
    tmp_path: Path,
) -> None:
    """What a silo carries from round to round (momentum, FlexMatch's counters) is not carried twice."""
    with Site(digits_study(tmp_path, method, silos=silos)) as site:
        server = site.server(*of_server)
        first, *others = [silo.metadata.name for silo in site.study.silos]
        fallible = site.agent(first, *of_silo)
        agents = [site.agent(silo) for silo in others]
        if of_server:
            assert server.end() == SIGKILLED
            server = site.server()
        if "announced" in of_silo:
            assert fallible.end() == SIGKILLED
            fallible = site.agent(first)
        site.finish(server, fallible, *agents)
        assert any("process was lost" in line for line in fallible.lines) == ("trained" in of_silo)
        assert [part["state"] for part in site.records()[-1]["silos"]] == ["Counted"] * silos
        assert site.digest() == simulated(site.study)


VARIANTS: list[dict[str, Any]] = [
    {"serverTraining": {"anchors": {"pretrainEpochs": 2, "objective": {"taskLoss": {}}}}},
    {"pseudoLabels": {"anchorSimilarity": {"threshold": "0.95", "anchors": "Raw"}}},
]


@pytest.mark.parametrize("slots", VARIANTS, ids=str)
def test_variants_of_fedanchor_train(slots: dict[str, Any], tmp_path: Path) -> None:
    study = digits_study(tmp_path, "FedAnchor", silos=2, rounds=1, slots=slots)
    record, store = simulate(study, tmp_path, tmp_path / "simulation")
    assert all(math.isfinite(value) for value in record.metrics.values())
    assert all(math.isfinite(value) for part in record.silos for value in part.metrics.values())
    assert ("contrastive_loss" in record.metrics) == ("serverTraining" not in slots)
    assert record.metrics["accuracy"] > 0.15 and record.digest != store.history()[0].digest
