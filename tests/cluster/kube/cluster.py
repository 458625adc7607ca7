"""One Kubernetes cluster of one node, from nothing to ready and back to nothing."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kube import network
from kube.certificates import ClusterCertificates
from kube.cgroups import ControlGroup
from kube.commands import CommandFailed, run
from kube.components import Components, cache_folder
from kube.images import pause_archive
from kube.kubectl import Kubectl
from kube.settings import NEEDED_BY_API, Settings
from kube.storage import Disks, storage_class

CLUSTERS = "clusters"
PRIVATE = (  # folders of the machine that components write to whatever they are told; the cluster sees its own in their place
    "/opt/containerd",
    "/run/containerd",
    "/usr/libexec/kubernetes",
    "/var/lib/cni",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)
CLIENTS = {  # holder: its user and group
    "admin": ("admin", "system:masters"),
    "controllers": ("system:kube-controller-manager", "system:kube-controller-manager"),
    "scheduler": ("system:kube-scheduler", None),
    "node": ("system:node:node1", "system:nodes"),
    "proxy": ("system:kube-proxy", None),
}


class Cluster:
    """A cluster of this name; the name is in everything that it leaves on the machine while it is up."""

    def __init__(self, name: str, addresses: network.Addresses = network.IPV4) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,20}", name):
            raise ValueError(f"a cluster's name is up to 21 of a-z, 0-9 and -, a letter first; this is {name!r}")
        self.name = name
        self.folder = cache_folder() / CLUSTERS / name
        self.network = network.Namespace(f"anchorage-{name}", addresses)
        self._group = ControlGroup(f"anchorage-{name}")
        self._runtime = Path("/run") / f"anchorage-{name}"
        self.components = Components.build()
        self._settings = Settings(self.folder, self._runtime, self._group.name, self.components, addresses)
        self.kubectl = Kubectl(
            self.components["kubectl"], self._settings.kubeconfig("admin"), entering=self.network.entering
        )
        self.disks = Disks(self.kubectl, self.folder / "disks")
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def logs(self) -> Path:
        """Return the folder with each component's output."""
        return self.folder / "logs"

    def up(self) -> None:
        """
        Start it, and wait until its node takes pods.

        Raises
        ------
        CommandFailed
            It is up already, or some step was refused.
        TimeoutError
            A component did not become ready; the text names its log. What had been started is taken down.
        """
        if self.folder.exists():
            raise CommandFailed(f"the cluster {self.name} is up, or was not taken down: {self.folder} exists")
        with ExitStack() as undo:
            undo.callback(self.down)
            self._start_all()
            undo.pop_all()

    def _start_all(self) -> None:
        self.logs.mkdir(parents=True)
        (self.folder / "owner").write_text(str(os.getpid()))
        addresses = self.network.addresses
        certificates = ClusterCertificates(self.folder / "pki", addresses.api_server)
        certificates.server("api", NEEDED_BY_API, (addresses.node, addresses.first_service, "127.0.0.1"))
        for holder, (user, group) in CLIENTS.items():
            certificates.client(holder, user, group, self._settings.kubeconfig(holder))
        self.network.create()
        self._group.create()
        self._settings.write()
        self._make_private()
        for component in ("containerd", "etcd", "kube-apiserver"):
            self.start(component)
        self._wait("kube-apiserver", lambda: self.kubectl("get", "--raw", "/readyz", check=False) == "ok")
        for component in ("kube-controller-manager", "kube-scheduler", "coredns"):
            self.start(component)
        self._wait("containerd", lambda: bool(self._containers("version", check=False)))
        self.load(pause_archive(self.components["pause"]))
        for component in ("kubelet", "kube-proxy"):
            self.start(component)
        ready = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"
        self._wait("kubelet", lambda: self.kubectl("get", "nodes", "--output", ready, check=False) == "True")
        self.kubectl.apply(storage_class())
        self.disks.replenish()
        account = ("get", "serviceaccount", "default", "--output=name")
        self._wait("kube-controller-manager", lambda: bool(self.kubectl(*account, check=False)))

    def _make_private(self) -> None:
        """Start the process that holds the cluster's mount namespace, in which the machine's folders are the cluster's own."""
        script = ["set -e", "mount --make-rprivate /"]
        for folder in PRIVATE:
            private_folder = self.folder / "private" / folder.strip("/").replace("/", "-")
            private_folder.mkdir(parents=True)
            script.append(f"mkdir -p {folder}; mount --bind '{private_folder}' {folder}")
        script.append(f"echo $$ > '{self._keeper}'; exec '{self.components['pause']}'")
        self._spawn("mounts", ["unshare", "--mount", "sh", "-c", "\n".join(script)])
        self._wait("mounts", lambda: self._keeper.exists() and self._keeper.read_text().endswith("\n"))

    @property
    def _keeper(self) -> Path:
        return self.folder / "keeper"

    def _entering(self) -> list[str]:
        return ["nsenter", f"--mount=/proc/{self._keeper.read_text().strip()}/ns/mnt"]

    def start(self, component: str) -> None:
        """Start one component."""
        self._spawn(component, [*self._entering(), *self._settings.commands()[component]])

    def _spawn(self, name: str, words: Sequence[str | Path]) -> None:
        enter = f'echo $$ > {self._group.entrance()} && exec "$@"'
        command = [*self.network.entering, "sh", "-c", enter, name, *words]
        with (self.logs / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                [str(each) for each in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
            )
        self._children.append(child)

    def _wait(self, component: str, is_ready: Callable[[], bool], seconds: float = 600) -> None:
        deadline = time.monotonic() + seconds
        while not is_ready():
            if time.monotonic() > deadline:
                log = self.logs / f"{component}.log"
                raise TimeoutError(f"{component} is not ready after {seconds:.0f} s:\n{log.read_text()[-3000:]}")
            time.sleep(0.2)

    def _containers(self, *arguments: str | Path, check: bool = True, seconds: float = 300) -> str:
        client = ("ctr", "--address", self._settings.socket, "--namespace", "k8s.io")
        return run(*self._entering(), *client, *arguments, check=check, seconds=seconds)

    @contextmanager
    def silent(self, component: str, pod: str = "") -> Iterator[None]:
        """Hold a component, or a program in one pod, still, with its connections open, as a machine in trouble does."""
        processes = self._running(component, pod)
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)

    def kill(self, word: str) -> None:
        """Kill the processes of components or pods that have this word in their command line."""
        for process in self._running(word):
            os.kill(process, signal.SIGKILL)

    def restart(self, component: str) -> None:
        """Kill a component, and start it again when its ports are free."""
        self.kill(component)
        deadline = time.monotonic() + 60
        while self._is_running(component):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{component} does not end")
            time.sleep(0.05)
        self.start(component)

    def _is_running(self, component: str) -> bool:
        try:
            return bool(self._running(component))
        except ProcessLookupError:
            return False

    def _running(self, word: str, pod: str = "") -> list[int]:
        """
        Return the processes, of components or in pods, that have a word, or a path that ends in it, in their command line.

        Parameters
        ----------
        pod
            Only the processes in this pod.

        Raises
        ------
        ProcessLookupError
            There are none.
        """
        folders = []
        for process in self._group.processes():
            try:
                words = Path(f"/proc/{process}/cmdline").read_text().split("\0")
                variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            except OSError:  # it went while it was looked at
                continue
            if pod and f"HOSTNAME={pod}".encode() not in variables:
                continue
            if any(each == word or each.endswith(f"/{word}") for each in words):
                folders.append(process)
        if not folders:
            raise ProcessLookupError(f"{word} does not run in {self.name}")
        return folders

    def load(self, archive: Path) -> None:
        """Import an image archive into the node."""
        self._containers("images", "import", archive)

    def down(self) -> None:
        """Kill it (nothing in it deserves a graceful end) and remove everything that it left; what is not there is no error."""
        self._group.kill()
        while self._children:
            self._children.pop().wait()
        self.network.remove()
        self._group.remove()
        shutil.rmtree(self._runtime, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def sweep() -> list[str]:
    """Take down the clusters whose owner is gone (a test run that was killed); return their names."""
    swept = []
    for owner in (cache_folder() / CLUSTERS).glob("*/owner"):
        if not Path("/proc", owner.read_text()).exists():
            Cluster(owner.parent.name).down()
            swept.append(owner.parent.name)
    return swept
