"""New SQLite stores of MLflow, whose tables take MLflow ten seconds of processor time: made once for each version, and copied from then on."""

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

import mlflow
from mlflow.tracking import MlflowClient

from anchorage.transport.files import place_once, replacing


def make_store(file: Path) -> None:
    """Put a whole store where there is no file: MLflow refuses for ever a store whose making was cut off.

    Raises
    ------
    OSError
        The folder is missing, full or not writable.
    """
    if file.exists():
        return
    template = _template()
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "mlflow.db"
        if template is None or not _copy(template, made):
            MlflowClient(f"sqlite:///{made}").search_experiments(max_results=1)
            if template is not None:
                _keep(made, template)
        temporary = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            shutil.copyfile(made, temporary)
            with suppress(FileExistsError):  # another federation's sender was first
                place_once(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)


def _template() -> Path | None:
    """Return the place of a store without experiments, in the user's folder of what can be made again; None where the user has no home."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    except RuntimeError:
        return None
    return cache / "anchorage" / f"mlflow-{mlflow.__version__}.db"


def _copy(template: Path, made: Path) -> bool:
    """Copy the template, where there is one and it is whole."""
    try:
        shutil.copyfile(template, made)
        with closing(sqlite3.connect(made)) as store:
            intact = store.execute("PRAGMA quick_check").fetchone() == ("ok",)
            if intact and store.execute("SELECT count(*) FROM alembic_version").fetchone() == (1,):
                return True
    except (OSError, sqlite3.Error):
        pass
    made.unlink(missing_ok=True)
    return False


def _keep(made: Path, template: Path) -> None:
    """Keep a new store without its experiment, which MLflow makes again with the folder of whoever opens it; where that cannot be, do without."""
    with suppress(OSError, sqlite3.Error):
        template.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(template, durable=True, shared=True) as temporary:
            shutil.copyfile(made, temporary)
            with closing(sqlite3.connect(temporary)) as store, store:
                store.execute("DELETE FROM experiments")
