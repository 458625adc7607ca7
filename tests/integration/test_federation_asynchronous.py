"""Asynchronous federations as processes: every update is a round of its own, and a killed server goes on with the global model that it had."""

import math
from pathlib import Path

import numpy as np
from federation_documents import WEIGHTS, digits_study, null_study
from federation_processes import SIGKILLED, Site
from safetensors.numpy import load_file

ROUNDS = 8


def test_fedavg_goes_on_with_its_community_after_a_kill(tmp_path: Path) -> None:
    """Between two commits the sum over the last contributions is rebuilt from the spool, whatever was in memory."""
    protocol = {"mode": "Asynchronous", "minSilos": 2, "roundDeadlineSeconds": 600}
    with Site(null_study(tmp_path, rounds=ROUNDS, protocol=protocol)) as site:
        first = site.server("renamed", 3, "SIGKILL")
        agents = [site.null_agent("a"), site.null_agent("b")]
        assert first.end() == SIGKILLED
        assert site.server("torn", 5, "SIGKILL").end() == SIGKILLED
        site.finish(site.server(), *agents)
    records = site.records()
    assert [record["round"] for record in records] == list(range(ROUNDS + 1))
    committing = [part["name"] for record in records[1:] for part in record["silos"]]
    assert len(committing) == ROUNDS and set(committing) == {"a", "b"}
    model = load_file(site.workdir.model / "final.safetensors")
    moved = model["encoder.weight"] - WEIGHTS["encoder.weight"]
    assert np.ptp(moved) < 1e-4 and 0.5 < moved.mean() < 0.5 * ROUNDS * 2
    assert model["encoder.steps"].tolist() == [3, 4]


def test_adaptive_dvw_has_every_update_scored_by_the_other_silo(tmp_path: Path) -> None:
    with Site(digits_study(tmp_path, "AsyncDVWAdaptive", silos=2, rounds=4)) as site:
        site.run()
    records = site.records()
    assert [record["round"] for record in records] == list(range(5))
    parts = [part for record in records[1:] for part in record["silos"]]
    assert all(part["state"] == "Counted" and 0 <= part["weight"] <= 1 for part in parts)
    assert all(math.isfinite(value) for record in records for value in record["metrics"].values())
    assert records[-1]["metrics"]["loss"] < records[0]["metrics"]["loss"]
    assert {part["name"] for part in parts} <= {"a", "b"}
    assert all(1 <= part["metrics"]["epochs"] <= 3 < part["metrics"]["staleness"] for part in parts)
    up, down = (sum(record[name] for record in records) for name in ("bytesUp", "bytesDown"))
    assert down > 1.6 * up  # for every update a model to train on and one to score
