"""The agent as a pod runs it: probes, enrolment that waits for people, renewal, a proxy, a service's end."""

import os
import signal
import socket
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from connect_proxy import ConnectProxy
from eventually import eventually
from prometheus_client.parser import text_string_to_metric_families
from silo_site import HURRIED, LAYOUT, WAIT_SECONDS, Agent, Site, audit_of

from anchorage.api.errors import AnchorageError, identity, transfer
from anchorage.api.single import read_document
from anchorage.transport.grpc.single_calls import describe
from anchorage.transport.messages import Announced, Left
from anchorage.transport.pki import Authority, Credentials
from anchorage.transport.pki.credentials import read_certificate
from anchorage.transport.tensors.model import ModelBytes, read_arrays
from anchorage_silo.commands import carry_out
from anchorage_silo.config import SiloConfig

Start = Callable[..., Agent]

PENDING = AnchorageError(identity.ENROLMENT_PENDING, "silo a waits for approval")
POD = {"probesListen": "127.0.0.1:0", "stay": True, "patienceSeconds": 0}
HOUR = 3600.0


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

    def start(config: Path, *before: str, **options: Any) -> Agent:
        agents.append(Agent(config, *before, **options))
        return agents[-1]

    yield start
    for agent in agents:
        agent.close()


@pytest.fixture
def proxy() -> Iterator[ConnectProxy]:
    proxy = ConnectProxy()
    yield proxy
    proxy.close()


def play(site: Site, number: int) -> None:
    task = site.assign("a", model_of(number), number)
    announcement, update = site.collect("a", task)
    assert (read_arrays(LAYOUT, update)["weight"] == number + 0.5).all()
    site.link.dismiss("a", announcement.task, "counted")


def figures(agent: Agent) -> dict[str, float]:
    families = text_string_to_metric_families(agent.ask("/metrics")[1])
    return {"".join([s.name, *s.labels.values()]): s.value for family in families for s in family.samples}


def test_waits_for_people_then_takes_part_then_stays_until_it_is_stopped(site: Site, start: Start) -> None:
    site.undecided = PENDING
    config = site.configuration("a", **POD)
    agent = start(config)
    agent.await_line("ANC-2009 EnrolmentPending: silo a waits for approval")
    assert agent.await_ready("ANC-2009 EnrolmentPending") == 200
    assert agent.ask("/healthz") == (200, "ok\n")
    first = site.asked.get()
    assert site.asked.get() == first
    before = figures(agent)
    assert before["anchorage_silo_connected"] == 0 and before["anchorage_silo_last_contact_timestamp_seconds"] == 0
    assert "anchorage_silo_certificate_expiry_timestamp_seconds" not in before

    site.undecided = None
    site.joined()
    assert agent.await_ready("Connected") == 200
    play(site, 1)
    now = figures(agent)
    certificate = read_certificate(config.parent / "state" / "silo.crt")
    assert now["anchorage_silo_connected"] == now["anchorage_silo_ready"] == 1
    assert now["anchorage_silo_certificate_expiry_timestamp_seconds"] == certificate.not_valid_after_utc.timestamp()
    assert now["anchorage_silo_samples"] == 7 and now["anchorage_silo_tasks_totaltrained"] == 1
    assert now["anchorage_silo_model_bytes_totaldown"] == now["anchorage_silo_model_bytes_totalup"] == LAYOUT.nbytes

    site.link.finish("all rounds are committed")
    assert agent.await_ready("Finished: all rounds are committed") == 200
    assert psutil.Process(agent.process.pid).children() == []
    assert agent.ask("/healthz")[0] == 200
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    assert not (config.parent / "state" / "silo.csr").exists()


def test_a_restarted_agent_asks_with_the_same_request(site: Site, start: Start) -> None:
    site.undecided = PENDING
    config = site.configuration("a", **POD)
    agent = start(config)
    first = site.asked.get()
    agent.await_line("ANC-2009")
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    while not site.asked.empty():
        assert site.asked.get() == first
    start(config)
    assert site.asked.get() == first
    site.undecided = None
    site.joined()


def test_a_final_refusal_is_the_last_line_and_the_exit_code(site: Site, start: Start) -> None:
    site.undecided = AnchorageError(identity.NOT_APPROVED, "silo a was denied")
    agent = start(site.configuration("a", **POD))
    assert agent.wait() == 4
    assert agent.lines[-1] == "ANC-2010 SiloNotApproved: silo a was denied"


