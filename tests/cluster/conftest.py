"""Fixtures of the cluster tier: one cluster for the whole session, one namespace for each test."""

import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_namespace import Namespace
from cluster_site import CLIENTS, Site, given_kubeconfig
from kube import Cable, missing, sweep

TIER = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a person ask for more faults than the tier takes time for."""
    parser.addoption("--faults", type=int, default=3, help="how many faults test_chaos injects")
    parser.addoption("--seed", type=int, default=7, help="which ones")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder; its waits are bounded one by one, so the clock over all is a long one."""
    for item in items:
        if item.path.is_relative_to(TIER):
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(1800))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Print what a person would look at first when a test fails."""
    report = yield
    if report.failed:
        values = getattr(item, "funcargs", {}).values()
        for namespace in [value for value in values if isinstance(value, Namespace)]:
            report.sections.append((f"namespace {namespace.name}", namespace.diagnosis()))
    return report


def _own_clusters() -> None:
    lacks = missing()
    if lacks:
        lacking = "; ".join(lacks)
        pytest.skip(
            f"no cluster of its own (set ANCHORAGE_TEST_KUBECONFIG to use another): this machine lacks {lacking}"
        )


def _clients() -> None:
    lacking = " and ".join(name for name in CLIENTS if shutil.which(name) is None)
    if lacking:
        pytest.skip(
            f"ANCHORAGE_TEST_KUBECONFIG is set, but {lacking} is not on the PATH; install it, or unset the variable"
        )


@pytest.fixture(scope="session")
def bare_site() -> Iterator[Site]:
    """Give a cluster with nothing of Anchorage in it but images."""
    kubeconfig = given_kubeconfig()
    if kubeconfig is not None:
        _clients()
        yield Site.given(kubeconfig)
        return
    _own_clusters()
    sweep()
    running = os.environ.get("ANCHORAGE_TEST_CLUSTER")
    if running:  # while tests are written: one that `python -m kube up` started, and that stays
        yield Site.named(running)
        return
    with Site.started(f"coordinator-{os.getpid()}") as site:
        yield site


@pytest.fixture(scope="session")
def site(bare_site: Site) -> Site:
    """Give a cluster that has the CRDs."""
    return bare_site.with_definitions()


@pytest.fixture
def namespace(site: Site) -> Iterator[Namespace]:
    """Give a namespace that enforces the restricted Pod Security Standard."""
    with Namespace.made(site) as made:
        yield made


@pytest.fixture
def started(namespace: Namespace) -> Namespace:
    """Give a namespace in which charts/anchorage is installed."""
    namespace.install_chart()
    return namespace


@pytest.fixture(scope="module")
def other_site(site: Site) -> Iterator[Site]:
    """Give a second cluster, which knows nothing of Anchorage."""
    if site.cluster is None:
        pytest.skip("two clusters are started by the tests themselves: not with ANCHORAGE_TEST_KUBECONFIG")
    with Site.started(f"hospital-{os.getpid()}") as other:
        yield other


@pytest.fixture
def hospital(other_site: Site) -> Iterator[Namespace]:
    """Give the hospital's namespace."""
    with Namespace.made(other_site, "hospital") as made:
        yield made


@pytest.fixture
def cable(site: Site, other_site: Site) -> Iterator[Cable]:
    """Give the cable between the sites, plugged in."""
    assert site.cluster is not None
    assert other_site.cluster is not None
    cable = Cable(site.cluster.network, other_site.cluster.network)
    cable.plug()
    try:
        yield cable
    finally:
        cable.unplug()
