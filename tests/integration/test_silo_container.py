"""The agent as a container under the restricted standard runs it: no user of a name, no home, and a root file system that is read-only."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from silo_site import Agent, Site

from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.learning.learners import build_server_learner
from anchorage.methods import resolve
from anchorage.pieces.task.classification import Classification
from anchorage.transport.tensors.model import ModelBytes, read_arrays
from anchorage_silo.landlock import abi

USER = 65532
MODEL = ModelDescription(network="SmallCnn", task=Classification(classes=tuple("0123456789")), image_size=8, channels=1)
SETPRIV = f"setpriv --reuid {USER} --regid {USER} --clear-groups --no-new-privs --inh-caps=-all"
CONTAINER = f"""
mount --make-rprivate / && mount --bind "$0" "$0" && mount --bind /tmp /tmp && mount -o remount,bind,ro / || exit 99
cd / && exec {SETPRIV} env -i HOME=/ PATH=/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$PYTHONPATH" "$@"
"""
PATHS = os.pathsep.join(sys.path)


def contained(state: Path) -> list[str]:
    """Return a command that becomes the rest of its line in a container; only `state` and /tmp can be written there."""
    return ["unshare", "--mount", "sh", "-c", CONTAINER, str(state)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may read, as a mounted volume is."""
    folder = Path(tempfile.mkdtemp(prefix="anchorage-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def state(folder: Path) -> Path:
    state = folder / "volume"
    state.mkdir()
    shutil.chown(state, 0, USER)
    state.chmod(0o2770)
    return state


@pytest.fixture
def python(state: Path) -> str:
    """An interpreter with this project that somebody else can start in a container."""
    if os.geteuid() != 0 or not (shutil.which("setpriv") and shutil.which("unshare")):
        pytest.skip("needs root, setpriv and unshare, to become somebody else in a mount namespace")
    version = f"python3.{sys.version_info.minor}"
    for candidate in (sys.executable, shutil.which(version, path="/usr/local/bin:/usr/bin")):
        command = [*contained(state), candidate or "false", "-c", "import anchorage_silo, torch"]
        if (
            subprocess.run(command, env={"PYTHONPATH": PATHS, "PATH": "/usr/bin:/bin"}, capture_output=True).returncode
            == 0
        ):
            return str(candidate)
    pytest.skip("no interpreter with the project's packages that another user may read, or no mount namespaces")


def test_trains_and_stops_in_a_container(folder: Path, state: Path, python: str) -> None:
    learner = build_server_learner(model=MODEL, method=resolve(MethodSpec(name="FedAvg")), seed=1)
    model: ModelBytes = learner.initialise()
    site = Site(folder, layout=model.layout)
    (folder / "authority").chmod(0o755)
    (folder / "policy.yaml").write_text("allowedMethods: [FedAvg]\nmaximumRounds: 20\n")
    config = site.configuration(
        "a", state=str(state), trainer={"type": "Learner"}, labels="All", policy=str(folder / "policy.yaml"),
        data={"format": "Digits", "use": "Part", "partition": {"recipe": "Iid", "parts": 8, "part": 0}},
        probesListen="127.0.0.1:0", stay=True, patienceSeconds=0,
    )  # fmt: skip
    agent = Agent(config, *contained(state), env={"PYTHONPATH": PATHS, "PATH": "/usr/bin:/bin"}, python=python)
    try:
        site.joined()
        site.assign("a", model, 1)
        _, update = site.collect("a")
        assert all(array.size for array in read_arrays(model.layout, update).values())
        (trainer,) = psutil.Process(agent.process.pid).children()
        assert trainer.uids().effective == USER and trainer.environ()["HOME"] == (
            str(state / "trainer" / "tmp") if abi() else "/tmp"
        )
        assert agent.await_ready("Connected") == 200
        agent.signal(signal.SIGTERM)
        assert agent.wait() == 0, agent.lines
        assert {path.name for path in state.iterdir()} >= {
            "silo.key",
            "silo.crt",
            "audit.head",
            "audit.jsonl",
            "audit.key",
            "trainer",
        }
        assert {path.name for path in (state / "trainer").iterdir()} >= {"model.bin", "update.bin"}
    finally:
        agent.close()
        site.close()
