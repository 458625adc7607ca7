"""A policy played against an audit log says of every request what the gate would have done under it."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from silo_fakes import FakeLink, evaluate_task, model_of, terms_of, train_task

from anchorage.api.errors import AnchorageError
from anchorage.engine.accounting import Mechanism, epsilon
from anchorage.methods import PRESETS
from anchorage.transport.messages import Announcement, Evaluation, Task
from anchorage_silo.audit import AuditLog
from anchorage_silo.main import main
from anchorage_silo.outbound_gate import OutboundGate
from anchorage_silo.policy import Policy
from anchorage_silo.policy_check import PolicyCheck
from anchorage_silo.state import AgentState
from anchorage_silo.verdict import Past, Request, RequestKind, RunTerms, judge

MODELS = [model_of(float(value)) for value in range(4)]
SEMI = terms_of("SemiAnAgg")


def policy_of(**fields: Any) -> Policy:
    return Policy.model_validate_json(json.dumps(fields))


def announcement(task: Task, images: int, auxiliary: str) -> Announcement:
    arrays = {auxiliary: np.zeros(2)} if auxiliary else {}
    return Announcement(task.id, {"train": images}, arrays, {}, task.model)


class Silo:
    """An agent under a policy, which gets the same tasks whatever the policy."""

    def __init__(self, folder: Path, policy: Policy, terms: RunTerms = SEMI) -> None:
        folder.mkdir()
        state = AgentState(folder / "silo.crt")
        state.set_joined(20)
        self.log, self.terms = AuditLog(folder / "audit.jsonl", now=lambda: 12.5), terms
        self.gate = OutboundGate(FakeLink(*MODELS), policy, self.log, terms, state)
        self.refusals: list[str] = []

    def run(self, images: int = 20, auxiliary: str = "similarity", *, rounds: int = 3) -> None:
        self.log.record("join", digest="run", facts={"terms": self.terms.entry(), "fewest": 20})
        for number in range(1, rounds + 1):
            task, scored = train_task(MODELS[number], number), evaluate_task(MODELS[number], number)
            message = announcement(task, images, auxiliary)
            self.try_out(task, lambda sent_message=message: self.gate.announce(sent_message))
            self.try_out(
                scored,
                lambda scored=scored: self.gate.report(Evaluation(scored.id, {"confusion": np.array([3, 4])}, 4)),
            )
        self.log.close()

    def try_out(self, task: Task, answer: Callable[[], None]) -> None:
        try:
            self.gate.admit(task)
            answer()
        except AnchorageError as error:
            self.gate.fail(task.id, error.code, error.message)
            self.refusals.append(error.code)
        else:
            self.refusals.append("")


def codes(check: PolicyCheck) -> list[str]:
    """Codes of refusals of all requests but the join; empty for one that is admitted."""
    return [each.reason[:8] for each in check.requests if each.kind != RequestKind.JOIN]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"allowedAuxiliaryData": []},
        {"allowedAuxiliaryData": ["similarity"]},
        {"allowedAuxiliaryData": ["similarity", "confusion"]},
        {"allowedMethods": ["FedAvg"]},
        {"allowedMethods": ["SemiAnAgg"]},
        {"maximumRounds": 2},
        {"maximumRounds": 2, "maximumEvaluations": 1},
        {"minimumSamples": 5},
        {"minimumSamples": 21},
        {"requireSecureAggregation": True},
        {"clipNorm": "1", "noiseStd": "10", "privacyBudget": {"epsilon": "2", "delta": "0.00001"}},
    ],
    ids=str,
)
@pytest.mark.parametrize(("images", "auxiliary"), [(20, "similarity"), (20, ""), (10, "similarity")])
def test_says_what_the_gate_would_have_done(
    fields: dict[str, Any], images: int, auxiliary: str, tmp_path: Path
) -> None:
    trusting = Silo(tmp_path / "trusting", policy_of(relativeNoise="0"))
    trusting.run(images, auxiliary)
    assert trusting.refusals == [""] * 6
    strict = Silo(tmp_path / "strict", policy_of(**fields))
    strict.run(images, auxiliary)
    check = PolicyCheck.of(policy_of(**fields), trusting.log.path)
    assert codes(check) == strict.refusals
    assert (check.admitted, check.refused) == (
        7 - check.refused,
        sum(map(bool, strict.refusals)) + (fields.get("minimumSamples") == 21),
    )
    assert not any(each.unjudged for each in check.requests)


def test_more_updates_with_relative_noise_need_the_logs_approval(tmp_path: Path) -> None:
    approved, bare = (Silo(tmp_path / name, policy_of(relativeNoise="0")) for name in ("approved", "bare"))
    approved.log.record("approval", digest="d")
    for silo in (approved, bare):
        silo.run()
    assert codes(PolicyCheck.of(policy_of(), approved.log.path)) == [""] * 6
    assert codes(PolicyCheck.of(policy_of(), bare.log.path)) == ["", "", "ANC-2213", "", "ANC-2213", ""]


def test_counts_only_what_the_policy_would_have_let_out(tmp_path: Path) -> None:
    """The first update would have been refused, so that it takes nothing of the two that are allowed."""
    silo = Silo(tmp_path / "a", policy_of(relativeNoise="0"))
    silo.log.record("join", digest="run", facts={"terms": SEMI.entry(), "fewest": 20})
    for number, images in ((1, 3), (2, 20), (3, 20)):
        task = train_task(MODELS[number], number)
        silo.gate.admit(task)
        silo.gate.announce(announcement(task, images, ""))
    silo.log.close()
    check = PolicyCheck.of(policy_of(maximumRounds=2, minimumSamples=10), silo.log.path)
    assert codes(check) == ["ANC-2212", "", ""]
    assert codes(PolicyCheck.of(policy_of(maximumRounds=2), silo.log.path)) == ["ANC-2212", "", ""]
    assert codes(PolicyCheck.of(policy_of(maximumRounds=1, relativeNoise="0"), silo.log.path)) == [
        "",
        "ANC-2213",
        "ANC-2213",
    ]


def test_an_update_that_was_announced_again_counts_once(tmp_path: Path) -> None:
    silo = Silo(tmp_path / "a", policy_of())
    silo.run(auxiliary="", rounds=1)
    with closing(AuditLog(tmp_path / "a" / "audit.jsonl")) as log:
        entry = next(json.loads(line) for line in log.path.read_text().splitlines() if '"announce"' in line)
        facts = {name: entry[name] for name in ("round", "fewest", "trained")}
        log.record("announce", entry["task"], digest=entry["digest"], facts=facts)
    check = PolicyCheck.of(policy_of(maximumRounds=1), tmp_path / "a" / "audit.jsonl")
    assert [each.verdict for each in check.requests if each.kind == "announce"] == ["admitted", "admitted"]


def test_spends_a_budget_from_the_first_line_on(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    two, three = (epsilon([Mechanism(5.0)] * number, 1e-5) for number in (2, 3))
    most = {"epsilon": f"{(two + three) / 2:.6f}", "delta": "0.00001"}
    fields = {"clipNorm": "1", "noiseStd": "10", "privacyBudget": most}
    silo = Silo(tmp_path / "a", policy_of(relativeNoise="0"), terms_of("FedAvg"))
    silo.run(auxiliary="")
    updates = codes(PolicyCheck.of(policy_of(**fields), silo.log.path))[::2]
    assert updates == ["", "", "ANC-2216"]
    image = {"epsilon": "2", "delta": "0.00001", "dpSgd": {"clipNorm": "1", "noiseMultiplier": "0.5"}}
    assert set(codes(PolicyCheck.of(policy_of(privacyBudget=image), silo.log.path))[::2]) == {"ANC-2216"}


def test_dp_sgd_refuses_a_loss_of_a_batch_of_images(tmp_path: Path) -> None:
    image = {"epsilon": "20", "delta": "0.00001", "dpSgd": {"clipNorm": "1", "noiseMultiplier": "5"}}
    policy = policy_of(privacyBudget=image)
    asked = Request(RequestKind.UPDATE, terms_of("FedAvg", per_image=False), "1.train", 1)
    refusal = judge(policy, asked, Past()).refusal
    assert refusal is not None and refusal.code == "ANC-2217" and "is of a batch of images together" in str(refusal)
    assert judge(policy, replace(asked, terms=terms_of("FedAvg")), Past()).refusal is None


def test_of_lines_without_facts_it_says_what_it_could_not_judge(tmp_path: Path) -> None:
    """Lines as agents wrote them before there was this command."""
    with closing(AuditLog(tmp_path / "audit.jsonl")) as log:
        log.record("join", digest="run")
        log.record("announce", "1.train", auxiliary=["similarity"], digest="a")
        log.record("update", "1.train", nbytes=9, digest="a")
        log.record("evaluation", "1.evaluate", auxiliary=["confusion"], digest="m")
        log.record("announce", "2.train", digest="b")
        log.record("keys", "3.keys")
        log.record("failure", "3.train", code="ANC-2211")
    fields = {
        "allowedMethods": ["FedAvg"],
        "allowedAuxiliaryData": ["similarity"],
        "maximumRounds": 1,
        "minimumSamples": 5,
    }
    check = PolicyCheck.of(policy_of(**fields, requireSecureAggregation=True, requireApproval=True), log.path)
    join, first, scores, second, keys, failed = check.requests
    everything = ("requireSecureAggregation", "allowedMethods", "allowedAuxiliaryData")
    assert (join.verdict, join.unjudged) == ("admitted", ("minimumSamples",))
    assert (first.verdict, first.unjudged) == ("admitted", (*everything, "minimumSamples"))
    assert (scores.verdict, scores.reason[:8]) == ("refused", "ANC-2211")
    assert (second.verdict, second.reason[:8], second.unjudged) == ("refused", "ANC-2213", everything)
    assert (keys.verdict, keys.unjudged) == ("admitted", everything)
    assert failed.verdict == "unknown"
    words = "\n".join(check.words())
    assert "1 could not be judged at all" in words and "requireApproval" in words
    assert "Not judged in some lines" in words and "allowedMethods" in words


def test_a_run_whose_methods_are_not_known_here_is_not_judged_by_them(tmp_path: Path) -> None:
    terms = json.loads(json.dumps(SEMI.entry()))
    terms["methods"][0]["weighting"] = {"plugin": {"name": "acme.Lost"}}
    with closing(AuditLog(tmp_path / "audit.jsonl")) as log:
        log.record("join", digest="run", facts={"terms": terms, "fewest": 20})
        log.record("announce", "1.train", digest="a", facts={"round": 1, "fewest": 20, "trained": 20})
    (_, update) = PolicyCheck.of(policy_of(allowedMethods=["SemiAnAgg"]), log.path).requests
    assert update.verdict == "admitted" and "allowedMethods" in update.unjudged


def test_failed_tasks_are_judged_by_what_was_asked(tmp_path: Path) -> None:
    silo = Silo(tmp_path / "a", policy_of(allowedMethods=["FedAvg"]))
    silo.run(rounds=1)
    assert silo.refusals == ["ANC-2210"] * 2
    still = PolicyCheck.of(policy_of(allowedMethods=["FedAvg"]), silo.log.path)
    assert codes(still) == ["ANC-2210"] * 2
    wider = PolicyCheck.of(policy_of(allowedMethods=["SemiAnAgg"]), silo.log.path)
    assert [each.verdict for each in wider.requests] == ["admitted"] * 3
    assert wider.requests[1].unjudged == ("allowedAuxiliaryData", "minimumSamples")


def test_segments_that_were_moved_away_still_count(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for run in ("one", "two"):
        with closing(AuditLog(path, segment_bytes=1000)) as log:
            log.record("join", digest=run)
            for number in range(6):
                log.record("announce", f"{number}.train", digest=f"{run}{number}")
    check = PolicyCheck.of(policy_of(maximumRounds=11), path)
    assert check.refused == 1 and check.missing_lines == 0
    (tmp_path / "audit.1.jsonl").unlink()
    rest = PolicyCheck.of(policy_of(maximumRounds=11), path)
    assert rest.refused == 1 and rest.missing_lines > 0
    assert "segments that are not here" in "\n".join(rest.words())


def test_a_changed_log_is_not_judged(tmp_path: Path) -> None:
    Silo(tmp_path / "a", policy_of()).run()
    path = tmp_path / "a" / "audit.jsonl"
    path.write_text(path.read_text().replace('"fewest": 20', '"fewest": 90', 1))
    with pytest.raises(AnchorageError, match="ANC-2220"):
        PolicyCheck.of(policy_of(), path)


class TestCommand:
    @pytest.fixture
    def config(self, tmp_path: Path) -> Path:
        Silo(tmp_path / "state", policy_of(maximumRounds=3)).run()
        fields = {"silo": "a", "federation": "derm", "server": "s:8443", "enrolment": "s:8444", "authority": "ca.pem"}
        fields |= {"state": str(tmp_path / "state"), "labels": "All", "trainer": {"type": "Null"}}
        (tmp_path / "silo.yaml").write_text(json.dumps(fields))
        return tmp_path / "silo.yaml"

    def check(self, config: Path, policy: str, *words: str) -> None:
        (config.parent / "policy.yaml").write_text(policy)
        main(["policy", "check", str(config.parent / "policy.yaml"), "--config", str(config), *words])

    def test_ends_with_0_where_everything_is_admitted(self, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.check(config, "maximumRounds: 3\n")
        lines = capsys.readouterr().out.splitlines()
        assert lines[1].startswith("line 2, 1970-01-01T00:00:12+00:00, announce 1.train.") and lines[1].endswith(
            ": admitted"
        )
        assert lines[-1] == "7 requests: 7 admitted, 0 refused"

    def test_ends_with_4_and_the_reasons_where_something_is_refused(
        self, config: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as caught:
            self.check(config, "maximumRounds: 1\nmaximumEvaluations: 9\n", "-o", "json")
        output = capsys.readouterr()
        assert caught.value.code == 4 and "ANC-2226 PolicyWouldRefuse: 2 of 7 requests" in output.err
        document = json.loads(output.out)
        assert (document["admitted"], document["refused"], document["unknown"]) == (5, 2, 0)
        refused = [each for each in document["requests"] if each["verdict"] == "refused"]
        assert all(each["reason"].startswith("ANC-2213") and "maximumRounds: 1" in each["reason"] for each in refused)

    def test_a_mistake_in_the_policy_has_its_code_and_place(
        self, config: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as caught:
            self.check(config, "maximumRound: 1\n")
        assert caught.value.code == 2 and "ANC-1007" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_what_a_run_asks_for_is_read_as_it_was_written(name: str) -> None:
    terms = terms_of(name, PRESETS[name].slots, ends=(2,), extras=("control",), secure=True)
    assert RunTerms.read(json.loads(json.dumps(terms.entry()))) == terms
    assert terms.method(2).name == terms.method(3).name == name
    assert replace(terms, methods=(*terms.methods, PRESETS["FedAvg"].slots), ends=(2, 5)).method(6).name == "FedAvg"
