"""What a cluster is made of, compiled from Go modules into a cache."""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kube.commands import run

SOURCES = Path(__file__).with_name("components")
LINKS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet")
TOOLS = {"helm": "helm.sh/helm/v3/cmd/helm@v3.22.0", "coredns": "github.com/coredns/coredns@v1.15.0"}
COMPILE_SECONDS = 3000.0


def cache_folder() -> Path:
    """Return the folder that keeps what was compiled: ANCHORAGE_CLUSTER_CACHE, or ~/.cache/anchorage-cluster."""
    return Path(os.environ.get("ANCHORAGE_CLUSTER_CACHE") or Path.home() / ".cache" / "anchorage-cluster")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, so that two runs do not fill one cache at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Components:
    """The folder with etcd, every Kubernetes component, kubectl, helm, coredns and pause."""

    folder: Path

    def __getitem__(self, name: str) -> Path:
        """Return the path of one of them."""
        return self.folder / name

    @classmethod
    def build(cls) -> "Components":
        """
        Return the components for the sources beside this file; compile those that the cache lacks (minutes, the first time).

        Raises
        ------
        CommandFailed
            The Go compiler refused, or a module could not be fetched.
        """
        digest = hashlib.sha256(repr(sorted(TOOLS.items())).encode())
        for path in sorted(SOURCES.rglob("*.*")):
            digest.update(path.read_bytes())
        folder = cache_folder() / f"components-{digest.hexdigest()[:12]}"
        with locked(cache_folder() / "components.lock"):
            if not folder.exists():
                unfinished = folder.with_suffix(".unfinished")
                shutil.rmtree(unfinished, ignore_errors=True)
                unfinished.mkdir(parents=True)
                _compile(unfinished)
                unfinished.rename(folder)
        return cls(folder)


def kubernetes_version() -> str:
    """Return the version of Kubernetes that go.mod asks for, such as `1.34.4`."""
    match = re.search(r"k8s\.io/kubernetes v(\S+)", (SOURCES / "go.mod").read_text())
    if match is None:
        raise ValueError(f"{SOURCES / 'go.mod'} requires no k8s.io/kubernetes")
    return match[1]


def _compile(folder: Path) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(folder), "GOFLAGS": "-buildvcs=false"}
    version = kubernetes_version()
    major, minor, _ = version.split(".")
    stamps = {
        "k8s.io/component-base/version.gitVersion": f"v{version}",  # without it the API server calls itself v0.0.0
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": f"v{version}",
    }
    flags = "-s -w " + " ".join(f"-X {name}={value}" for name, value in stamps.items())
    build = ("go", "build", "-trimpath", "-ldflags")
    for target, ldflags in (("kubernetes", flags), ("pause", "-s -w")):
        command = (*build, ldflags, "-o", folder / target, f"./{target}")
        run(*command, folder=SOURCES, environment=environment, seconds=COMPILE_SECONDS)
    for name in LINKS:
        (folder / name).symlink_to("kubernetes")
    for module in TOOLS.values():
        run("go", "install", "-trimpath", "-ldflags", "-s -w", module, environment=environment, seconds=COMPILE_SECONDS)
