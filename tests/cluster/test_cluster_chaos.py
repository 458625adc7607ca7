"""Faults at random moments of a federation over two clusters: every round stays, and is what undisturbed training gives.

More of them: ``make test-cluster ARGS="-k chaos --faults 48 --seed 7 --timeout 7200"``.
"""

from pathlib import Path

import pytest
from cluster_documents import STUDY
from cluster_faults import plan
from cluster_hospital import at_work, digests_in, undisturbed
from cluster_namespace import Namespace
from kube import Cable

ROUNDS_AFTER = 2
"""Rounds that must be committed after a fault before the next one."""


def test_chaos(
    started: Namespace, hospital: Namespace, cable: Cable, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    sites = at_work(started, hospital, cable)
    for fault in plan(pytestconfig.getoption("faults"), pytestconfig.getoption("seed")):
        before = digests_in(started.server_state(STUDY))
        fault.inject(sites)
        state = started.eventually("the API server answers", lambda: started.server_state(STUDY))
        started.wait_for_round(STUDY, len(digests_in(state)) - 1 + ROUNDS_AFTER)
        assert digests_in(state)[: len(before)] == before, f"a committed round is another one after {fault}"
        assert started.condition("federation", STUDY, "Failed")["status"] == "False"
    started.patch("federation", STUDY, {"spec": {"suspend": True}})
    played = digests_in(started.server_state(STUDY))
    assert played == undisturbed(tmp_path, len(played) - 1)
