"""A mistake in a piece of another author ends a federation of real processes at once, with a message that names it."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from mistaken_package import MODULE, documents, lay_out, line_of, plugin
from package_environment import environment_with

from anchorage.api.errors.learning import PIECE_WRONG
from anchorage_silo.kept_output import OUTPUT_FILE

pytest.importorskip("sklearn")
pytestmark = pytest.mark.outside_package


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Lay the package out as `pip` would."""
    folder = tmp_path_factory.mktemp("site")
    lay_out(folder)
    return environment_with(folder)


def fedctl(
    environment: Mapping[str, str], folder: Path, command: str, method: Mapping[str, object]
) -> subprocess.CompletedProcess[str]:
    (folder / "mistaken.yaml").write_text(documents(method))
    arguments = [command, "-f", "mistaken.yaml", "--workdir", "run"]
    return subprocess.run(
        [sys.executable, "-m", "fedctl.main", *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_an_exception_at_the_server_ends_the_run(environment: Mapping[str, str], tmp_path: Path) -> None:
    done = fedctl(environment, tmp_path, "run", {"weighting": plugin("acme.RaisingWeights")})
    assert done.returncode == PIECE_WRONG.exit_code, done.stdout + done.stderr
    assert "restarting" not in done.stdout + done.stderr
    line, page = done.stderr.splitlines()[-2:]
    assert line.startswith(f"ANC-1312 PieceWrong: weighting acme.RaisingWeights ({MODULE}.py:")
    assert line.endswith(f"weigh raised KeyError at {MODULE}.py:{line_of('raise KeyError')}: 'similarity'")
    assert page == "see fedctl explain ANC-1312"
    assert "Traceback" not in done.stdout + done.stderr
    log = (tmp_path / "run" / "logs" / "server.log").read_text()
    assert "Traceback (most recent call last)" in log and "raise KeyError" in log
    assert log.count('"a piece of the method raised an exception"') == 1


def test_an_exception_at_a_silo_ends_the_run(environment: Mapping[str, str], tmp_path: Path) -> None:
    done = fedctl(environment, tmp_path, "run", {"localLoss": plugin("acme.RaisingLoss")})
    output = done.stdout + done.stderr
    assert done.returncode == PIECE_WRONG.exit_code, output
    assert "restarting" not in output and "Traceback" not in output
    line = done.stderr.splitlines()[-2]
    assert line.startswith("ANC-1312 PieceWrong: silo clinic-")
    assert f"localLoss acme.RaisingLoss ({MODULE}.py:" in line
    assert f"loss.loss raised ValueError at {MODULE}.py:{line_of('raise ValueError')}" in line
    logs = [(tmp_path / "run" / "logs" / f"clinic-{number}.log").read_text() for number in range(3)]
    assert any("an exception in the trainer process: " in log and "ValueError at " in log for log in logs)
    logs.append((tmp_path / "run" / "logs" / "server.log").read_text())
    assert not any("patient 17" in text for text in (*logs, output)), "its text stays at the silo"
    outputs = [file.read_text() for file in (tmp_path / "run").rglob(OUTPUT_FILE)]
    assert any("Traceback (most recent call last)" in text and "patient 17" in text for text in outputs)


def test_a_simulation_keeps_the_traceback_in_a_file(environment: Mapping[str, str], tmp_path: Path) -> None:
    done = fedctl(environment, tmp_path, "simulate", {"localLoss": plugin("acme.RaisingLoss")})
    assert done.returncode == PIECE_WRONG.exit_code, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr.splitlines()[-2].endswith(": no temperature for patient 17")
    assert "traceback.txt" in done.stdout
    assert "raise ValueError" in (tmp_path / "run" / "traceback.txt").read_text()
