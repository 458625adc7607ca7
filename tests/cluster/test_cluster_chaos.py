"""Faults at random moments of a federation over two clusters: every round stays, and is what undisturbed training gives.

More of them: ``make test-cluster ARGS="-k chaos --faults 50 --seed 7"``.
"""

from pathlib import Path

import pytest
from cluster_documents import STUDY
from cluster_faults import plan
from cluster_hospital import HOSPITAL, at_work, journal, undisturbed
from cluster_namespace import Namespace
from kube import Cable

ROUNDS = 100_000  # nobody waits for the last one
EPOCHS = 20
ROUNDS_AFTER = 2
"""Rounds that must be committed after a fault before the next one."""


def test_chaos(
    started: Namespace, hospital: Namespace, cable: Cable, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    sites = at_work(started, hospital, cable, rounds=ROUNDS, epochs=EPOCHS)
    seen: dict[int, str] = {}
    for fault in plan(pytestconfig.getoption("faults"), pytestconfig.getoption("seed")):
        before = {record["round"]: record["digest"] for record in journal(started.server_state(STUDY))}
        fault.inject(sites)
        started.wait_for_round(STUDY, len(before) - 1 + ROUNDS_AFTER)
        after = journal(started.server_state(STUDY))
        assert [record["round"] for record in after] == list(range(len(after))), f"rounds after {fault}"
        seen = {record["round"]: record["digest"] for record in after}
        assert before.items() <= seen.items(), f"a committed round is another one after {fault}"
        assert started.condition("federation", STUDY, "Failed")["status"] == "False"
        for record in after[1:]:
            assert {silo["name"] for silo in record["silos"] if silo["weight"] > 0} == {"silo-a", HOSPITAL}
    started.patch("federation", STUDY, {"spec": {"suspend": True}})
    assert list(seen.values()) == undisturbed(tmp_path, rounds=len(seen) - 1, epochs=EPOCHS)
