"""A cluster as the tests use it: its kubectl, helm and fedctl, and what pods need to run this checkout's code."""

import atexit
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kube import Cluster, network
from kube.commands import run
from kube.images import Image, python_archive
from kube.kubectl import Kubectl
from kube.storage import bound_claim, local_volume
from outside_package import lay_out

CHECKOUT = Path(__file__).resolve().parents[2]
LIBRARIES = "anchorage-libraries"  # claim: the virtual environment
SOURCES = "anchorage-sources"  # claim: this checkout
PACKAGES = "anchorage-packages"  # claim: another author's package
MOUNTS = {LIBRARIES: "/opt/libraries", SOURCES: "/opt/sources", PACKAGES: "/opt/packages"}
PARTS = ("core", "server", "operator", "silo_agent", "cli")
SITE_PACKAGES = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
FOLDERS = [*(f"{MOUNTS[SOURCES]}/{part}" for part in PARTS), MOUNTS[PACKAGES], f"{MOUNTS[LIBRARIES]}/{SITE_PACKAGES}"]
PYTHONPATH = ":".join(FOLDERS)
MODULES = {"operator": "anchorage_operator", "server": "anchorage_server", "agent": "anchorage_silo"}
IMAGES = {part: f"localhost/anchorage-{part}:1" for part in MODULES}
# Torch with its libraries is many times the size of everything else: pods find it, and the code, on volumes.
ENVIRONMENT = {"PYTHONPATH": PYTHONPATH, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
CLIENTS = ("kubectl", "helm")
"""Programs that a given cluster is reached with; a cluster of the tests' own brings them along."""


@functools.cache
def packages() -> Path:
    """Return a folder with another author's package, as `pip` would install it; it goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix="anchorage-packages-"))
    atexit.register(shutil.rmtree, folder)
    folder.chmod(0o755)
    lay_out(folder)
    return folder


@functools.cache
def images() -> Path:
    """Return the archive with the operator's, the server's and the agent's image."""
    entries = [Image(IMAGES[part], ["python3", "-m", module], ENVIRONMENT) for part, module in MODULES.items()]
    return python_archive(entries)


class Site:
    """One cluster, and what is the same in every namespace of it."""

    def __init__(self, kubectl: Kubectl, helm: str | Path, cluster: Cluster | None = None) -> None:
        """
        Parameters
        ----------
        cluster
            The cluster that the tests started themselves; None where one was given.
        """
        self.kubectl = kubectl
        self.cluster = cluster
        self._helm = helm

    @classmethod
    @contextmanager
    def started(
        cls, name: str, *, with_images: bool = True, addresses: network.Addresses = network.IPV4
    ) -> Iterator["Site"]:
        """Start a cluster with the images; take it down in the end."""
        cluster = Cluster(name, addresses)
        cluster.up()
        try:
            if with_images:
                cluster.load(images())
            yield cls.around(cluster)
        finally:
            cluster.down()

    @classmethod
    def around(cls, cluster: Cluster) -> "Site":
        """Return the site of a cluster that is up and has the images."""
        return cls(cluster.kubectl, cluster.components["helm"], cluster)

    @classmethod
    def named(cls, name: str) -> "Site":
        """Return the site of a cluster that `python -m kube up` started and that stays; give it the images."""
        cluster = Cluster(name)
        cluster.load(images())
        return cls.around(cluster)

    def with_definitions(self) -> "Site":
        """Install the CRDs, wait until the API server knows them, and return the same site."""
        self.kubectl("apply", "--server-side", "--force-conflicts", "--filename", CHECKOUT / "crds")
        for plural, kind in (("federations", "Federation"), ("silos", "Silo")):
            definition = f"customresourcedefinition/{plural}.anchorage.dev"
            named = f"--for=jsonpath={{.status.acceptedNames.kind}}={kind}"  # until then conditions may be null, which kubectl takes for an error
            for awaited in (named, "--for=condition=Established"):
                self.kubectl("wait", awaited, definition, "--timeout=300s", seconds=330)
        return self

    @classmethod
    def given(cls, kubeconfig: Path) -> "Site":
        """Use a cluster that somebody else runs; its nodes pull the charts' own images."""
        kubectl, helm = (str(shutil.which(name)) for name in CLIENTS)
        return cls(Kubectl(kubectl, kubeconfig), helm)

    def helm(self, *arguments: str | Path, namespace: str, seconds: float = 660) -> str:
        """Run helm in a namespace."""
        command = (*self.kubectl.entering, self._helm, *arguments, "--namespace", namespace)
        return run(*command, seconds=seconds, environment=self.kubectl.environment)

    def fedctl(self, *arguments: str | Path, namespace: str, check: bool = True, seconds: float = 300) -> str:
        """Run fedctl, which has the other author's package, in a namespace."""
        command = (*self.kubectl.entering, sys.executable, "-m", "fedctl.main", *arguments, "--namespace", namespace)
        path = os.pathsep.join(filter(None, (str(packages()), os.environ.get("PYTHONPATH"))))
        environment = {**self.kubectl.environment, "PYTHONPATH": path}
        return run(*command, seconds=seconds, check=check, environment=environment, folder=CHECKOUT)

    def chart_values(self) -> dict[str, Any]:
        """Return the values of charts/anchorage with which its pods run this checkout."""
        if self.cluster is None:
            return {}
        volumes = [{"claimName": claim, "mountPath": path, "readOnly": True} for claim, path in MOUNTS.items()]
        return {
            "images": IMAGES,
            "operator": pod_volumes(),
            "mlflow": pod_volumes(),
            "defaults": {"server": {"volumes": volumes}, "agent": {"volumes": volumes}},
        }

    def code_volumes(self, namespace: str) -> list[dict[str, Any]]:
        """Return the volumes with libraries and sources for one namespace (cluster-wide objects), and nothing in a given cluster."""
        if self.cluster is None:
            return []
        folders = {LIBRARIES: Path(sys.prefix), SOURCES: CHECKOUT, PACKAGES: packages()}
        return [
            local_volume(f"{claim}-{namespace}", folder, "ReadOnlyMany", claim=(namespace, claim))
            for claim, folder in folders.items()
        ]

    def code_claims(self, namespace: str) -> list[dict[str, Any]]:
        """Return the claims on `code_volumes`."""
        if self.cluster is None:
            return []
        return [bound_claim(claim, f"{claim}-{namespace}", "ReadOnlyMany") for claim in MOUNTS]


def pod_volumes() -> dict[str, Any]:
    """Return the charts' `extraVolumes` and `extraVolumeMounts` for libraries and sources."""
    claims = {name: {"claimName": name, "readOnly": True} for name in MOUNTS}
    return {
        "extraVolumes": [{"name": name, "persistentVolumeClaim": claim} for name, claim in claims.items()],
        "extraVolumeMounts": [{"name": name, "mountPath": path, "readOnly": True} for name, path in MOUNTS.items()],
    }


def given_kubeconfig() -> Path | None:
    """Return the kubeconfig file of a cluster that the tests are to use instead of their own."""
    value = os.environ.get("ANCHORAGE_TEST_KUBECONFIG")
    return Path(value) if value else None
