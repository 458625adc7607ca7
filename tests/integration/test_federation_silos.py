"""Silos that send rubbish, never answer or are not there: deadline and quorum decide, and record and status name the silo and the reason."""

import signal
from pathlib import Path
from typing import Any

import pytest
from federation_documents import null_study
from federation_in_process import null_digest
from federation_processes import SIGKILLED, WITHOUT_MLFLOW, Site, condition
from federation_silos import OddSilo

KINDS = ("honest", "honest", "nan", "layout", "silent", "count", "liar", "fails")
"""Silos a to h; silo i is in the documents and never comes."""
EXPECTED = {
    "a": ("Counted", "", ""),
    "b": ("Counted", "", ""),
    "c": ("Failed", "ANC-3004", "tensor classifier.bias is not finite"),
    "d": ("Failed", "ANC-3003", "the update has layout "),
    "e": ("Late", "ANC-3006", "not whole after 3 s"),
    "f": ("Failed", "ANC-2163", "samples: train is -1"),
    "g": ("Late", "ANC-3006", "not whole after 3 s"),
    "h": ("Failed", "ANC-1301", "loss is nan"),
    "i": ("Absent", "ANC-3007", "not connected at the deadline"),
}


class Played:
    """A federation of odd silos that has come to its end, however it ended."""

    def __init__(self, folder: Path, **protocol: Any) -> None:
        study = null_study(folder, silos=len(EXPECTED), protocol={"roundDeadlineSeconds": 3, **protocol})
        with Site(study) as self.site:
            pairs = zip(study.silos, KINDS, strict=False)
            silos = [OddSilo(self.site, silo.metadata.name, kind) for silo, kind in pairs]
            server = self.site.server()
            try:
                for odd in silos:
                    odd.connect(self.site.endpoints["silos"])
                self.status, self.lines = server.end(), server.lines
            finally:
                for odd in silos:
                    odd.close()
        self.refusals = {silo.kind: silo.refusals for silo in silos}


def test_silos_that_do_not_count_are_named_and_the_others_mean_is_the_model(tmp_path: Path) -> None:
    played = Played(tmp_path / "odd", minSilos=2)
    assert played.status == WITHOUT_MLFLOW, played.lines
    assert not any("Traceback" in line or "traceback" in line for line in played.lines)
    assert played.site.digest() == null_digest(null_study(tmp_path / "honest", silos=2))
    first, last = ({part["name"]: part for part in record["silos"]} for record in played.site.records()[1:])
    silos = {silo["name"]: silo for silo in played.site.left_status()["silos"]}
    assert first.keys() == silos.keys() == EXPECTED.keys() == last.keys() | {"i"}
    for name, (state, code, message) in EXPECTED.items():
        for silo_status in (first[name], last.get(name, first[name]), silos[name]):
            assert (silo_status["state"], silo_status["code"]) == (state, code), silo_status
            assert silo_status["message"].startswith(message) and "\n" not in silo_status["message"]
    assert [first[name]["weight"] for name in EXPECTED] == pytest.approx([1 / 3, 2 / 3, *[0.0] * 7])
    assert "ANC-2101" in played.refusals["liar"]


def test_too_few_usable_updates_end_the_run_with_every_name(tmp_path: Path) -> None:
    played = Played(tmp_path, minSilos=3)
    assert played.status == 5, played.lines
    line = played.lines[-1]
    assert line.startswith("ANC-3001 QuorumLost: round 1: 2 silos answered, 3 needed")
    for name, (state, code, message) in EXPECTED.items():
        assert state == "Counted" or f"{name} {code} {message}" in line
    assert condition(played.site.left_status(), "Failed")[:2] == ("True", "QuorumLost")
    assert [record["round"] for record in played.site.records()] == [0]


def test_a_silo_that_goes_is_waited_for_and_the_run_resumes_with_it(tmp_path: Path) -> None:
    with Site(null_study(tmp_path, protocol={"minSilos": 2, "roundDeadlineSeconds": 60})) as site:
        server = site.server()
        steady, doomed = site.null_agent("a"), site.null_agent("b", "announced", 2, "SIGKILL")
        assert doomed.end() == SIGKILLED
        server.wait_for("silo disconnected", silo="b")
        message = server.wait_for("waiting", reason="QuorumLost")
        assert message["found"].startswith("round 2 needs 2 silos: ") and "b still at work" in message["found"]
        assert condition(site.status(), "QuorumMet")[:2] == ("False", "QuorumLost")
        assert server.end() == 5
        assert server.last_line.startswith("ANC-3001 QuorumLost: round 2: 1 silos answered, 2 needed")
        assert server.last_line.endswith("b ANC-3007 not connected at the deadline")
        assert [record["round"] for record in site.records()] == [0, 1]
        document = site.workdir.federation
        text = document.read_text()
        assert text.count("roundDeadlineSeconds: 60") == 1
        # A busy machine may take longer than that to start an agent.
        document.write_text(text.replace("roundDeadlineSeconds: 60", "roundDeadlineSeconds: 600"))
        site.finish(site.server(), steady, site.null_agent("b"))
        assert site.digest() == null_digest(site.study)


def test_a_silo_that_hangs_is_noticed_and_taken_back(tmp_path: Path) -> None:
    with Site(null_study(tmp_path)) as site:
        server = site.server("pings", 1, "fast")
        steady, hanging = site.null_agent("a"), site.null_agent("b", "announced", 2, "SIGSTOP")
        server.wait_for("round committed", round=1)
        server.wait_for("silo disconnected", silo="b")
        hanging.signal(signal.SIGCONT)
        site.finish(server, steady, hanging)
        assert site.digest() == null_digest(site.study)
