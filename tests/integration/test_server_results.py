"""A run that was stopped for good: a process keeps its rounds and models at hand, without training."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from anchorage_server.readers import reading

CONFIG = """
federation: federation.yaml
state: state
statusListen: 127.0.0.1:0
controlListen: 127.0.0.1:0
tls: tls
"""


@pytest.mark.integration
def test_it_stays_until_a_signal_comes_and_nobody_reads(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "server.yaml").write_text(CONFIG)
    command = [sys.executable, "-m", "anchorage_server.results", "--config", str(tmp_path / "server.yaml")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None and "keeping the results" in process.stderr.readline()
        with reading(tmp_path / "state"):
            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
        assert process.wait(60) == 0


@pytest.mark.integration
def test_a_configuration_that_is_wrong_is_told_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "anchorage_server.results", "--config", str(tmp_path / "absent.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and done.stderr.startswith("ANC-") and "Traceback" not in done.stderr
