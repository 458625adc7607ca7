"""New SQLite stores of MLflow."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from mlflow.store.db import utils as db_utils
from mlflow.store.tracking.dbmodels.initial_models import Base as InitialBase
from mlflow.tracking import MlflowClient

from anchorage.engine.tracking.sqlite_store import make_store


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """The user's folder of what can be made again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "anchorage"


@pytest.fixture
def making(monkeypatch, empty_store) -> list[Path]:
    """Stores whose tables MLflow made, by a copy, as making them takes seconds."""
    made: list[Path] = []

    def make(engine):
        made.append(Path(engine.url.database))
        shutil.copyfile(empty_store, made[-1])
        with closing(sqlite3.connect(made[-1])) as store, store:
            store.execute("DELETE FROM experiments")

    monkeypatch.setattr(db_utils, "_initialize_tables", make)
    return made


def folder_of(name: str, tmp_path: Path) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    return folder


def default_location(file: Path) -> str:
    experiment = MlflowClient(f"sqlite:///{file}").get_experiment("0")
    return str(experiment.artifact_location)


def test_the_second_store_is_a_copy_with_an_experiment_of_its_own_folder(tmp_path, monkeypatch, cache, making):
    for name in ("first", "second"):
        folder = folder_of(name, tmp_path)
        monkeypatch.chdir(folder)
        make_store(folder / "mlflow.db")
    assert len(making) == 1 and default_location(tmp_path / "second" / "mlflow.db").startswith(str(tmp_path / "second"))
    with closing(sqlite3.connect(*cache.iterdir())) as template:
        assert template.execute("SELECT count(*) FROM experiments").fetchone() == (0,)


def test_a_damaged_template_is_replaced(tmp_path, cache, making):
    make_store(folder_of("first", tmp_path) / "mlflow.db")
    (template,) = cache.iterdir()
    for damaged in (b"", template.read_bytes()[:20_000], b"not a store" * 1_000):
        template.write_bytes(damaged)
        file = folder_of(f"after-{len(damaged)}", tmp_path) / "mlflow.db"
        make_store(file)
        assert MlflowClient(f"sqlite:///{file}").search_experiments()
        assert template.read_bytes()[:15] == b"SQLite format 3" and template.stat().st_size > 20_000
    assert len(making) == 4


def test_a_store_is_made_without_a_home_and_where_none_can_be_written(tmp_path, monkeypatch, making):
    def refuse(path):
        raise RuntimeError("Could not determine home directory.")

    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    make_store(folder_of("unwritable", tmp_path) / "mlflow.db")
    monkeypatch.setattr(Path, "expanduser", refuse)
    make_store(folder_of("homeless", tmp_path) / "mlflow.db")
    assert len(making) == 2 and (tmp_path / "homeless" / "mlflow.db").stat().st_size > 20_000


def test_a_store_whose_making_was_cut_off_is_made_again(tmp_path, monkeypatch, cache):
    file = folder_of("run", tmp_path) / "mlflow.db"
    tables = db_utils._initialize_tables

    def cut_off(engine):
        InitialBase.metadata.create_all(engine)
        raise KeyboardInterrupt

    monkeypatch.setattr(db_utils, "_initialize_tables", cut_off)
    with pytest.raises(KeyboardInterrupt):
        make_store(file)
    assert not list(file.parent.iterdir()) and not cache.exists()
    monkeypatch.setattr(db_utils, "_initialize_tables", tables)
    make_store(file)
    assert MlflowClient(f"sqlite:///{file}").search_experiments() and list(file.parent.iterdir()) == [file]


@pytest.mark.usefixtures("cache", "making")
def test_a_store_is_made_where_there_are_no_hard_links(tmp_path, monkeypatch):
    def refuse(source, target):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    folder = folder_of("run", tmp_path)
    make_store(folder / "mlflow.db")
    assert {file.name for file in folder.iterdir()} == {"mlflow.db", ".mlflow.db.lock"}
