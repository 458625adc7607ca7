import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from anchorage_silo.trainer_environment import CACHES, trainer_environment


def test_a_home_that_can_be_written_is_kept(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "USER": "ada", "LOGNAME": "ada", "OTHER": "1"}
    assert trainer_environment(environment) == environment


@pytest.mark.parametrize("home", [{}, {"HOME": ""}, {"HOME": "/nowhere"}])
def test_without_a_home_everything_that_is_written_goes_where_it_can(home: dict[str, str]) -> None:
    environment = trainer_environment({**home, "PATH": "/bin", "TORCH_HOME": "/models"})
    scratch = tempfile.gettempdir()
    assert (environment["HOME"], environment["PATH"], environment["TORCH_HOME"]) == (scratch, "/bin", "/models")
    assert all(environment[name] == str(Path(scratch, CACHES[name])) for name in CACHES if name != "TORCH_HOME")


@pytest.mark.parametrize("writable", [True, False])
def test_a_confined_trainer_has_its_caches_and_temporary_files_where_it_may_write(
    tmp_path: Path, writable: bool
) -> None:
    home = str(tmp_path) if writable else "/nowhere"
    environment = trainer_environment({"HOME": home, "TORCH_HOME": "/models", "TMPDIR": "/scratch"}, tmp_path / "own")
    own_folder = str(tmp_path / "own")
    assert (environment["HOME"], environment["TMPDIR"], environment["TORCH_HOME"]) == (
        home if writable else own_folder,
        own_folder,
        "/models",
    )
    assert all(environment[name] == str(tmp_path / "own" / CACHES[name]) for name in CACHES if name != "TORCH_HOME")


def test_a_user_without_a_name_has_one() -> None:
    code = "import getpass, pathlib; print(getpass.getuser(), pathlib.Path.home())"
    environment = trainer_environment({name: value for name, value in os.environ.items() if name != "HOME"})
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split()[1] == tempfile.gettempdir()
