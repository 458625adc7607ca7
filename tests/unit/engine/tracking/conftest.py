"""Stores of MLflow."""

import shutil
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory) -> Path:
    """A store without experiments; making its tables takes seconds."""
    path: Path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def uri(tmp_path, empty_store) -> str:
    shutil.copyfile(empty_store, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"
