"""Servers and agents that are killed, stopped or run out of disk at a given moment of a round: nothing committed is lost, nothing counts twice."""

import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from federation_documents import WEIGHTS, null_study
from federation_in_process import null_digest
from federation_processes import SIGKILLED, Site, condition
from safetensors.numpy import load_file

NBYTES = sum(array.nbytes for array in WEIGHTS.values())

MOMENTS = [
    ("dispatched", "SIGKILL", 2),
    ("Uploading", "SIGKILL", 2),
    ("Uploading", "SIGTERM", None),
    ("Arrived", "SIGKILL", 1),
    ("aggregate", "SIGKILL", 0),
    ("server training", "SIGKILL", 0),
    ("dispatch", "SIGKILL", 0),
    ("evaluate", "SIGKILL", 0),
    ("commit", "SIGKILL", 0),
    ("renamed", "SIGKILL", 0),
    ("torn", "SIGKILL", 0),
    ("committed", "SIGKILL", 2),
]
"""Where the server ends in one round after the other, how, and how many updates the next server still needs for that round."""


def test_a_server_may_end_at_every_moment_of_a_round(tmp_path: Path) -> None:
    """The agents live through twelve ends of their server; updates that arrived whole are not sent again."""
    with Site(null_study(tmp_path, rounds=len(MOMENTS) + 1)) as site:
        assert site.server("torn", 0, "SIGKILL").end() == SIGKILLED
        agents = []
        for number, (place, action, _) in enumerate(MOMENTS, 1):
            server = site.server(place, number, action)
            agents = agents or [site.null_agent("a"), site.null_agent("b")]
            status = server.end()
            assert status == (SIGKILLED if action == "SIGKILL" else 5), (place, server.lines)
            if action == "SIGTERM":
                assert server.last_line.startswith("ANC-3008 Stopped: received SIGTERM")
                assert condition(site.left_status(), "Failed")[0] == "False"
            assert all(agent.running for agent in agents)
        site.finish(site.server(), *agents)
        assert site.digest() == null_digest(site.study)
        records = site.records()
        assert [record["round"] for record in records] == list(range(len(MOMENTS) + 2))
        needed = [count for _, _, count in MOMENTS]
        sent = [record["bytesUp"] / NBYTES for record in records[1:-1]]
        assert [s for s, n in zip(sent, needed, strict=True) if n is not None] == [n for n in needed if n is not None]


def test_agents_and_trainers_may_be_killed_around_an_update(tmp_path: Path) -> None:
    with Site(null_study(tmp_path, rounds=3)) as site:
        server = site.server()
        steady = site.null_agent("b", "trained", 2, "SIGKILL")
        for place, number in (("kept", 1), ("announced", 3)):
            assert site.null_agent("a", place, number, "SIGKILL").end() == SIGKILLED
        site.finish(server, site.null_agent("a"), steady)
        assert any("the trainer process was lost during 2.train." in line for line in steady.lines)
        assert site.digest() == null_digest(site.study)


def test_a_finished_run_goes_on_when_it_is_given_more_rounds(tmp_path: Path) -> None:
    with Site(null_study(tmp_path)) as site:
        site.finish(site.server(), site.null_agent("a"), site.null_agent("b"))
        longer = null_study(tmp_path / "longer", rounds=4)
        shutil.copy(longer.file, site.workdir.federation)
        site.finish(site.server(), site.null_agent("a"), site.null_agent("b"))
        assert site.digest() == null_digest(longer)
        assert condition(site.left_status(), "Succeeded")[:2] == ("True", "AllRoundsCommitted")


def test_a_damaged_checkpoint_costs_one_round_and_is_told(tmp_path: Path) -> None:
    with Site(null_study(tmp_path, rounds=3)) as site:
        server = site.server("committed", 2, "SIGKILL")
        agents = [site.null_agent("a"), site.null_agent("b")]
        assert server.end() == SIGKILLED
        path = site.workdir.server / "checkpoints" / "round-000002.safetensors"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        for agent in agents:
            agent.signal(signal.SIGSTOP)
        server = site.server()
        status, _, message = condition(site.status(), "Ready")
        assert status == "True" and str(path) in message and "round 2 is played again" in message
        for agent in agents:
            agent.signal(signal.SIGCONT)
        server.wait_for("played again", round=2, same=True)
        site.finish(server, *agents)
        assert any("ANC-3106 CheckpointDamaged" in line for line in server.lines)
        assert site.digest() == null_digest(site.study)
        assert [record["round"] for record in site.records()] == list(range(4))


@pytest.mark.parametrize("place", ["dispatched", "commit", "renamed"])
def test_a_full_disk_ends_the_run_and_takes_nothing(place: str, tmp_path: Path) -> None:
    with Site(null_study(tmp_path)) as site:
        number = 1 if place == "dispatched" else 2
        server = site.server(place, number, "full")
        agents = [site.null_agent("a"), site.null_agent("b")]
        assert server.end() == 6, server.lines
        assert server.last_line.startswith("ANC-3101 DiskFull: cannot "), server.lines
        assert not any("Traceback" in line for line in server.lines)
        assert [record["round"] for record in site.records()] == list(range(number))
        checkpoint = load_file(site.workdir.server / "checkpoints" / f"round-{number - 1:06d}.safetensors")
        assert np.allclose(checkpoint["encoder.weight"], WEIGHTS["encoder.weight"] + (number - 1) * 5 / 6, atol=1e-6)
        site.finish(site.server(), *agents)
        assert site.digest() == null_digest(site.study)
