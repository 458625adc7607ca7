"""Commands and programs of a page of docs/, run as they stand there."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 800
"""Only a hang takes so long."""


def blocks(page: str, heading: str, language: str) -> list[str]:
    """Return a page's code under a heading."""
    section = (ROOT / "docs" / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def environment_in(place: Path) -> Mapping[str, str]:
    """Return an environment whose `fedctl` is this checkout's."""
    folder = place / "bin"
    folder.mkdir()
    (folder / "fedctl").write_text(f'#!/bin/sh\nexec {sys.executable} -m fedctl.main "$@"\n')
    (folder / "fedctl").chmod(0o755)
    path = os.pathsep.join((str(folder), str(Path(sys.executable).parent), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}


def without_anchorage_in(place: Path, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return an environment in which an import of this project fails."""
    hidden = place / "hidden"
    hidden.mkdir()
    refusal = "raise ImportError('a registered model imports nothing of Anchorage')\n"
    for name in ("anchorage", "anchorage_server", "fedctl"):
        (hidden / f"{name}.py").write_text(refusal)
    return {**environment, "PYTHONPATH": str(hidden)}


def sh(script: str, place: Path, environment: Mapping[str, str]) -> str:
    """Run a script and return its standard output."""
    done = subprocess.run(
        ["bash", "-euc", script], cwd=place, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(program: str, place: Path, environment: Mapping[str, str]) -> Any:
    """Run a program and return the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=place, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@contextmanager
def serving(script: str, printed_port: str, place: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Run a script that serves a model, on a free port in the place of the printed one, which it yields."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    log = place / "serve.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["bash", "-euc", script.replace(printed_port, port)],
            cwd=place,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                out.write(line)
                if b"Uvicorn running on" in line:  # "Application startup complete" comes before the port is open
                    break
            else:
                pytest.fail(log.read_text())
            yield port
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=SECONDS)
