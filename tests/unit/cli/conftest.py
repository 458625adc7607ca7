"""No test of the command line meets a cluster by accident; `cluster_api` is an API server that the kubeconfig names."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_api.server import FakeApi


@pytest.fixture(autouse=True)
def no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))


@pytest.fixture
def cluster_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    monkeypatch.chdir(tmp_path)
    api = FakeApi().start()
    api.page = 2  # so that every test turns pages
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))
    yield api
    api.stop()
