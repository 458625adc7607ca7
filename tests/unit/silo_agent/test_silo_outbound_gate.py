import errno
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from silo_fakes import LAYOUT, FakeLearner, FakeLink, evaluate_task, model_of, terms_of, train_task

from anchorage.api.errors import CATALOGUE, AnchorageError
from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.silo import SiloWorker
from anchorage.methods import PRESETS
from anchorage.pieces.task.multi_label import MultiLabel
from anchorage.pieces.weighting.dvw import Dvw
from anchorage.transport.messages import Announcement, Assigned, Evaluation, Permit
from anchorage.transport.signed_head import SignedHead
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.layout import Layout
from anchorage_silo.audit import AuditLog, verify
from anchorage_silo.outbound_gate import OutboundGate
from anchorage_silo.policy import Policy
from anchorage_silo.state import AgentState
from anchorage_silo.verdict import extras_of

ONE, TWO = model_of(1.0), model_of(2.0)
CERTIFICATE = Path("silo.crt")


def policy_of(**fields: Any) -> Policy:
    return Policy.model_validate_json(json.dumps(fields))


def joined() -> AgentState:
    """The state of an agent with a thousand images."""
    state = AgentState(CERTIFICATE)
    state.set_joined(1000)
    return state


NONE = policy_of(allowedAuxiliaryData=[])


@pytest.fixture
def link() -> FakeLink:
    return FakeLink(ONE, TWO)


@pytest.fixture
def audit(tmp_path: Path) -> Iterator[AuditLog]:
    log = AuditLog(tmp_path / "audit.jsonl", now=lambda: 12.5)
    yield log
    log.close()


def lines(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]


def announcement(task: str = "1.train", train: int = 10, **auxiliary: np.ndarray) -> Announcement:
    return Announcement(task, {"train": train}, auxiliary, {"loss": 0.25}, Manifest("layout", 0, ()))


