import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from other_thread import signal_other_thread
from silo_site import LAYOUT, Agent, Site, audit_of

from anchorage.transport.messages import Announced, Evaluated, Joined, Left, TaskFailed, TaskKind
from anchorage.transport.tensors.model import ModelBytes, read_arrays
from anchorage_silo import seccomp
from anchorage_silo.kept_output import OUTPUT_FILE
from anchorage_silo.landlock import SCOPES_ABI, abi

Start = Callable[[Path], Agent]


def model_of(value: float) -> ModelBytes:
    arrays = {"count": np.array([1, 2]), "weight": np.full(700_000, value, np.float32)}
    return ModelBytes.from_arrays(LAYOUT, arrays)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


@pytest.fixture
def start() -> Iterator[Start]:
    agents = []

    def start(config: Path) -> Agent:
        agents.append(Agent(config))
        return agents[-1]

    yield start
    for agent in agents:
        agent.close()


def trainer_of(agent: Agent) -> int:
    (child,) = psutil.Process(agent.process.pid).children()
    return int(child.pid)


def play(site: Site, silo: str, number: int) -> None:
    """Play one round and compare the update with what the null trainer must make of the model."""
    task = site.assign(silo, model_of(number), number)
    announcement, update = site.collect(silo, task)
    arrays = read_arrays(LAYOUT, update)
    assert (arrays["weight"] == number + 0.5).all() and arrays["count"].tolist() == [1, 2]
    assert announcement.samples == {"train": 7}
    assert not any(name.startswith("system/") for name in announcement.metrics), "the policy does not say so"
    site.link.dismiss(silo, announcement.task, "counted")


def test_enrols_trains_evaluates_and_ends_with_the_run(site: Site, start: Start) -> None:
    (site.folder / "policy.yaml").write_text('maximumEvaluations: 1\nrelativeNoise: "0"\n')
    config = site.configuration("a", policy=str(site.folder / "policy.yaml"))
    agent = start(config)
    joined = site.joined()
    assert joined.silo == "a" and (joined.profile.labels, joined.profile.samples) == ("None", 7)
    for number in (1, 2):
        play(site, "a", number)
    site.link.offer(model_of(9))
    site.link.assign("a", site.task(model_of(9), 2, TaskKind.EVALUATE))
    assert site.event(Evaluated).evaluation.tally["validation"].tolist() == [7, 7]
    site.link.finish("all rounds are committed")
    assert agent.wait() == 0
    kinds = [line["kind"] for line in audit_of(config)]
    assert kinds == ["enrol", "join", "announce", "update", "announce", "update", "evaluation"]
    key = config.parent / "state" / "silo.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert "PRIVATE" not in "".join(agent.lines) and (config.parent / "token").read_text() not in "".join(agent.lines)


def test_a_second_start_needs_no_token_and_goes_on_with_what_was_announced(site: Site, start: Start) -> None:
    config = site.configuration("a")
    agent = start(config)
    site.joined()
    task = site.assign("a", model_of(1), 1)
    first = site.event(Announced).announcement
    agent.signal(signal.SIGKILL)
    agent.wait()
    site.event(Left)
    (config.parent / "token").unlink()
    agent = start(config)
    site.joined()
    announcement, update = site.collect("a")
    assert announcement.task == task.id and announcement.update == first.update
    assert (read_arrays(LAYOUT, update)["weight"] == 1.5).all()
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 5
    assert agent.lines[-1].startswith("ANC-3008 Stopped: ")


def test_an_agent_stops_whichever_thread_hears_the_signal(site: Site, start: Start) -> None:
    agent = start(site.configuration("a"))
    site.joined()
    signal_other_thread(agent.process.pid, signal.SIGTERM)
    assert agent.wait() == 5
    assert agent.lines[-1].startswith("ANC-3008 Stopped: ")