def test_a_member_that_is_taken_out_comes_back_when_it_is_let_in_again(site: Site, start: Start) -> None:
    site.members.clear()
    agent = start(site.configuration("a", **POD))
    agent.await_line("ANC-2155 SiloNotAdmitted")
    assert agent.await_ready("ANC-2155 SiloNotAdmitted") == 200
    site.members.add("a")
    site.joined()
    assert agent.await_ready("Connected") == 200


def test_a_new_invitation_replaces_a_key_that_is_refused(site: Site, start: Start) -> None:
    config = site.configuration("a", **POD)
    agent = start(config)
    site.joined()
    key = config.parent / "state" / "silo.key"
    first = key.read_bytes()
    site.members.clear()
    site.stop_link()
    site.start_link()
    assert agent.wait() == 4 and agent.lines[-1].startswith("ANC-2155 ")
    agent = start(config)
    agent.await_line("ANC-2155 SiloNotAdmitted")
    assert key.read_bytes() == first
    (config.parent / "token").write_text(site.tokens.create("a"))
    agent.await_line("enrolling with a new key")
    site.members.add("a")
    site.joined()
    assert key.read_bytes() != first


def test_waits_for_a_server_that_comes_later_and_back_with_another_certificate(site: Site, start: Start) -> None:
    site.stop_link()
    agent = start(site.configuration("a", **POD))
    agent.await_line("ANC-2159 ServerUnreachable")
    assert agent.await_ready("ANC-2159 ServerUnreachable") == 200
    site.start_link()
    site.joined()
    play(site, 1)
    site.stop_link()
    assert agent.await_ready("ServerUnreachable: ") == 200
    assert figures(agent)["anchorage_silo_last_contact_timestamp_seconds"] > 0
    site.new_identity()
    site.start_link()
    site.joined()
    play(site, 2)


def test_a_certificate_is_renewed_and_the_open_session_stays(site: Site, start: Start) -> None:
    made_long_ago = Authority.load(site.authority.folder, now=lambda: time.time() - 3 * HOUR)
    site.issue = lambda request, silo: made_long_ago.issue_silo(request, silo, valid=timedelta(hours=4))
    site.undecided_renewal = PENDING
    config = site.configuration("a", **POD)
    agent = start(config)
    site.joined()
    file = config.parent / "state" / "silo.crt"
    first = read_certificate(file)
    agent.await_line("waiting for a new certificate: ANC-2009")
    site.issue = site.authority.issue_silo
    site.undecided_renewal = None
    agent.await_line("the certificate was renewed")
    renewed = read_certificate(file)
    assert renewed.not_valid_after_utc > first.not_valid_after_utc and renewed.public_key() == first.public_key()
    play(site, 1)
    assert site.link.next_event(0.0) is None
    site.stop_link()
    site.start_link()
    site.joined()
    assert [line["kind"] for line in audit_of(config)].count("renew") == 1
    assert (
        figures(agent)["anchorage_silo_certificate_expiry_timestamp_seconds"] == renewed.not_valid_after_utc.timestamp()
    )


def rotate(config: Path) -> None:
    carry_out(Namespace(command="rotate-key"), read_document(config, SiloConfig))


