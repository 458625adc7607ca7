"""A server that stays after its last round: as a new process without what trained, for operator and silos that come late."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from operated_site import OperatedSite, WorkingSilo
from other_thread import signal_other_thread
from safetensors.numpy import load

DIGITS = {"format": "Digits", "claimName": "digits", "use": "Test", "testPercent": 20}


def played(site: OperatedSite) -> None:
    """Have one silo play every round, up to the server that stays."""
    site.start()
    silo = WorkingSilo(site, "a")
    site.put_members(silo)
    silo.start()
    listening_again(site)
    silo.join(150)
    assert silo.finished


def listening_again(site: OperatedSite) -> None:
    pid = site.endpoints["pid"]
    site.read_until("listening")
    site.endpoints = json.loads((site.state / "endpoints.json").read_text())
    assert site.endpoints["pid"] == pid


def restarted(site: OperatedSite) -> None:
    assert site.process is not None
    site.process.kill()
    site.end()
    site.start()


def ended_by_signal(site: OperatedSite) -> int:
    assert site.process is not None
    signal_other_thread(site.process.pid, signal.SIGTERM)
    return site.end()[0]


def loaded(site: OperatedSite, library: str) -> bool:
    return library in Path(f"/proc/{site.endpoints['pid']}/maps").read_text()


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[..., OperatedSite]]:
    """Give `played` in the test's folder; the server ends with the test."""
    sites: list[OperatedSite] = []

    def play(**spec: Any) -> OperatedSite:
        sites.append(OperatedSite(tmp_path, stay=True, **{"rounds": 1, "protocol": {"minSilos": 1}, **spec}))
        played(sites[-1])
        return sites[-1]

    yield play
    for site in sites:
        site.stop()


def check_over(site: OperatedSite) -> None:
    status = site.ask("/status")
    conditions = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
    assert conditions["Succeeded"] == ("True", "AllRoundsCommitted")
    assert conditions["Failed"][0] == "False"
    assert conditions["Ready"][0] == "True"
    assert (status["round"], status["progressPercentage"]) == (1, 100)
    assert status["model"]["digest"] == site.ask("/model")["final"]["digest"]
    assert [r["round"] for r in site.ask("/rounds")] == [0, 1]
    late = WorkingSilo(site, "late")
    site.put_members(late)
    late.start()
    late.join(150)
    assert late.finished
    assert late.trained == []


def test_what_trained_is_gone_after_the_last_round(play: Callable[..., OperatedSite]) -> None:
    task = {"classification": {"classes": list("0123456789")}}
    site = play(
        task=task, model={"network": "SmallCnn", "imageSize": 8, "channels": 1}, evaluation={"validation": DIGITS}
    )
    assert not loaded(site, "torch")
    check_over(site)
    assert site.ask("/status")["metric"].startswith("balanced_accuracy 0.")
    restarted(site)
    assert not loaded(site, "torch")
    check_over(site)
    assert ended_by_signal(site) == 0


def test_a_server_that_died_before_it_noted_the_end_makes_up_for_it(play: Callable[..., OperatedSite]) -> None:
    site = play()
    (site.state / "finished.json").unlink()
    (site.state / "model" / "final.safetensors").unlink()
    restarted(site)
    listening_again(site)
    check_over(site)
    (site.state / "finished.json").write_text("{}")
    restarted(site)
    listening_again(site)
    check_over(site)
    assert ended_by_signal(site) == 0


def test_more_rounds_asked_for_later_are_played(play: Callable[..., OperatedSite]) -> None:
    site = play()
    assert ended_by_signal(site) == 0
    document = yaml.safe_load((site.folder / "federation.yaml").read_text())
    document["spec"]["rounds"] = 3
    (site.folder / "federation.yaml").write_text(yaml.safe_dump(document))
    site.start()
    silo = WorkingSilo(site, "a")
    site.put_members(silo)
    silo.start()
    listening_again(site)
    assert site.ask("/status")["round"] == 3
    silo.join(150)
    assert silo.trained == [2, 3]
    assert ended_by_signal(site) == 0


def read(state: Path, *what: str) -> tuple[int, bytes, str]:
    command = [sys.executable, "-m", "anchorage_server.read", "--state", str(state), *what]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


def test_reading_a_state_folder_beside_its_server(play: Callable[..., OperatedSite]) -> None:
    site = play()
    rounds = json.loads(read(site.state, "rounds")[1])
    assert [r["round"] for r in rounds] == [0, 1]
    assert rounds == site.ask("/rounds")
    assert json.loads(read(site.state, "status")[1])["round"] == 1
    models = json.loads(read(site.state, "model")[1])
    assert models == site.ask("/model")
    assert models["description"]["federation"] == "derm"
    for name in ("final", "best", "checkpoint"):
        code, content, _ = read(site.state, "model-file", models[name]["file"])
        assert (code, len(content)) == (0, models[name]["bytes"])
        assert "encoder.weight" in load(content)
    for name in ("../../authority/ca.key", "/etc/passwd", "round-000009.safetensors", "model.json"):
        code, content, error = read(site.state, "model-file", name)
        assert (code, content) == (2, b"")
        assert error.startswith("ANC-5006 NoModelYet: ")
    assert ended_by_signal(site) == 0


def test_reading_a_folder_in_which_nothing_is_committed_yet(tmp_path: Path) -> None:
    assert read(tmp_path, "rounds")[:2] == (0, b"[]\n")
    assert json.loads(read(tmp_path, "model")[1]) == dict.fromkeys(("final", "best", "checkpoint", "description"))
    assert read(tmp_path, "status")[0] == 2
    (tmp_path / "journal.jsonl").write_text("rubbish\nmore\n")
    code, _, error = read(tmp_path, "rounds")
    assert (code, error.split(":")[0]) == (6, "ANC-3105 JournalDamaged")
