"""Selects the federation that a command applies to: a run on this machine or one in a cluster."""

from dataclasses import dataclass
from pathlib import Path

import typer

from anchorage.api.errors import AnchorageError, cluster, commands
from anchorage.transport.kube.access import read_kubeconfig
from anchorage.transport.kube.client import KubeClient
from fedctl.cluster_source import ClusterSource
from fedctl.local_source import LocalSource
from fedctl.observation import require_run
from fedctl.source import Source
from fedctl.workdir import DEFAULT_PARENT, Workdir

FIELD_MANAGER = "fedctl"


@dataclass(frozen=True, slots=True)
class Place:
    """The location given on the command line."""

    workdir: Path | None = None
    """A working folder."""
    namespace: str | None = None
    context: str | None = None
    """A place in a cluster."""

    @property
    def names_cluster(self) -> bool:
        """Whether a namespace or a context was given."""
        return self.namespace is not None or self.context is not None


def choose(name: str | None, place: Place) -> Source:
    """Return the selected federation.

    A folder that is named, a run of this name below ``.anchorage``, or the only run there, wins; a namespace or a context that is
    named, or no run here, means the cluster.

    Raises
    ------
    AnchorageError
        There is none, there are several, or the cluster cannot be asked.
    """
    here = run_here(name, place)
    return LocalSource(here) if here is not None else in_cluster(name, place)


def run_here(name: str | None, place: Place) -> Workdir | None:
    """Return the run on this machine that `choose` takes, None if it takes a cluster. Raises as `local_run`."""
    return None if place.names_cluster and place.workdir is None else local_run(name, place)


def local_run(name: str | None, place: Place) -> Workdir | None:
    """Return the selected run on this machine, None if a cluster is selected.

    Raises
    ------
    AnchorageError
        The folder holds no run, or several runs are here and none is named.
    """
    if place.workdir is not None:
        if place.names_cluster:
            raise typer.BadParameter("--workdir names a run on this machine; leave --namespace and --context out")
        run = Workdir(place.workdir.resolve())
        require_run(run)
        return run
    runs = {path.parent.name: path.parent for path in sorted(DEFAULT_PARENT.glob("*/federation.yaml"))}
    if name is None and len(runs) > 1:
        raise AnchorageError(
            commands.NO_RUN_HERE,
            f"found {', '.join(runs)} in {DEFAULT_PARENT.resolve()}; name one, or a cluster's with --namespace",
        )
    run_folder = runs.get(name) if name is not None else next(iter(runs.values()), None)
    return Workdir(run_folder.resolve()) if run_folder is not None else None


def connect(place: Place) -> KubeClient:
    """Return a client for the selected cluster and namespace.

    Raises
    ------
    AnchorageError
        The Kubernetes client is not installed, there is no usable kubeconfig, or the context is unknown.
    """
    return KubeClient(read_kubeconfig(None, place.context, place.namespace), field_manager=FIELD_MANAGER)


def in_cluster(name: str | None, place: Place) -> ClusterSource:
    """Return the selected federation in a cluster.

    Raises
    ------
    AnchorageError
        As `choose`.
    """
    try:
        api = connect(place)
    except AnchorageError as error:
        if place.names_cluster or error.failure is not cluster.KUBECONFIG_UNUSABLE:
            raise
        raise AnchorageError(
            commands.NO_RUN_HERE,
            f"found no run{f' of {name}' if name else ''} in {DEFAULT_PARENT.resolve()}, and no cluster ({error.message})",
        ) from error
    if name is not None:
        return ClusterSource(api, name)
    federations = [item["metadata"]["name"] for item in api.list("Federation", api.namespace)]
    where = f"namespace {api.namespace!r} of context {api.access.context!r}"
    if not federations:
        raise AnchorageError(cluster.NO_SUCH_FEDERATION, f"{where} has no federation; name its namespace with -n")
    if len(federations) > 1:
        raise AnchorageError(cluster.SEVERAL_FEDERATIONS, f"{where} has {', '.join(federations)}; name one")
    return ClusterSource(api, federations[0])
