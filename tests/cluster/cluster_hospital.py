"""A hospital in a cluster of its own: invited, installed, and joined by a cable."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cluster_documents import IMAGES, STUDY, federation, managed_silo
from cluster_namespace import Namespace
from cluster_site import CHECKOUT, pod_volumes
from cluster_site import IMAGES as CONTAINER_IMAGES
from kube import Cable, Cluster
from kube.network import HERE

from anchorage.api.federation import TRUSTING_POLICY
from anchorage.engine.store.journal import read_journal
from anchorage.methods import validate_study
from anchorage.simulation.run import Simulation

HOSPITAL = "hospital-a"
SLOW_MEGABITS = 1
ENDLESS = {"rounds": 100_000, "epochs": 20}
"""Of a federation whose last round nobody waits for."""
PART = {"recipe": "Iid", "parts": 4, "part": 3}
"""Which of the digits it has."""


def open_to_the_outside(**spec: Any) -> dict[str, Any]:
    """Return the study with a server that is reached at the cable's end, by ports of the node that no other test has."""
    silos = random.randrange(30_000, 32_000, 2)
    server = {
        "service": {"type": "NodePort", "nodePorts": {"silos": silos, "enrolment": silos + 1}},
        "address": f"{HERE}:{silos}",
        "enrolmentAddress": f"{HERE}:{silos + 1}",
    }
    return federation(server=server, **spec)


def invited(started: Namespace, silo: str = HOSPITAL) -> dict[str, Any]:
    """Invite a silo, and return the values that the hospital is sent."""
    return dict(yaml.safe_load(started.fedctl("silo", "invite", STUDY, silo, "--labels", "All")))


def install_agent(hospital: Namespace, invitation: dict[str, Any], release: str = HOSPITAL) -> str:
    """Install charts/silo-agent at the hospital; return the name of its pod."""
    data = {**IMAGES, "use": "Part", "partition": PART}
    agent_options = {
        "images": {"agent": CONTAINER_IMAGES["agent"]},
        "data": data,
        "policy": TRUSTING_POLICY,
        **pod_volumes(),
    }
    agent_options["resources"] = {"requests": {"cpu": "100m", "memory": "256Mi"}}
    folder = hospital.site.kubectl.kubeconfig.parent
    files = []
    for name, values in (("enrolment", invitation), ("site", agent_options)):
        file = folder / f"{release}-{name}.yaml"
        file.write_text(yaml.safe_dump(values))
        files += ["--values", str(file)]
    hospital.site.helm("install", release, CHECKOUT / "charts" / "silo-agent", *files, namespace=hospital.name)

    def pod() -> str:
        return next(iter(hospital.names("pods", f"app.kubernetes.io/instance={release}")), "")

    return hospital.eventually("the agent's pod", pod)


@dataclass(frozen=True)
class TwoSites:
    """The coordinating site with a managed silo, and a hospital in another cluster."""

    here: Namespace
    there: Namespace
    agent: str
    """The pod of the hospital's agent."""
    cable: Cable

    @property
    def coordinator(self) -> Cluster:
        """Return the coordinating site's cluster."""
        assert self.here.site.cluster is not None
        return self.here.site.cluster

    @property
    def hospital(self) -> Cluster:
        """Return the hospital's cluster."""
        assert self.there.site.cluster is not None
        return self.there.site.cluster

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Hold the line cut."""
        self.cable.cut()
        try:
            yield
        finally:
            self.cable.mend()

    @contextmanager
    def slow(self) -> Iterator[None]:
        """Hold the line slow."""
        self.cable.slow(SLOW_MEGABITS)
        try:
            yield
        finally:
            self.cable.slow(None)


def digests_in(state: Path) -> list[str]:
    """Return the digests of the committed rounds in a server's state folder, each of which is there once and in order."""
    records = [entry.record for entry in read_journal(state / "journal.jsonl")]
    assert [record.round for record in records] == list(range(len(records)))
    for record in records[1:]:
        assert {silo.name for silo in record.silos if silo.weight > 0} == {"silo-a", HOSPITAL}
    return [record.digest for record in records]


def at_work(started: Namespace, hospital: Namespace, cable: Cable) -> TwoSites:
    """Start the study with a managed silo and the hospital's, and wait for its first round."""
    started.apply(open_to_the_outside(**ENDLESS), managed_silo("silo-a", 0))
    started.wait_for_condition("federation", STUDY, "ServerAvailable")
    agent = install_agent(hospital, invited(started))
    started.wait_for_condition("silo", HOSPITAL, "Enrolled", "False", "PendingApproval")
    started.fedctl("silo", "approve", STUDY, HOSPITAL)
    started.wait_for_round(STUDY, 1)
    return TwoSites(started, hospital, agent, cable)


def undisturbed(folder: Path, rounds: int) -> list[str]:
    """Return the digests of so many rounds of `at_work`'s study, played in this process in a folder of its own."""
    file = folder / "study.yaml"
    study = federation(**{**ENDLESS, "rounds": rounds})
    documents = (study, managed_silo("silo-a", 0), managed_silo(HOSPITAL, PART["part"]))
    file.write_text(yaml.safe_dump_all(documents))
    simulation = Simulation(validate_study(file), folder, folder / "state")
    simulation.play()
    return [record.digest for record in simulation.store.history()]