class TestGate:
    def test_a_whole_task_leaves_a_trail_of_names_only(self, link: FakeLink, audit: AuditLog, tmp_path: Path) -> None:
        gate = OutboundGate(link, Policy(), audit, terms_of("FedAvg"), joined())
        worker = SiloWorker(gate, FakeLearner(), MemoryBuffers(), admit=gate.admit)
        task, scored = train_task(ONE), evaluate_task(TWO)
        worker.handle(Assigned(task))
        worker.handle(Permit(task.id))
        worker.handle(Assigned(scored))
        update = link.announcements[task.id].update
        assert update is not None
        refusals = [
            (line["kind"], line["task"], line["bytes"], line["auxiliary"], line["digest"]) for line in lines(tmp_path)
        ]
        assert refusals == [
            ("progress", task.id, 0, [], ""),
            ("announce", task.id, 0, [], update.digest),
            ("update", task.id, LAYOUT.nbytes, [], update.digest),
            ("evaluation", scored.id, 16, ["validation"], TWO.digest),
        ]
        assert [s[0] for s in link.messages] == ["progress", "progress", "announce", "push", "report"], (
            "each report is sent"
        )

    def test_what_leaves_carries_the_head_of_the_log_with_its_own_line(self, link: FakeLink, audit: AuditLog) -> None:
        def head() -> SignedHead:
            lines, last = audit.head
            return SignedHead(lines, bytes.fromhex(last), b"")

        gate = OutboundGate(link, Policy(), audit, terms_of("FedAvg"), joined(), audit_head=head)
        worker = SiloWorker(gate, FakeLearner(), MemoryBuffers(), admit=gate.admit)
        task, scored = train_task(ONE), evaluate_task(TWO)
        worker.handle(Assigned(task))
        announced = head()
        worker.handle(Assigned(scored))
        assert link.announcements[task.id].audit_head == announced and announced.lines == 2
        assert link.evaluations[scored.id].audit_head == head() and head().lines == 3

    def test_auxiliary_data_is_named_but_not_shown(self, link: FakeLink, audit: AuditLog, tmp_path: Path) -> None:
        secret = np.array([0.123456789])
        OutboundGate(link, Policy(), audit, terms_of("SemiAnAgg"), joined()).announce(announcement(similarity=secret))
        assert lines(tmp_path)[0]["auxiliary"] == ["similarity"]
        text = (tmp_path / "audit.jsonl").read_text()
        assert "0.1234" not in text and "0.25" not in text

    @pytest.mark.parametrize(
        ("fields", "value", "code"),
        [
            ({"allowedAuxiliaryData": []}, announcement(similarity=np.zeros(2)), "ANC-2211"),
            ({"allowedAuxiliaryData": ["similarity"]}, announcement(validation=np.zeros(2)), "ANC-2211"),
            ({"minimumSamples": 11}, announcement(), "ANC-2212"),
            ({"maximumRounds": 0}, announcement(), "ANC-2213"),
            (
                {"allowedAuxiliaryData": ["similarity"]},
                Evaluation("t", {"validation": np.array([3, 4])}, 4),
                "ANC-2211",
            ),
            ({"minimumSamples": 5}, Evaluation("t", {"validation": np.array([3, 4])}, 4), "ANC-2212"),
            ({"minimumSamples": 5}, Evaluation("t", {"validation": np.array([[1, 1], [1, 1]])}, 4), "ANC-2212"),
        ],
    )
    def test_what_the_policy_refuses_does_not_leave(
        self, link: FakeLink, audit: AuditLog, tmp_path: Path, fields: dict[str, Any], value: Any, code: str
    ) -> None:
        gate = OutboundGate(link, policy_of(**fields), audit, terms_of("FedAvg"), joined())
        with pytest.raises(AnchorageError, match=code):
            gate.announce(value) if isinstance(value, Announcement) else gate.report(value)
        assert link.messages == [] and lines(tmp_path) == []

    def test_raw_images_and_means_of_few_leave_only_where_the_policy_says_so(
        self, link: FakeLink, audit: AuditLog, tmp_path: Path
    ) -> None:
        raw = announcement(raw_images=np.zeros((2, 1, 8, 8)))
        named = policy_of(allowedAuxiliaryData=["raw_images"])
        means = replace(announcement(mean_images=np.zeros((2, 1, 8, 8))), samples={"train": 10, "smallest_group": 4})
        behind = replace(announcement(), behind=Layout.of([("raw_images", "F32", (2, 1, 8, 8))]))
        for policy, value, code in [
            (Policy(), raw, "ANC-2211"),
            (Policy(), behind, "ANC-2211"),
            (policy_of(minimumSamples=5), means, "ANC-2212"),
            (named, raw, ""),
            (named, behind, ""),
            (policy_of(minimumSamples=4), means, ""),
        ]:
            terms = terms_of("GlobalMixup", "FedMix")
            gate = OutboundGate(link, policy, audit, terms, joined())
            if not code:
                gate.announce(value)
                continue
            with pytest.raises(AnchorageError) as caught:
                gate.announce(value)
            assert caught.value.code == code
        assert [s[0] for s in link.messages] == ["announce"] * 3
        assert [line["auxiliary"] for line in lines(tmp_path)] == [["raw_images"], ["raw_images"], ["mean_images"]]

    def test_what_the_policy_allows_leaves(self, link: FakeLink, audit: AuditLog) -> None:
        policy = policy_of(allowedAuxiliaryData=["similarity", "validation"], minimumSamples=4, maximumRounds=1)
        gate = OutboundGate(link, policy, audit, terms_of("SemiAnAgg"), joined())
        gate.announce(announcement(similarity=np.zeros(2)))
        gate.announce(announcement(similarity=np.zeros(2)))
        gate.report(Evaluation("t", {"validation": np.array([3, 4])}, 4))
        assert len(link.messages) == 3

    def test_a_refusal_is_a_failed_task_with_its_code_in_the_log(
        self, link: FakeLink, audit: AuditLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        terms = terms_of("FedAvg", "FedAnchor")  # a warm-up, and what follows
        gate = OutboundGate(link, policy_of(allowedMethods=["FedAnchor"]), audit, terms, joined())
        worker = SiloWorker(gate, FakeLearner(), MemoryBuffers(), admit=gate.admit)
        task = train_task(ONE)
        worker.handle(Assigned(task))
        assert link.messages == [("fail", task.id, "ANC-2210")] and link.fetched == []
        assert [(line["kind"], line["code"]) for line in lines(tmp_path)] == [("failure", "ANC-2210")]
        assert "ANC-2210" in caplog.text and "allowedMethods: FedAnchor" in caplog.text

    def test_what_an_update_carries_is_named_by_its_layout(self) -> None:
        network = [("encoder.w", "F32", (2,))]
        for extra, named in [
            ((), []),
            (("lora.encoder/w/a",), []),
            (("control.encoder.w",), ["control"]),
            (("beside.moments.sums",), ["moments"]),
        ]:
            assert list(extras_of([Layout.of([*network, *((name, "F64", (2,)) for name in extra)])])) == named

    def test_control_variates_leave_where_the_policy_names_them(self, link: FakeLink, audit: AuditLog) -> None:
        for policy, allowed in [(policy_of(allowedAuxiliaryData=["control"]), True), (Policy(), True), (NONE, False)]:
            gate = OutboundGate(link, policy, audit, terms_of("FedAvg", extras=("control",)), joined())
            if allowed:
                gate.admit(train_task(ONE))
                continue
            with pytest.raises(AnchorageError, match="ANC-2211.*auxiliary data control is not allowed"):
                gate.admit(train_task(ONE))

    def test_rounds_are_counted_over_restarts(self, link: FakeLink, tmp_path: Path) -> None:
        def worker() -> tuple[SiloWorker, AuditLog]:
            audit = AuditLog(tmp_path / "audit.jsonl")
            gate = OutboundGate(
                link, policy_of(maximumRounds=2, maximumEvaluations=9), audit, terms_of("FedAvg"), joined()
            )
            return SiloWorker(gate, FakeLearner(), MemoryBuffers(), admit=gate.admit), audit

        for number in (1, 2, 2, 3):
            silo, audit = worker()
            silo.handle(Assigned(train_task(ONE, number)))
            silo.handle(Assigned(evaluate_task(ONE, number)))
            audit.close()
        kinds = [s[0] for s in link.messages if s[0] in ("announce", "fail")]
        assert kinds == ["announce", "announce", "announce", "fail"]

    @pytest.mark.parametrize(("fields", "most"), [({"maximumRounds": 0}, 0), ({"maximumEvaluations": 2}, 2)])
    def test_scored_models_are_counted_over_restarts(
        self, link: FakeLink, tmp_path: Path, fields: dict[str, int], most: int
    ) -> None:
        for number in (1, 1, 2, 3):
            audit = AuditLog(tmp_path / "audit.jsonl")
            gate = OutboundGate(link, policy_of(**fields), audit, terms_of("FedAvg"), joined())
            worker = SiloWorker(gate, FakeLearner(), MemoryBuffers(), admit=gate.admit)
            worker.handle(Assigned(evaluate_task(ONE, number)))
            audit.close()
        assert len({s[1] for s in link.messages if s[0] == "report"}) == most
        assert ("fail", evaluate_task(ONE, 3).id, "ANC-2213") in link.messages

    def test_what_a_method_sends_beyond_its_name_is_refused(self, link: FakeLink, audit: AuditLog) -> None:
        """FedMix's means of images, under the name FedAvg."""
        plain, mixing = PRESETS["FedAvg"].slots, PRESETS["FedMix"].slots.input_mixing
        proximal = plain.model_copy(update={"regulariser": PRESETS["FedProx"].slots.regulariser})
        policy = policy_of(allowedMethods=["FedAvg"])
        OutboundGate(link, policy, audit, terms_of(plain, proximal), joined()).admit(train_task(ONE))
        gate = OutboundGate(link, policy, audit, terms_of(plain.model_copy(update={"input_mixing": mixing})), joined())
        with pytest.raises(AnchorageError, match=r"ANC-2210.*under the name FedAvg the run also sends mean_images"):
            gate.admit(train_task(ONE))

    def test_an_array_that_no_piece_declares_does_not_leave(
        self, link: FakeLink, audit: AuditLog, tmp_path: Path
    ) -> None:
        gate = OutboundGate(link, Policy(), audit, terms_of("SemiAnAgg"), joined())
        with pytest.raises(AnchorageError, match=r"ANC-2211.*features is declared by no piece"):
            gate.announce(announcement(similarity=np.zeros(2), features=np.zeros((9, 64))))
        assert link.messages == [] and lines(tmp_path) == []

    def test_names_of_files_stay_in_the_hospital(
        self, link: FakeLink, audit: AuditLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        messages: list[str] = []
        monkeypatch.setattr(link, "fail", lambda task, code, message: messages.append(message))
        gate = OutboundGate(link, Policy(), audit, terms_of("FedAvg"), joined())
        code = next(code for code in sorted(CATALOGUE) if code.startswith("ANC-12"))
        gate.fail("t", code, "/data/patient-7.jpg is damaged")
        gate.fail("t", "ANC-2204", "exit status -9")
        for text in ("open(/srv/patient-7): no", r"C:\patient-7", "~/patient-7"):
            gate.fail("t", "ANC-1301", text)
        gate.fail("t", "ANC-3101", "patient-7.bin is full")
        where = "localLoss acme.Focal (acme/focal.py:15 of acme 0.1.0): loss raised KeyError at acme/focal.py:31"
        gate.fail("t", "ANC-1312", f"{where}: 'patient-7'")
        gate.fail("t", "ANC-1301", "loss is nan")
        assert messages[-2] == where
        assert not any("patient" in text for text in messages)
        assert messages[1] == "exit status -9"
        assert messages[2] == CATALOGUE["ANC-1301"].title and messages[-1] == "loss is nan"
        assert "patient-7" in caplog.text

    @pytest.mark.parametrize(("minimum", "sent"), [(None, [20, 20]), (3, [20, 20]), (6, [20, 0])])
    def test_a_finding_of_fewer_images_than_the_policy_demands_is_not_told(
        self, link: FakeLink, audit: AuditLog, minimum: int | None, sent: list[int]
    ) -> None:
        task = MultiLabel(labels=("Mass", "Edema"))
        labels = np.zeros((20, 2), np.int8)
        labels[:10, 0], labels[:4, 1] = 1, 1
        tally = task.tally(labels, np.full((20, 2), 0.5))
        policy = Policy() if minimum is None else policy_of(minimumSamples=minimum)
        gate = OutboundGate(link, policy, audit, terms_of("FedAvg"), joined(), scored_by=task)
        scored = evaluate_task(TWO)
        gate.admit(scored)
        gate.report(Evaluation(scored.id, tally, 20))
        (evaluation,) = link.evaluations.values()
        assert evaluation.tally["score_counts"].sum((0, 2)).tolist() == sent and evaluation.tally["scored_images"] == 20

    @pytest.mark.parametrize(("minimum", "sent"), [(3, [20, 20]), (6, [20, 0])])
    def test_nor_is_it_told_of_a_model_that_a_weighting_has_scored(
        self, link: FakeLink, audit: AuditLog, minimum: int, sent: list[int]
    ) -> None:
        task = MultiLabel(labels=("Mass", "Edema"))
        labels = np.zeros((20, 2), np.int8)
        labels[:10, 0], labels[:4, 1] = 1, 1
        method = PRESETS["DVW"].slots_of(task)
        counts = Dvw(metric="MacroAUROC").tally(labels, np.full((20, 2), 0.5))
        gate = OutboundGate(link, policy_of(minimumSamples=minimum), audit, terms_of(method), joined(), scored_by=task)
        trained, scored = train_task(ONE), evaluate_task(TWO)
        for asked in (trained, scored):
            gate.admit(asked)
        gate.announce(announcement(trained.id, 20, validation=counts))
        gate.report(Evaluation(scored.id, {"validation": counts}, 20))
        (evaluation,), (sent_announcement,) = link.evaluations.values(), link.announcements.values()
        assert evaluation.tally["validation"].sum((0, 2)).tolist() == sent
        assert sent_announcement.auxiliary_data["validation"].sum((0, 2)).tolist() == sent

    def test_nothing_leaves_when_it_cannot_be_written_down(
        self, link: FakeLink, audit: AuditLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gate = OutboundGate(link, Policy(), audit, terms_of("FedAvg"), joined())
        write = os.write
        with monkeypatch.context() as full:
            full.setattr("anchorage_silo.chained_log.os.write", lambda file, line: write(file, line[:20]))
            with pytest.raises(AnchorageError, match="ANC-2221.*No space left"):
                gate.announce(announcement())
        assert link.messages == [] and lines(tmp_path) == []
        gate.announce(announcement())
        assert len(lines(tmp_path)) == 1

    def test_nothing_leaves_before_the_disk_has_it(
        self, link: FakeLink, audit: AuditLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gate = OutboundGate(link, Policy(), audit, terms_of("FedAvg"), joined())

        def broken(file: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr("anchorage_silo.chained_log.os.fsync", broken)
        with pytest.raises(AnchorageError, match="ANC-2221"):
            gate.announce(announcement())
        assert link.messages == []


class TestAuditLog:
    def write(self, path: Path) -> list[str]:
        log = AuditLog(path)
        for number in range(3):
            log.record("announce", f"{number}.train", digest="d")
        log.close()
        return path.read_text().splitlines(keepends=True)

    def test_goes_on_where_it_was(self, tmp_path: Path) -> None:
        path = tmp_path / "audit.jsonl"
        before = self.write(path)
        after = self.write(path)
        assert after[:3] == before and len(after) == 6
        log = AuditLog(path)
        assert log.read_sent("announce", all_runs=True) == {("0.train", "d"), ("1.train", "d"), ("2.train", "d")}
        log.close()
        assert path.stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize("change", ["edit", "remove", "swap", "insert", "garbage"])
    def test_tampering_shows(self, tmp_path: Path, change: str) -> None:
        path = tmp_path / "audit.jsonl"
        text = self.write(path)
        match change:
            case "edit":
                text[1] = text[1].replace("1.train", "7.train")
            case "remove":
                del text[1]
            case "swap":
                text[0], text[1] = text[1], text[0]
            case "insert":
                text.insert(1, text[0])
            case "garbage":
                text[1] = "\xff\n"
        path.write_text("".join(text))
        with pytest.raises(AnchorageError, match="ANC-2220.*line [12]"):
            AuditLog(path)

    def test_a_torn_last_line_is_cut_off(self, tmp_path: Path) -> None:
        path = tmp_path / "audit.jsonl"
        text = "".join(self.write(path))
        path.write_text(text + text.splitlines()[0][:-10])
        AuditLog(path).close()
        assert path.read_text() == text

    @pytest.mark.parametrize(
        "change",
        ["cut tail", "cut in a line", "empty", "no log", "rewritten", "no head", "no key", "other head", "other key"],
    )
    def test_what_a_signed_head_shows(self, tmp_path: Path, change: str) -> None:
        path, other = tmp_path / "audit.jsonl", tmp_path / "other" / "audit.jsonl"
        text = self.write(path)
        other.parent.mkdir()
        self.write(other)
        match change:
            case "cut tail":
                path.write_text("".join(text[:2]))
            case "cut in a line":
                path.write_text("".join(text)[:-10])
            case "empty":
                path.write_text("")
            case "no log":
                path.unlink()
            case "rewritten":  # by the same rule, so that its chain is whole
                path.write_text(other.read_text())
            case "no head" | "no key":
                path.with_suffix(f".{change[3:]}").unlink()
            case "other head" | "other key":
                name = f"audit.{change[6:]}"
                (tmp_path / name).write_bytes((other.parent / name).read_bytes())
        for check in (lambda path: list(verify(path)), AuditLog):
            with pytest.raises(AnchorageError, match="ANC-2220"):
                check(path)

    def test_a_crash_between_line_and_head_loses_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "audit.jsonl"
        self.write(path)
        head = path.with_suffix(".head").read_bytes()
        log = AuditLog(path)
        log.record("announce", "3.train")
        log.close()
        path.with_suffix(".head").write_bytes(head)
        assert len(list(verify(path))) == 4
        log = AuditLog(path)
        log.record("announce", "4.train")
        log.close()
        assert len(list(verify(path))) == 5

    def test_a_log_that_never_began_is_whole(self, tmp_path: Path) -> None:
        assert list(verify(tmp_path / "audit.jsonl")) == []

    def test_a_folder_that_is_missing_has_its_code(self, tmp_path: Path) -> None:
        with pytest.raises(AnchorageError, match="ANC-2221"):
            AuditLog(tmp_path / "missing" / "audit.jsonl")
