"""Fixtures of the charts' tests."""

from pathlib import Path

import pytest
from helm_charts import Helm, find_helm


@pytest.fixture(scope="session")
def helm_program() -> Path:
    """Give the path of helm, or skip."""
    return find_helm()


@pytest.fixture
def helm(helm_program: Path, tmp_path: Path) -> Helm:
    """Give the charts, rendered by helm."""
    return Helm(helm_program, tmp_path)
