"""What trainers of a run on this machine are forked from."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from anchorage.api.fork_server import asking
from fedctl.shared_imports import MODULES, shared_imports
from fedctl.workdir import Workdir

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="fork servers are for Linux")


@pytest.fixture
def run(tmp_path: Path) -> Workdir:
    workdir = Workdir(tmp_path / "run")
    workdir.make()
    return workdir


def test_imports_look_for_no_gpu() -> None:
    """A process whose parent has asked the CUDA driver anything can use no GPU."""
    code = (
        "import torch\n"
        "def refuse(*_): raise AssertionError('an import asks the driver')\n"
        "torch.cuda.is_available = torch.cuda.device_count = torch._C._cuda_getDeviceCount = refuse\n"
        f"from importlib import import_module\nfor module in {MODULES!r}: import_module(module)\n"
        "assert not torch.cuda.is_initialized()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@ON_LINUX
def test_processes_are_forked_until_the_block_ends(run: Workdir) -> None:
    with shared_imports(run) as number:
        assert number is not None
        command = asking([sys.executable, "-m", "anchorage_silo.trainer"], number)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(number,)) as trainer:
            (server,) = (each for each in psutil.Process().children() if "fedctl.shared_imports" in each.cmdline())
            assert trainer.stdin is not None
            trainer.stdin.close()
            assert trainer.wait(120) == 0, "a trainer ends when its agent does"
        assert server.is_running() and server.status() != psutil.STATUS_ZOMBIE
    assert not server.is_running()


@pytest.mark.parametrize("wanted", [True, False])
def test_without_forks_each_process_imports_for_itself(
    run: Workdir, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if wanted:
        monkeypatch.setattr(sys, "platform", "darwin")
    with shared_imports(run, wanted=wanted) as number:
        assert number is None and not list((run.root / "logs").iterdir())
