"""Rounds of secure aggregation: the same bytes as the plain fixed-point sum, also when silos are lost; nobody unmasks twice."""

import json
import time
from pathlib import Path

import pytest
from federation_documents import null_study
from federation_in_process import null_digest, null_digests
from federation_processes import SIGKILLED, Site

from anchorage.api.errors import AnchorageError
from anchorage.api.files import Study
from anchorage.api.run import RunDescription
from anchorage.engine.secure_silo import MaskingSilo
from anchorage.transport.messages import Announcement, Assigned, Bytes, Evaluation, Order, Task, TaskKind
from anchorage.transport.pki import Authority, Credentials, SigningRequest, new_key, silo_uri
from anchorage.transport.pki.credentials import read_certificates
from anchorage.transport.secure_aggregation.member import Keys


def secure_study(folder: Path, silos: int, rounds: int = 2, quorum: int = 3) -> Study:
    protocol = {"minSilos": quorum, "roundDeadlineSeconds": 600, "secureAggregation": {"fractionalBits": 22}}
    return null_study(folder, silos=silos, rounds=rounds, protocol=protocol)


class Hospitals:
    """Silos with certificates, whose updates and answers a test looks at, or has lost."""

    def __init__(self, folder: Path, unmasking: str = "", new_key_before: TaskKind | None = None) -> None:
        self.folder, self.unmasking, self.new_key_before = folder, unmasking, new_key_before
        self.authority = Authority.create(folder / "authority", "derm")
        self.updates: list[bytes] = []
        self.silos: dict[str, Observed] = {}

    def __call__(self, run: RunDescription, silo: str, samples: int) -> MaskingSilo:
        files = Credentials(self.folder / f"{silo}.key", self.folder / f"{silo}.pem", self.authority.certificate_path)
        files.save_certificate(
            self.authority.issue_silo(SigningRequest.make(new_key(files.key), silo_uri("derm", silo)), silo)
        )
        self.silos[silo] = Observed(self, run, silo, samples, files)
        return self.silos[silo]

    def check_keys(self, task: str, silo: str, keys: Keys) -> None:
        keys.check("derm", task, silo, read_certificates(self.authority.certificate_path), time.time())


class Observed(MaskingSilo):
    """One of them."""

    def __init__(
        self, all_of_them: Hospitals, run: RunDescription, silo: str, samples: int, files: Credentials
    ) -> None:
        super().__init__(run, silo, samples, files)
        self.name, self.all, self.reveal = silo, all_of_them, None

    def answer(self, task: Task) -> Evaluation:
        if (task.kind, task.round, self.name) == (self.all.new_key_before, 1, "b"):
            self.change_key()
        if task.kind is TaskKind.REVEAL_SHARES:
            if self.name in self.all.unmasking:
                self._member = None  # as after a new start
            else:
                self.reveal = task
        return super().answer(task)

    def change_key(self) -> None:
        """Do what a renewal over a new key does at any moment."""
        files, folder, authority = self._credentials, self.all.folder, self.all.authority
        other = Credentials(folder / "next.key", folder / "next.pem", authority.certificate_path)
        request = SigningRequest.make(new_key(other.key), silo_uri("derm", self.name))
        other.save_certificate(authority.issue_silo(request, self.name))
        files.change_key(other)

    def protect(self, task: Task, announcement: Announcement, update: Bytes, model: Bytes) -> Announcement:
        announcement = super().protect(task, announcement, update, model)
        self.all.updates.append(update.tobytes())
        return announcement


def test_masked_rounds_have_the_bytes_of_plain_fixed_point_rounds(tmp_path: Path) -> None:
    study, hospitals = secure_study(tmp_path, 3), Hospitals(tmp_path / "pki")
    assert null_digests(study, 2, hospitals) == null_digests(study, 2)
    assert null_digests(study, 1)[-1] != null_digest(null_study(tmp_path / "plain", silos=3, rounds=1))
    assert len(set(hospitals.updates)) == 6


def test_a_silo_that_cannot_unmask_costs_nothing(tmp_path: Path) -> None:
    study = secure_study(tmp_path, 4)
    assert null_digests(study, 2, Hospitals(tmp_path / "pki", unmasking="b")) == null_digests(study, 2)


@pytest.mark.parametrize("step", [kind for kind in TaskKind if kind.step])
def test_a_silo_may_change_its_key_within_a_round(step: TaskKind, tmp_path: Path) -> None:
    """The round ends with the key that the others were shown; the next one begins with the new one."""
    study, hospitals = secure_study(tmp_path, 3), Hospitals(tmp_path / "pki", new_key_before=step)
    assert null_digests(study, 2, hospitals) == null_digests(study, 2)
    assert (hospitals.folder / "next.pem").exists() and not (hospitals.folder / "next.key").exists(), "it was changed"


@pytest.mark.parametrize("step", [kind for kind in TaskKind if kind.step])
def test_a_silo_whose_connection_is_made_again_within_a_step_is_waited_for(step: TaskKind, tmp_path: Path) -> None:
    """As with a new key: the others are too few without it, and it is back at once."""
    study, cuts = secure_study(tmp_path, 3), list[str]()

    def cut(silo: str, order: Order) -> bool:
        first = isinstance(order, Assigned) and order.task.kind is step and silo == "b" and not cuts
        cuts.extend(["b"] if first else [])
        return first

    assert null_digests(study, 2, Hospitals(tmp_path / "pki"), cut) == null_digests(study, 2)
    assert cuts == ["b"]


def test_a_second_unmasking_is_refused(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path / "pki")
    null_digests(secure_study(tmp_path, 3, rounds=1), 1, hospitals)
    silo = hospitals.silos["a"]
    assert silo.reveal is not None
    with pytest.raises(AnchorageError, match="revealed once"):
        silo.answer(silo.reveal)


def test_too_many_lost_silos_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(AnchorageError, match="2 silos .* needs 3"):
        null_digests(secure_study(tmp_path, 4), 1, Hospitals(tmp_path / "pki", unmasking="ab"))


def test_processes_play_it_though_one_is_killed_between_masking_and_unmasking(tmp_path: Path) -> None:
    with Site(secure_study(tmp_path, 4, rounds=3, quorum=4)) as site:
        server = site.server()
        steady = [site.null_agent(silo) for silo in "bcd"]
        assert site.null_agent("a", "announced", 2, "SIGKILL").end() == SIGKILLED
        site.finish(server, site.null_agent("a"), *steady)
        assert site.digest() == null_digest(site.study)
        (log,) = site.root.rglob("b/**/audit.jsonl")
        kinds = [json.loads(line)["kind"] for line in log.read_text().splitlines()]
        assert kinds.count("reveal") == 3


def test_a_server_killed_before_and_after_the_sum_is_known_plays_the_round_again(tmp_path: Path) -> None:
    with Site(secure_study(tmp_path, 3, rounds=3)) as site:
        first = site.server("Arrived", 1, "SIGKILL")
        agents = [site.null_agent(silo) for silo in "abc"]
        assert first.end() == SIGKILLED
        assert site.server("renamed", 2, "SIGKILL").end() == SIGKILLED
        site.finish(site.server(), *agents)
        assert site.digest() == null_digest(site.study)