def test_a_killed_trainer_is_replaced(site: Site, start: Start) -> None:
    agent = start(site.configuration("a"))
    site.joined()
    play(site, "a", 1)
    trainer = trainer_of(agent)
    os.kill(trainer, signal.SIGKILL)
    play(site, "a", 2)
    assert trainer_of(agent) != trainer


def test_a_restarted_server_finds_its_silo_again(site: Site, start: Start) -> None:
    agent = start(site.configuration("a"))
    site.joined()
    play(site, "a", 1)
    site.stop_link()
    site.start_link()
    site.joined()
    play(site, "a", 2)
    site.link.finish("done")
    assert agent.wait() == 0


def test_the_policy_refuses_and_says_so(site: Site, start: Start, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text('allowedMethods: [FedAnchor]\nrelativeNoise: "0"\n')
    start(site.configuration("a", policy=str(policy)))
    site.joined()
    site.assign("a", model_of(1), 1)
    failed = site.event(TaskFailed)
    assert failed.code == "ANC-2210" and "FedAvg" in failed.message


def test_clipping_happens_before_the_announcement(site: Site, start: Start, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text('clipNorm: "0.1"\nrelativeNoise: "0"\nsystemMetrics: true\n')
    start(site.configuration("a", policy=str(policy)))
    site.joined()
    site.assign("a", model_of(0), 1)
    announcement, update = site.collect("a")
    assert announcement.metrics["system/memory_mb"] > 1 and announcement.metrics["system/cpu_percent"] >= 0
    weight = read_arrays(LAYOUT, update)["weight"].astype(np.float64)
    assert np.sqrt((weight**2).sum()) == pytest.approx(0.1, rel=1e-4)


def test_without_a_policy_updates_have_noise_and_come_from_no_few_images(site: Site, start: Start) -> None:
    many = {"type": "Null", "step": "0.5", "samples": 16}
    site.stop_link()
    site.describe(site.run.model_copy(update={"rounds": 1}))  # of more rounds a person decides
    site.start_link()
    start(site.configuration("a", policy=None, trainer=many))
    site.joined()
    announcement, update = site.collect("a", site.assign("a", model_of(0), 1))
    noise = read_arrays(LAYOUT, update)["weight"].astype(np.float64) - 0.5
    assert noise.std() == pytest.approx(0.5, rel=0.01) and abs(noise.mean()) < 0.01
    assert announcement.metrics["noise_ratio"] == 1
    start(site.configuration("b", policy=None))
    site.joined()
    site.assign("b", model_of(0), 1)
    failed = site.event(TaskFailed)
    assert failed.code == "ANC-2212" and "fewer than 16 images" in failed.message


def test_a_privacy_budget_ends_with_a_refusal_also_after_a_restart(site: Site, start: Start, tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    policy = tmp_path / "policy.yaml"
    budget = f'{{epsilon: "1", delta: "0.00001", ledger: {tmp_path / "volume"}}}'  # an update costs 0.73, two cost 1.07
    policy.write_text(f'clipNorm: "0.1"\nnoiseStd: "1"\nprivacyBudget: {budget}\n')
    config = site.configuration("a", policy=str(policy))
    agent = start(config)
    assert site.joined().profile.fingerprint == ""
    task = site.assign("a", model_of(1), 1)
    announcement, _ = site.collect("a", task)
    assert announcement.metrics["epsilon"] == pytest.approx(0.726, abs=1e-3)
    site.link.dismiss("a", task.id, "counted")
    agent.signal(signal.SIGKILL)
    agent.wait()
    site.event(Left)
    start(config)
    site.joined()
    site.assign("a", model_of(2), 2)
    assert site.event(TaskFailed).code == "ANC-2216"


@pytest.mark.parametrize(
    ("values", "status", "code"),
    [
        ({"silo": "c"}, 4, "ANC-2004"),
        ({"trainer": {"type": "Learner"}}, 2, "ANC-1013"),
        ({"policy": "/nowhere/policy.yaml"}, 2, "ANC-1001"),
        ({"state": "/proc/nowhere"}, 6, "ANC-2202"),
        ({"token": "/nowhere/token"}, 4, "ANC-2201"),
    ],
)
def test_a_mistake_ends_the_agent_with_one_line(
    site: Site, start: Start, values: dict[str, object], status: int, code: str
) -> None:
    agent = start(site.configuration("a", **values))
    assert agent.wait() == status
    assert agent.lines[-1].startswith(code)
    assert not any("Traceback" in line for line in agent.lines)


def test_a_silo_that_is_no_member_is_told_so(site: Site, start: Start) -> None:
    site.members.clear()
    agent = start(site.configuration("a"))
    assert agent.wait() == 4
    assert agent.lines[-1].startswith("ANC-2155 ")


def test_images_that_cannot_be_used_end_the_agent_before_it_joins(site: Site, start: Start, tmp_path: Path) -> None:
    (tmp_path / "data" / "site" / "images").mkdir(parents=True)
    data = {"format": "ImageFolder", "claimName": "site", "path": "images"}
    agent = start(
        site.configuration("a", trainer={"type": "Learner"}, data=data, dataRoot=str(tmp_path / "data"), device="cpu")
    )
    assert agent.wait() == 3, agent.lines
    assert agent.lines[-1].startswith("ANC-12")
    assert site.link.next_event(0.0) is None


def test_two_agents_do_not_share_a_state_folder(site: Site, start: Start) -> None:
    config = site.configuration("a")
    start(config)
    site.event(Joined)
    second = start(config)
    assert second.wait() == 6
    assert second.lines[-1].startswith("ANC-2203 ")


@pytest.mark.skipif(abi() < SCOPES_ABI, reason="this kernel's Landlock does not keep a trainer from all of it")
@pytest.mark.skipif(not seccomp.available(), reason="this kernel or processor has no filter of system calls")
def test_the_trainer_reaches_nothing_but_its_own(site: Site) -> None:
    config = site.configuration("a")
    program = Path(__file__).with_name("curious_trainer.py").read_text()
    curious = [sys.executable, "-c", program, str(config.parent / "state")]
    code = "from functools import partial; from anchorage_silo import agent, main; "
    code += f"agent.TrainerProcess = partial(agent.TrainerProcess, command={curious!r}); main.main()"
    agent = Agent(config, code=code)
    try:
        site.joined()
        play(site, "a", 1)
        site.link.finish("all rounds are committed")
        assert agent.wait() == 0
    finally:
        agent.close()
    lines = (config.parent / "state" / OUTPUT_FILE).read_text().splitlines()
    names = ["silo.key", "silo.crt", "audit.jsonl", "audit.key", "audit.head", "lock", "../token"]
    names += [f"agent's {name}" for name in ("environ", "mem", "maps", "cmdline", "fd/0")]
    names += ["TCP", "MPTCP", "UDP", "netlink", "Unix datagrams"]
    refused = [f"{name}: PermissionError" for name in names]
    assert lines == [
        *refused,
        "Unix path: FileNotFoundError",
        *(f"{name}: PermissionError" for name in ("kernel's settings", "folders", "modes")),
    ]
    assert any(
        "The trainer process is confined by Landlock" in line and "connects to nobody" in line for line in agent.lines
    )
    assert any("run as root" in line and "WARNING" in line for line in agent.lines) is (os.geteuid() == 0)


def test_an_agent_goes_on_with_files_of_one_whose_trainer_had_no_folder(site: Site, start: Start) -> None:
    config = site.configuration("a")
    agent = start(config)
    site.joined()
    play(site, "a", 1)
    agent.signal(signal.SIGTERM)
    agent.wait()
    state = config.parent / "state"
    for path in (state / "trainer").iterdir():
        path.rename(state / path.name)
    (state / "learner").mkdir()
    start(config)
    site.event(Left)
    site.joined()
    play(site, "a", 2)
    assert {path.name for path in (state / "trainer").iterdir()} >= {"model.bin", "update.bin", "learner"}
    assert not {path.name for path in state.iterdir()} & {"model.bin", "update.bin", "learner"}
