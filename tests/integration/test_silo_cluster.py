"""An agent and a server, both as pods run them, with an operator's part played by the test."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from eventually import eventually
from operated_site import OperatedSite
from silo_site import Agent

from anchorage.api.federation import TRUSTING_POLICY
from anchorage.transport.pki import key_fingerprint

TOKEN = "a-token-that-only-the-operator-checks"


class Cluster(OperatedSite):
    """A coordinating site's server that stays, and what its operator does."""

    def configuration(self, silo: str, **values: Any) -> Path:
        folder = self.folder / "agents" / silo
        folder.mkdir(parents=True)
        (folder / "token").write_text(TOKEN)
        (folder / "policy.yaml").write_text(yaml.safe_dump(TRUSTING_POLICY))
        config = {
            "silo": silo, "federation": "derm", "server": self.endpoints["silos"], "enrolment": self.endpoints["enrolment"],
            "authority": str(self.authority.certificate_path), "token": str(folder / "token"), "state": str(folder / "state"),
            "labels": "All", "trainer": {"type": "Null", "step": "0.5", "samples": 7}, "policy": str(folder / "policy.yaml"),
            "probesListen": "127.0.0.1:0", "stay": True, "patienceSeconds": 0, **values,
        }  # fmt: skip
        (folder / "silo.yaml").write_text(yaml.safe_dump(config))
        return folder / "silo.yaml"

    def request(self) -> dict[str, Any]:
        """Wait for a silo's request."""
        requests: list[dict[str, Any]] = eventually(lambda: self.ask("/requests")["requests"], "nobody asks")
        return requests[0]

    def sign(self, request: dict[str, Any]) -> None:
        certificate = self.authority.issue_silo(request["csr"].encode(), request["silo"])
        self.ask("/answers", {"answers": [{"id": request["id"], "certificate": certificate.decode()}]})
        member = {"name": request["silo"], "labels": "All", "key": key_fingerprint(certificate)}
        self.ask("/members", {"members": [member], "generation": 1})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, stay=True, rounds=1, protocol={"minSilos": 1})
    cluster.start()
    cluster.keep_ports()
    yield cluster
    cluster.stop()


@pytest.fixture
def agents() -> Iterator[list[Agent]]:
    agents: list[Agent] = []
    yield agents
    for agent in agents:
        agent.close()


def test_from_the_request_to_a_run_that_was_over_before(cluster: Cluster, agents: list[Agent]) -> None:
    config = cluster.configuration("a")
    agents.append(agent := Agent(config))
    request = cluster.request()
    assert (request["kind"], request["silo"], request["token"]) == ("Enrol", "a", TOKEN)
    agent.await_line("ANC-2009 EnrolmentPending")
    cluster.sign(request)
    agent.await_line("the run is over")
    assert agent.await_ready("Finished: ") == 200
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    cluster.read_until("listening")
    agents.append(late := Agent(config))
    late.await_line("the run is over")
    assert late.await_ready("Finished: ") == 200
    assert TOKEN not in "".join(agent.lines + late.lines) + str(cluster.lines)


def test_a_denied_silo_hears_so_and_may_ask_anew(cluster: Cluster, agents: list[Agent]) -> None:
    config = cluster.configuration("a")
    agents.append(agent := Agent(config))
    request = cluster.request()
    refusal = {"id": request["id"], "code": "ANC-2010", "message": "silo a was denied by the coordinating site"}
    cluster.ask("/answers", {"answers": [refusal]})
    assert agent.wait() == 4
    assert agent.lines[-1] == "ANC-2010 SiloNotApproved: silo a was denied by the coordinating site"
    agents.append(second := Agent(config))
    cluster.sign(cluster.request())
    second.await_line("the run is over")
