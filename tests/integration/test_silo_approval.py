"""Review and approval with an agent's process: nothing runs before the hospital has approved it, nor after a change."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from silo_site import HURRIED, WAIT_SECONDS, Agent, Site, audit_of
from test_silo_pod import POD, play

from anchorage_silo.limits import PLAYED_AGAIN


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def command(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "anchorage_silo", *words, "--config", str(config)]
    return subprocess.run(line, capture_output=True, text=True, timeout=WAIT_SECONDS)


def test_without_a_policy_more_than_one_update_waits_for_approval(site: Site) -> None:
    config = site.configuration("a", **POD, policy=None)
    agent = Agent(config, code=HURRIED)
    try:
        agent.await_line("ANC-2214 ApprovalNeeded")
        review = json.loads(command(config, "review", "-o", "json").stdout)
        assert review["needsApproval"] and review["policy"] == {}
        assert command(config, "approve", review["digest"]).returncode == 0
        site.joined()
        assert [line["kind"] for line in audit_of(config)] == ["enrol", "approval", "join"]
    finally:
        agent.signal(signal.SIGTERM)
        agent.close()


def test_waits_for_approval_and_again_after_a_change(site: Site) -> None:
    (site.folder / "policy.yaml").write_text('requireApproval: true\nrelativeNoise: "0"\n')
    config = site.configuration("a", **POD, policy=str(site.folder / "policy.yaml"))
    early = command(config, "review")
    assert early.returncode == 4 and early.stderr.splitlines()[-1].startswith("ANC-2201 NotEnrolled")
    agent = Agent(config, code=HURRIED)
    try:
        agent.await_line("Federation derm asks silo a")
        agent.await_line("ANC-2214 ApprovalNeeded")
        assert agent.await_ready("ANC-2214 ApprovalNeeded") == 200
        first = json.loads(command(config, "review", "-o", "json").stdout)
        assert first["updates"] == 3 + PLAYED_AGAIN and first["stages"][0]["method"] == "FedAvg"
        wrong = command(config, "approve", "0" * 64)
        assert wrong.returncode == 2 and "ANC-2215 ApprovalOutdated" in wrong.stderr
        assert "join" not in [line["kind"] for line in audit_of(config)]

        assert command(config, "approve", first["digest"]).returncode == 0
        site.joined()
        play(site, 1)
        site.link.finish("all rounds are committed")
        assert agent.await_ready("Finished") == 200
        site.stop_link()
        site.describe(site.run.model_copy(update={"rounds": 5}))
        site.start_link()
        assert agent.await_ready("ANC-2214 ApprovalNeeded") == 200
        assert f"Digest: {first['digest']}" not in command(config, "review").stdout
        kinds = [line["kind"] for line in audit_of(config)]
        assert kinds == ["enrol", "approval", "join", "announce", "update"]

        second = json.loads(command(config, "review", "-o", "json").stdout)
        assert command(config, "approve", second["digest"]).returncode == 0
        site.joined()
        play(site, 2)
        digests = [line["digest"] for line in audit_of(config) if line["kind"] == "approval"]
        assert digests == [first["digest"], second["digest"]]
        lines = len(audit_of(config))
        verification = command(config, "audit", "verify")
        assert (
            verification.returncode == 0
            and f"is whole: {lines} lines" in verification.stdout
            and "2 approval" in verification.stdout
        )
    finally:
        agent.signal(signal.SIGTERM)
        agent.close()
    log = config.parent / "state" / "audit.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    cut = command(config, "audit", "verify")
    assert (
        cut.returncode == 6
        and "ANC-2220 AuditBroken" in cut.stderr
        and f"has {lines - 1} lines, and had {lines}" in cut.stderr
    )
