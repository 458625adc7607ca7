"""Pieces of another author's package, in a cluster whose pods have it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cluster_namespace import Namespace
from cluster_site import ENVIRONMENT, packages
from outside_package import documents

pytestmark = pytest.mark.outside_package


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Write the study of the guide on writing a method."""
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump_all(documents()))
    return file


def simulated(study: Path, folder: Path) -> str:
    """Simulate a study as its pods calculate, and return the digest of its last round."""
    path = os.pathsep.join(filter(None, (str(packages()), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "OMP_NUM_THREADS": ENVIRONMENT["OMP_NUM_THREADS"], "PYTHONPATH": path}
    command = (sys.executable, "-m", "fedctl.main", "simulate", "-f", study, "--workdir", folder, "-o", "json")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True)
    return str(json.loads(done.stdout)["seeds"][0]["rounds"][-1]["digest"])


def test_a_cluster_ends_with_the_bytes_of_a_simulation(started: Namespace, study: Path, tmp_path: Path) -> None:
    if started.site.cluster is None:
        pytest.skip("the images of a given cluster lack the package")
    started.kubectl("apply", "--filename", study)
    federation, *_ = documents()
    name = federation["metadata"]["name"]
    started.wait_for_condition("federation", name, "Succeeded")
    rounds = json.loads(started.eventually("rounds", lambda: started.fedctl("rounds", name, "--output", "json")))
    assert [record["round"] for record in rounds] == list(range(federation["spec"]["rounds"] + 1))
    assert rounds[-1]["digest"] == simulated(study, tmp_path / "simulated")


def test_a_need_that_is_not_met_is_told_in_a_condition(started: Namespace) -> None:
    federation, *silos = documents()
    federation["spec"]["method"]["weighting"] = {"sampleCount": {}}
    started.apply(federation, *silos)
    name = federation["metadata"]["name"]
    refused = started.wait_for_condition("federation", name, "Accepted", "False")
    assert "weighs nobody" in refused["message"]
