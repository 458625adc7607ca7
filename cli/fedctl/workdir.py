"""The working folder of a federation's run on this machine: its files and its lock."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
import yaml

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.regular_files import open_regular, read_regular
from fedctl.writing import ANOTHER_WORKDIR, writing

DEFAULT_PARENT = Path(".anchorage")


@dataclass(frozen=True, slots=True)
class Workdir:
    """Paths of a run."""

    root: Path
    """The folder, absolute."""

    @property
    def federation(self) -> Path:
        """The documents of the run, with all overrides applied."""
        return self.root / "federation.yaml"

    @property
    def simulation(self) -> Path:
        """The documents of a simulation; a folder holds them or a run's, never both."""
        return self.root / "simulation.yaml"

    @property
    def authority(self) -> Path:
        """The federation's certificate authority and the silos' enrolment tokens."""
        return self.root / "authority"

    @property
    def server(self) -> Path:
        """The server's state."""
        return self.root / "server"

    @property
    def server_config(self) -> Path:
        """The server's configuration."""
        return self.root / "server.yaml"

    @property
    def endpoints(self) -> Path:
        """The addresses of the server, which writes them when it is ready."""
        return self.server / "endpoints.json"

    @property
    def status(self) -> Path:
        """The status that the server writes at every commit and at its end."""
        return self.server / "status.json"

    @property
    def journal(self) -> Path:
        """One line per committed round."""
        return self.server / "journal.jsonl"

    @property
    def model(self) -> Path:
        """The final and the best model."""
        return self.server / "model"

    @property
    def outbox(self) -> Path:
        """What waits for MLflow."""
        return self.server / "outbox"

    @property
    def report(self) -> Path:
        """The page about the run."""
        return self.root / "report.html"

    @property
    def anchors_alone(self) -> Path:
        """The metrics of training on the anchors alone."""
        return self.root / "anchors_alone.json"

    @property
    def sites_alone(self) -> Path:
        """The metrics of training at each silo with labels alone."""
        return self.root / "sites_alone.json"

    @property
    def tracking_uri(self) -> str:
        """The MLflow store of a federation that names none."""
        return f"sqlite:///{self.root / 'mlflow.db'}"

    @property
    def data_root(self) -> Path | None:
        """The data root of the run's last start; None before the first."""
        try:
            values = yaml.safe_load(read_regular(self.server_config))
            return Path(values["dataRoot"])
        except (OSError, yaml.YAMLError, KeyError, TypeError):
            return None

    def silo(self, name: str) -> Path:
        """Return an agent's own folder."""
        return self.root / "silos" / name

    def silo_config(self, name: str) -> Path:
        """Return an agent's configuration."""
        return self.silo(name) / "silo.yaml"

    def log(self, name: str) -> Path:
        """Return the log of the server or of a silo's agent."""
        return self.root / "logs" / f"{name}.log"

    def make(self) -> None:
        """Make the folders that the run writes into.

        Raises
        ------
        AnchorageError
            One of them cannot be made.
        """
        for folder in (self.root, self.server, self.root / "silos", self.root / "logs"):
            with writing(folder, ANOTHER_WORKDIR):
                folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder against other runs until the block ends.

        Raises
        ------
        AnchorageError
            Another run works here, or the lock file cannot be made.
        """
        path = self.root / "lock"
        with writing(path, ANOTHER_WORKDIR):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise AnchorageError(
                commands.WORKDIR_BUSY, f"another fedctl works in {self.root}; wait for it or name another --workdir"
            ) from None
        finally:
            os.close(handle)

    def busy(self) -> bool:
        """Return whether a run holds the lock."""
        path = self.root / "lock"
        if not path.exists():
            return False
        with open_regular(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


def remembered_folder(name: str) -> Path:
    """Return the folder of a federation's run where none is named: ``.anchorage/NAME``, or where its link (`remember_folder`) leads."""
    folder = DEFAULT_PARENT / name
    if folder.is_symlink() and not folder.exists():
        folder.unlink()  # the run that it led to was removed
    return folder.resolve()


def choose_data_root(name: str, file: Path, wanted: Path | None, run: Workdir | None = None) -> Path:
    """Return the folder that claims name folders of, absolute.

    Parameters
    ----------
    name : str
        The federation.
    file : Path
        Its documents, whose folder is taken where nothing else is known.
    wanted : Path or None
        What was asked for; None takes the one of the last start of `run`, and says so.
    run : Workdir, optional
        Its run; None: the one that is found without a path.
    """
    run, file_folder = run or Workdir(remembered_folder(name)), file.parent.resolve()
    root = (wanted or run.data_root or file_folder).resolve()
    if wanted is None and root != file_folder:
        typer.echo(f"images below {root}, as before; --data-root names another folder", err=True)
    return root


def remember_folder(name: str, run: Workdir) -> None:
    """Make ``.anchorage/NAME`` a link to a run's folder elsewhere, by which it is found without its path; a run that is there itself stays."""
    link = DEFAULT_PARENT / name
    if link.resolve() == run.root or (link.exists() and not link.is_symlink()):
        return
    with suppress(OSError):  # such as a folder that may only be read: then the run is found by --workdir alone
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(run.root)


def read_json(path: Path) -> Any:
    """Return the content of a small JSON file, None if it is missing or incomplete."""
    try:
        return json.loads(read_regular(path))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
