"""The starter itself: sites are apart unless a cable joins them, and what is down has left nothing."""

import json
import os
from pathlib import Path

import pytest
from cluster_namespace import Namespace
from cluster_site import CHECKOUT, Site
from kube import Cable, Cluster
from kube.commands import CommandFailed, run
from kube.network import HERE, IPV4, IPV6


def reaches(cluster: Cluster, address: str) -> bool:
    """Tell whether the cluster's network has an API server at this address."""
    connect = f"exec 3<>/dev/tcp/{address}/6443"
    try:
        cluster.network.inside("timeout", "10", "bash", "-c", connect)
    except CommandFailed:
        return False
    return True


def test_sites_are_apart_unless_a_cable_joins_them(site: Site) -> None:
    if site.cluster is None:
        pytest.skip("two clusters are started by the tests themselves: not with ANCHORAGE_TEST_KUBECONFIG")
    with Site.started(f"other-{os.getpid()}", with_images=False) as other:
        assert other.cluster is not None
        _join_and_part(site.cluster, other.cluster)


def _join_and_part(here: Cluster, there: Cluster) -> None:
    assert reaches(there, IPV4.node), "its own API server"
    assert not reaches(there, HERE)
    cable = Cable(here.network, there.network)
    cable.plug()
    try:
        assert reaches(there, HERE)
        cable.cut()
        assert not reaches(there, HERE)
        cable.mend()
        assert reaches(there, HERE)
    finally:
        cable.unplug()
    assert not reaches(there, HERE)


def test_a_cluster_of_ipv6_alone_runs_the_example_and_leaves_nothing(site: Site) -> None:
    if site.cluster is None:
        pytest.skip("a given cluster is nobody's to take down")
    name = f"brief-{os.getpid()}"
    with Site.started(name, addresses=IPV6) as brief:
        used = brief.cluster
        assert used is not None
        assert used.folder.exists()
        with Namespace.made(brief.with_definitions()) as namespace:
            _runs_the_example(namespace)
    assert not used.folder.exists()
    assert name not in run("ip", "netns", "list")
    assert name not in run("ps", "-e", "-o", "args")
    assert name not in Path("/proc/self/mountinfo").read_text()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/anchorage-{name}"))
    assert not Path(f"/run/anchorage-{name}").exists()


def _runs_the_example(namespace: Namespace) -> None:
    namespace.install_chart("--set", "mlflow.enabled=true")
    namespace.kubectl("apply", "--filename", CHECKOUT / "examples" / "digits.yaml")
    namespace.kubectl("wait", "--for=condition=Succeeded", "federation/digits", "--timeout=600s", seconds=630)
    namespace.eventually(
        "MLflow has the run", lambda: namespace.condition("federation", "digits", "Tracked")["status"] == "True"
    )
    assert len(json.loads(namespace.fedctl("rounds", "digits", "-o", "json"))) == 16


def test_a_pod_that_is_not_restricted_is_refused(namespace: Namespace) -> None:
    container = {"name": "root", "image": "localhost/anchorage-server:1", "securityContext": {"privileged": True}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root"}, "spec": {"containers": [container]}}
    with pytest.raises(CommandFailed, match="violates PodSecurity"):
        namespace.apply(pod)