def test_a_running_agent_changes_its_key_and_a_stopped_one_does_it_itself(
    site: Site, start: Start, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = site.configuration("a", **POD)
    agent = start(config, code=HURRIED)
    site.joined()
    key, former = config.parent / "state" / "silo.key", tmp_path / "former"
    former.mkdir()
    for file in ("silo.key", "silo.crt"):
        (former / file).write_bytes((config.parent / "state" / file).read_bytes())
    first = key.read_bytes()
    rotate(config)
    assert "the running agent takes it" in capsys.readouterr().out
    agent.await_line("the key was changed")
    site.joined()
    play(site, 1)
    second = key.read_bytes()
    with pytest.raises(AnchorageError) as caught:
        describe(site.listen, Credentials(former / "silo.key", former / "silo.crt", site.authority.certificate_path))
    assert second != first and caught.value.failure is transfer.SILO_NOT_ADMITTED

    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    rotate(config)
    assert "the former one is refused from now on" in capsys.readouterr().out
    assert key.read_bytes() not in (first, second)
    start(config)
    site.joined()
    play(site, 2)


class TestProxy:
    def test_every_connection_goes_through_it(self, site: Site, start: Start, proxy: ConnectProxy) -> None:
        agent = start(
            site.configuration("a", proxy=proxy.url, **POD), env=os.environ | {"no_proxy": "127.0.0.1,localhost"}
        )
        site.joined()
        play(site, 1)
        assert [proxy.asked[0], *set(proxy.asked[1:])] == [f"CONNECT {site.enrolment}", f"CONNECT {site.listen}"]
        proxy.cut()
        site.event(Left)
        site.joined()
        play(site, 2)
        assert agent.await_ready("Connected") == 200

    def test_what_it_refuses_is_said(self, site: Site, start: Start, proxy: ConnectProxy) -> None:
        proxy.refusal = "407 Proxy Authentication Required"
        agent = start(site.configuration("a", proxy=proxy.url, **POD))
        assert agent.wait() == 4
        assert agent.lines[-1] == f"ANC-2162 ProxyRefused: the proxy answered 407 to CONNECT {site.enrolment}"

    def test_one_that_reaches_nobody_at_the_moment_is_waited_for(
        self, site: Site, start: Start, proxy: ConnectProxy
    ) -> None:
        proxy.refusal = "503 Service Unavailable"
        agent = start(site.configuration("a", proxy=proxy.url, **POD))
        agent.await_line("ANC-2159 ServerUnreachable")
        proxy.refusal = ""
        site.joined()

    def test_the_environment_says_nothing(self, site: Site, start: Start, proxy: ConnectProxy) -> None:
        named = dict.fromkeys(("grpc_proxy", "https_proxy", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"), proxy.url)
        start(site.configuration("a", **POD), env=os.environ | named)
        site.joined()
        play(site, 1)
        assert proxy.asked == []


def ended_cleanly(agent: Agent) -> bool:
    """Whether the agent ends well and by itself, which is within `anchorage_silo.main.SHUTDOWN_SECONDS`: else it would not say so."""
    return agent.wait() == 0 and "the agent was asked to stop" in agent.lines[-1]


def test_stops_within_seconds_in_the_middle_of_training(site: Site, start: Start) -> None:
    config = site.configuration("a", **POD)
    agent = start(config)
    site.joined()
    (trainer,) = psutil.Process(agent.process.pid).children()
    trainer.suspend()
    site.assign("a", model_of(1), 1)
    eventually((config.parent / "state" / "trainer" / "update.bin").exists, "no update is written")
    agent.signal(signal.SIGTERM)
    assert ended_cleanly(agent)
    assert not trainer.is_running()
    start(config)
    site.event(Left)
    site.joined()
    assert site.event(Announced).announcement.samples == {"train": 7}


def test_stops_within_seconds_while_the_images_are_read(site: Site, start: Start) -> None:
    agent = start(site.configuration("a", trainer={"type": "Learner"}, data={"format": "Digits"}, labels="All", **POD))
    agent.await_line("probes and metrics")
    assert agent.await_ready("ReadingImages") == 200
    agent.signal(signal.SIGTERM)
    assert ended_cleanly(agent)


def test_stops_within_seconds_while_a_server_says_nothing(site: Site, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        agent = start(site.configuration("a", **POD | {"enrolment": f"127.0.0.1:{silent.getsockname()[1]}"}))
        with silent.accept()[0]:
            agent.signal(signal.SIGTERM)
            assert ended_cleanly(agent)


def test_an_agent_that_comes_when_the_run_is_over_hears_so(site: Site, start: Start) -> None:
    site.link.finish("all rounds are committed")
    agent = start(site.configuration("a", **POD))
    agent.await_line("the run is over")
    assert agent.await_ready("Finished: all rounds are committed") == 200


def test_a_staying_agent_comes_back_when_more_rounds_are_asked_for(site: Site, start: Start) -> None:
    agent = start(site.configuration("a", **POD), code=HURRIED)
    site.joined()
    play(site, 1)
    site.link.finish("all rounds are committed")
    assert agent.await_ready("Finished: all rounds are committed") == 200
    site.stop_link()
    site.describe(site.run.model_copy(update={"rounds": 5}))
    site.start_link()
    site.joined()
    assert agent.await_ready("Connected") == 200
    play(site, 2)


def test_an_end_that_takes_too_long_is_forced() -> None:
    code = (
        "import signal, time; from anchorage_silo import main; main.SHUTDOWN_SECONDS = 0.1\n"
        "stop = main._StopHandler(); stop.exit_code = 0; signal.signal(signal.SIGTERM, stop)\n"
        "try:\n    signal.raise_signal(signal.SIGTERM)\nexcept KeyboardInterrupt:\n    time.sleep(600)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=WAIT_SECONDS).returncode == 0
