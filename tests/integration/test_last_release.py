"""The version promise: server and agents of the last release work with today's, and the models are the same bytes.

`last_release.txt` names the last release, a tag or a commit. Its wheel is built from that tree, and its processes find their packages in
it before today's. The configurations are today's: what they say, the release knows too.
"""

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Set
from pathlib import Path

import pytest
from federation_documents import digits_study, null_study
from federation_in_process import null_digest
from federation_processes import Process, Site

from anchorage.api.files import Study
from anchorage.simulation.run import simulate

RELEASE = Path(__file__).with_name("last_release.txt").read_text().strip()
ROOT = Path(__file__).parents[2]
SERVER = "anchorage_server"
MIXTURES = {"the server": {SERVER}, "two of three agents": {"a", "b"}}
"""Who is of the last release; the others are of today."""


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of the last release's packages, unpacked from its wheel."""
    folder = tmp_path_factory.mktemp("release")
    packed, tree, wheels, packages = (folder / part for part in ("tree.tar", "tree", "wheels", "packages"))
    archive = ["git", "-C", str(ROOT), "archive", "--output", str(packed), RELEASE]
    try:
        subprocess.run(archive, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"the last release, {RELEASE}, is not in this clone: git fetch --unshallow --tags")
    with tarfile.open(packed) as archived:
        archived.extractall(tree, filter="data")
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(wheels), str(tree)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as contents:
        contents.extractall(packages)
    return packages


class MixedSite(Site):
    """A site some of whose processes are of the last release."""

    def __init__(self, study: Study, release: Path, released: Set[str]) -> None:
        super().__init__(study)
        self.released, self.today = released, self.environment
        self.of_the_release = {**self.today, "PYTHONPATH": f"{release}:{self.today['PYTHONPATH']}"}

    def start(self, module: str, config: Path, accident: tuple[str | int, ...]) -> Process:
        name = module if module == SERVER else config.parent.name
        self.environment = self.of_the_release if name in self.released else self.today
        return super().start(module, config, accident)


def test_the_release_is_found_before_the_packages_of_today(release: Path, tmp_path: Path) -> None:
    """Else the other tests would compare today with today."""
    site = MixedSite(null_study(tmp_path), release, set())
    modules = ("anchorage", "anchorage_server", "anchorage_silo")
    where = f"import {', '.join(modules)}\nprint(*({', '.join(f'{module}.__file__' for module in modules)}), sep='\\n')"
    results = {}
    for of, environment in (("release", site.of_the_release), ("today", site.today)):
        asked = [sys.executable, "-c", where]
        results[of] = subprocess.run(asked, env=environment, check=True, capture_output=True, text=True).stdout.split()
    assert results["release"] == [str(release / module / "__init__.py") for module in modules]
    assert not any(Path(file).is_relative_to(release) for file in results["today"])


@pytest.mark.parametrize("released", MIXTURES.values(), ids=MIXTURES)
def test_releases_train_the_same_model_together(released: Set[str], release: Path, tmp_path: Path) -> None:
    """Pseudo-labels, training on the server, and what an encoding lost until the next update."""
    pytest.importorskip("sklearn")
    study = digits_study(tmp_path, "FedAnchor", rounds=2, slots={"encoding": {"int4": {}}})
    today, _ = simulate(study, tmp_path, tmp_path / "simulation")
    with MixedSite(study, release, released) as site:
        site.run()
        assert site.digest() == today.digest


@pytest.mark.parametrize("released", MIXTURES.values(), ids=MIXTURES)
def test_releases_add_masked_updates_together(released: Set[str], release: Path, tmp_path: Path) -> None:
    protocol = {"minSilos": 3, "roundDeadlineSeconds": 600, "secureAggregation": {"fractionalBits": 22}}
    study = null_study(tmp_path, silos=3, protocol=protocol)
    with MixedSite(study, release, released) as site:
        server = site.server()
        site.finish(server, *(site.null_agent(silo.metadata.name) for silo in study.silos))
        assert site.digest() == null_digest(study)
