"""The same documents and seed end with the same model, in processes and in one process, undisturbed or not, whoever comes first."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from federation_documents import METHODS, digits_study
from federation_processes import SIGKILLED, Site

from anchorage.simulation import run as simulation
from anchorage.simulation.run import simulate
from anchorage.spec.files import Study

pytest.importorskip("sklearn")

Sites = Callable[[Study], Site]


@pytest.fixture
def site_of() -> Iterator[Sites]:
    sites = []

    def site_of(study: Study) -> Site:
        sites.append(Site(study))
        return sites[-1]

    yield site_of
    for site in sites:
        site.close()


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


@pytest.mark.parametrize("method", METHODS)
def test_the_order_in_which_silos_arrive_changes_nothing(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = digits_study(tmp_path, method, rounds=3)
    digest = simulated(study)
    assert simulated_in_reverse(study, monkeypatch) == digest
    other = study.federation.spec.model_copy(update={"seed": 2})
    assert simulated(replace(study, federation=study.federation.model_copy(update={"spec": other}))) != digest


@pytest.mark.parametrize("method", ["FedAvg", "FedAnchor", "SemiAnAgg", "DVW"])
def test_processes_reach_the_model_of_one_process(method: str, tmp_path: Path, site_of: Sites) -> None:
    site = site_of(digits_study(tmp_path, method))
    site.run()
    assert site.digest() == simulated(site.study)
    assert [part["state"] for part in site.records()[-1]["silos"]] == ["Counted"] * len(site.study.silos)


@pytest.mark.parametrize(
    ("method", "server", "agent"),
    [
        ("FedAnchor", ("server training", 2, "SIGKILL"), ("trained", 1, "SIGKILL")),
        ("SemiAnAgg", ("weigh", 2, "SIGKILL"), ("trained", 2, "SIGKILL")),
        ("DVW", ("evaluate at silos", 1, "SIGKILL"), ("announced", 2, "SIGKILL")),
    ],
)
def test_killed_processes_change_nothing(
    method: str, server: tuple[str, int, str], agent: tuple[str, int, str], tmp_path: Path, site_of: Sites
) -> None:
    """What a silo carries from round to round (momentum, FlexMatch's counters) is not carried twice."""
    site = site_of(digits_study(tmp_path, method))
    doomed = site.server(*server)
    first, *others = [silo.metadata.name for silo in site.study.silos]
    fallible = site.agent(first, *agent)
    agents = [site.agent(silo) for silo in others]
    assert doomed.end() == SIGKILLED
    restarted = site.server()
    if agent[0] != "trained":
        assert fallible.end() == SIGKILLED
        fallible = site.agent(first)
    site.finish(restarted, fallible, *agents)
    assert any("process was lost" in line for line in fallible.lines) == (agent[0] == "trained")
    assert site.digest() == simulated(site.study)


VARIANTS: list[dict[str, Any]] = [
    {"mixup": {"at": "None"}},
    {"mixup": {"at": "Server"}},
    {"mixup": {"at": "Both"}},
    {"serverTraining": {"pretrainEpochs": 2, "contrastive": "Off"}},
    {"pseudoLabels": {"threshold": "0.95", "views": 3}},
    {"pseudoLabels": {"threshold": "0.95", "anchors": "Raw"}},
]


@pytest.mark.parametrize("slots", VARIANTS, ids=str)
def test_variants_of_fedanchor_train(slots: dict[str, Any], tmp_path: Path) -> None:
    study = digits_study(tmp_path, "FedAnchor", rounds=1, slots=slots)
    record, store = simulate(study, tmp_path, tmp_path / "simulation")
    assert all(math.isfinite(value) for value in record.metrics.values())
    assert all(math.isfinite(value) for part in record.silos for value in part.metrics.values())
    assert ("contrastive_loss" in record.metrics) == ("serverTraining" not in slots)
    assert record.metrics["accuracy"] > 0.15 and record.digest != store.history()[0].digest
