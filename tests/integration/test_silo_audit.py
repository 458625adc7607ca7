"""The audit log with an agent's process: an older copy of the whole log is noticed by verify and at the next start, and training goes on."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from silo_site import WAIT_SECONDS, Agent, Site, audit_of
from test_silo_agent import play

from anchorage.transport.messages import Left


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def verify(config: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "anchorage_silo", "audit", "verify", "--config", str(config)]
    return subprocess.run(line, capture_output=True, text=True, timeout=WAIT_SECONDS)


def stop(site: Site, agent: Agent) -> None:
    agent.signal(signal.SIGTERM)
    agent.wait()
    site.event(Left)


def test_an_older_copy_of_the_log_is_noticed_and_training_goes_on(site: Site) -> None:
    config = site.configuration("a")
    state, copy = config.parent / "state", config.parent / "copy"
    agent = Agent(config)
    try:
        site.joined()
        play(site, "a", 1)
        verification = verify(config)
        assert verification.returncode == 0, verification.stderr
        assert verification.stdout.splitlines()[-1] == "the server keeps the head of 3 lines, which is of this log"
        stop(site, agent)
        shutil.copytree(state, copy)
        agent = Agent(config)
        site.joined()
        play(site, "a", 2)
        stop(site, agent)
        lines = len(audit_of(config))

        for path in copy.glob("audit.*"):
            shutil.copy2(path, state)
        rolled_back = verify(config)
        assert rolled_back.returncode == 6 and "is whole" in rolled_back.stdout
        last_line = rolled_back.stderr.splitlines()[-1]
        assert last_line.startswith("ANC-2225 AuditRolledBack") and f"the head of {lines - 1}" in last_line

        site.stop_link()
        site.start_link()  # what the server keeps outlives it
        agent = Agent(config)
        agent.await_line("ANC-2225 AuditRolledBack")
        site.joined()
        play(site, "a", 3)
        play(site, "a", 4)
        stop(site, agent)
        kinds = [line["kind"] for line in audit_of(config)]
        assert kinds.count("rollback") == 1 and len(kinds) > lines
        later = verify(config)
        assert later.returncode == 6 and f"line {kinds.index('rollback') + 1} of" in later.stderr
    finally:
        agent.close()
    site.stop_link()
    for path in state.glob("audit.*"):
        path.unlink()
    alone = verify(config)
    assert alone.returncode == 0 and "not compared with the head that the server keeps: ANC-" in alone.stdout
