"""Differential privacy at the silo: what is accounted, written down, refused and taken out."""

import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from silo_fakes import LAYOUT, FakeLearner, FakeLink, evaluate_task, model_of, setup_with, terms_of, train_task

from anchorage.api.data import Partition, SiloData
from anchorage.api.errors import AnchorageError, transfer
from anchorage.api.mistakes import DocumentError
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription
from anchorage.api.single import read_document
from anchorage.engine.accounting import Mechanism, epsilon
from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.silo import SiloWorker
from anchorage.learning.learners import build_server_learner
from anchorage.methods import PRESETS
from anchorage.pieces.task.classification import Classification
from anchorage.transport.messages import Announcement, Assigned, Permit
from anchorage.transport.pki import Authority
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.model import read_arrays
from anchorage_silo.audit import AuditLog
from anchorage_silo.budget import BudgetGuard
from anchorage_silo.config import SiloConfig
from anchorage_silo.frames import Setup
from anchorage_silo.ledger import LEDGER_FILE, PrivacyLedger
from anchorage_silo.limits import Limits
from anchorage_silo.outbound_gate import OutboundGate
from anchorage_silo.policy import Policy
from anchorage_silo.privacy import PrivateLearner
from anchorage_silo.protection import Protection
from anchorage_silo.review import Review
from anchorage_silo.state import AgentState
from anchorage_silo.trainer import build_learner

dp_accounting = pytest.importorskip("dp_accounting")

IMAGES = 1000
NOISED: dict[str, Any] = {"clipNorm": "1", "noiseStd": "10"}
COSTS = [(5.0, 1), (5.0, 20), (2.0, 3), (10.0, 100), (1.0, 1), (1.5, 2), (50.0, 1000), (20.0, 7), (3.0, 10), (0.8, 1)]
SAMPLED = [
    (1.0, 0.01, 1000), (1.1, 0.05, 400), (2.0, 0.1, 50), (0.7, 0.02, 100), (4.0, 0.5, 30),
    (1.5, 0.001, 5000), (0.8, 0.25, 4), (3.0, 0.05, 2000), (6.0, 0.9, 10), (1.2, 0.016, 240),
]  # fmt: skip


def run_of(name: str = "FedAvg", **fields: Any) -> RunDescription:
    model = ModelDescription(network="SmallCnn", task=Classification(classes=("a", "b")), image_size=8, channels=1)
    terms = {"federation": "derm", "seed": 1, "rounds": 50, "mode": "Synchronous", "method": PRESETS[name].slots}
    terms |= {"model": model, "down": LAYOUT.to_json(), "up": LAYOUT.to_json()}
    return RunDescription(**{**terms, **fields})


def policy_of(**budget: Any) -> Policy:
    noised = {} if "dpSgd" in budget else NOISED
    return Policy.model_validate_json(
        json.dumps({**noised, "privacyBudget": {"epsilon": "2", "delta": "0.00001", **budget}})
    )


class Site:
    """A silo whose gate keeps a budget, in a folder."""

    def __init__(self, folder: Path, name: str = "FedAvg", learner: Any = None, **budget: Any) -> None:
        self.policy, self.run = policy_of(**budget), run_of(name)
        guard = BudgetGuard.of(self.policy, self.run, folder)
        assert guard is not None
        self.state, self.ledger = AgentState(folder / "silo.crt"), guard.ledger
        self.state.set_joined(IMAGES)
        self.link, self.audit = FakeLink(), AuditLog(folder / "audit.jsonl")
        limits = Limits(10_000, 10_000)
        self.gate = OutboundGate(
            self.link, self.policy, self.audit, terms_of(self.run.method, needed=limits), self.state, guard=guard
        )
        self.learner = learner or FakeLearner()
        private = PrivateLearner(
            self.learner,
            LAYOUT,
            LAYOUT,
            Protection(clip_norm=1.0, noise_std=10.0, noise_seed=None, always=True),
        )
        self.worker = SiloWorker(self.gate, private, MemoryBuffers(), admit=self.gate.admit)

    def round(self, number: int) -> str:
        """Train and send; return the code of a refusal, empty where the update left."""
        model = model_of(float(number))
        self.link.models[model.digest] = model
        task = train_task(model, number)
        self.worker.handle(Assigned(task))
        if (failed := next((what for what in self.link.messages if what[:2] == ("fail", task.id)), None)) is not None:
            return str(failed[2])
        self.worker.handle(Permit(task.id))
        return ""


class TestAccounting:
    @pytest.mark.parametrize(("noise", "count"), COSTS)
    def test_whole_updates_cost_what_a_privacy_loss_distribution_says(self, noise: float, count: int) -> None:
        accountant = dp_accounting.pld.PLDAccountant()
        accountant.compose(dp_accounting.GaussianDpEvent(noise), count)
        assert epsilon([Mechanism(noise)] * count, 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), abs=1e-3)

    @pytest.mark.parametrize(("noise", "rate", "steps"), SAMPLED)
    def test_sampled_steps_cost_what_dp_accounting_says(self, noise: float, rate: float, steps: int) -> None:
        accountant = dp_accounting.rdp.RdpAccountant()
        sampled = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
        accountant.compose(dp_accounting.SelfComposedDpEvent(sampled, steps))
        halves = [Mechanism(noise, rate, steps // 2), Mechanism(noise, rate, steps - steps // 2)]
        assert epsilon(halves, 1e-6) == pytest.approx(accountant.get_epsilon(1e-6), abs=1e-3)

    def test_without_the_package_a_budget_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "dp_accounting.rdp", None)
        with pytest.raises(AnchorageError, match=r"ANC-2218.*pip install dp-accounting"):
            epsilon([Mechanism(5.4321)], 1e-5)

    def test_nothing_costs_nothing_and_no_noise_costs_everything(self) -> None:
        assert epsilon([], 1e-5) == 0 and epsilon([Mechanism(0.0)], 1e-5) == float("inf")

    def test_a_silo_as_a_whole_is_protected_with_twice_the_norm_as_sensitivity(self, tmp_path: Path) -> None:
        guard = BudgetGuard.of(policy_of(), run_of(), tmp_path)
        assert guard is not None and guard.mechanism(1, IMAGES) == Mechanism(5.0)

    def test_single_images_are_protected_by_samples_of_the_images(self, tmp_path: Path) -> None:
        guard = BudgetGuard.of(policy_of(dpSgd={"clipNorm": "2", "noiseMultiplier": "1.5"}), run_of(), tmp_path)
        local = run_of().method.local
        assert guard is not None
        steps = local.epochs * -(-IMAGES // local.batch_size)
        assert guard.mechanism(1, IMAGES) == Mechanism(1.5, local.batch_size / IMAGES, steps)


class TestLedger:
    def test_a_hundred_restarts_never_spend_beyond_the_budget(self, tmp_path: Path) -> None:
        """Every restart opens the file anew; some find its last line torn at a random byte, where the machine stopped before anything was sent."""
        rng, cost, sent = random.Random(5), Mechanism(20.0), 0
        file = tmp_path / LEDGER_FILE
        for number in range(100):
            ledger = PrivacyLedger(tmp_path, 1.0, 1e-5)
            if number % 3 == 1:
                head, before = file.with_suffix(".head").read_bytes(), file.read_bytes()
                try:
                    ledger.spend(cost, federation="derm", task=f"{number}", digest=f"torn {number}")
                except AnchorageError as error:
                    assert error.code == "ANC-2216"
                else:  # the machine stops while the line is written: the head is the one before, and nothing has left
                    torn = file.read_bytes()[: rng.randrange(len(before), file.stat().st_size)]
                    file.write_bytes(torn)
                    file.with_suffix(".head").write_bytes(head)
                continue
            try:
                ledger.spend(cost, federation="derm", task=f"{number}", digest=f"{number}")
                sent += 1
            except AnchorageError as error:
                assert error.code == "ANC-2216"
            assert epsilon([cost] * sent, 1e-5) <= 1.0
            assert ledger.spent_epsilon() == pytest.approx(epsilon([cost] * sent, 1e-5))
        assert epsilon([cost] * (sent + 1), 1e-5) > 1.0, "the whole budget was used"

    def test_a_file_that_lost_written_lines_is_refused_at_every_byte(self, tmp_path: Path) -> None:
        ledger = PrivacyLedger(tmp_path, 1.0, 1e-5)
        for number in range(3):
            ledger.spend(Mechanism(20.0), federation="derm", task="t", digest=f"{number}")
        file = tmp_path / LEDGER_FILE
        content = file.read_bytes()
        for size in random.Random(1).sample(range(len(content)), 40):
            file.write_bytes(content[:size])
            for attempt in (
                ledger.spent_epsilon,
                lambda: ledger.check(Mechanism(20.0), federation="derm", task="new"),
                lambda: ledger.spend(Mechanism(20.0), federation="derm", task="t", digest="new"),
            ):
                with pytest.raises(AnchorageError, match="ANC-2222"):
                    attempt()
        file.unlink()
        with pytest.raises(AnchorageError, match="ANC-2222"):
            ledger.spent_epsilon()

    def test_the_same_update_costs_once(self, tmp_path: Path) -> None:
        ledger = PrivacyLedger(tmp_path, 1.0, 1e-5)
        spent = {ledger.spend(Mechanism(20.0), federation="derm", task="t", digest="same") for _ in range(3)}
        assert spent == {epsilon([Mechanism(20.0)], 1e-5)}

    def test_federations_with_the_same_images_share_a_ledger(self, tmp_path: Path) -> None:
        one, two = (PrivacyLedger(tmp_path / "volume", 1.0, 1e-5) for _ in range(2))
        one.spend(Mechanism(10.0), federation="one", task="t", digest="a")
        assert two.spend(Mechanism(10.0), federation="two", task="t", digest="b") == epsilon(
            [Mechanism(10.0)] * 2, 1e-5
        )

    def test_an_update_that_was_paid_for_may_leave_and_no_other_in_its_place(self, tmp_path: Path) -> None:
        ledger, cost = PrivacyLedger(tmp_path, 1.0, 1e-5), Mechanism(5.0)
        ledger.spend(cost, federation="derm", task="t", digest="paid")
        ledger.check(cost, federation="derm", task="t")
        assert ledger.spend(cost, federation="derm", task="t", digest="paid") == epsilon([cost], 1e-5)
        for attempt in (
            lambda: ledger.check(cost, federation="derm", task="u"),
            lambda: ledger.check(cost, federation="other", task="t"),
            lambda: ledger.spend(cost, federation="derm", task="t", digest="another"),
        ):
            with pytest.raises(AnchorageError, match="ANC-2216"):
                attempt()

    def test_says_how_many_updates_it_lasts_for(self, tmp_path: Path) -> None:
        ledger, cost = PrivacyLedger(tmp_path, 1.0, 1e-5), Mechanism(20.0)
        fits = ledger.lasts(cost, 1000)
        assert epsilon([cost] * fits, 1e-5) <= 1.0 < epsilon([cost] * (fits + 1), 1e-5)
        assert ledger.lasts(cost, 2) == 2 and ledger.lasts(Mechanism(0.1), 5) == 0


class TestGuard:
    def test_rounds_beyond_the_budget_are_refused_before_training_also_after_a_restart(self, tmp_path: Path) -> None:
        budget = {"epsilon": "1.5", "ledger": str(tmp_path / "volume")}
        (tmp_path / "first").mkdir()
        (tmp_path / "second").mkdir()
        first = Site(tmp_path / "first", **budget)
        codes = [first.round(number) for number in range(1, 4)]
        reinstalled = Site(tmp_path / "second", **budget)  # nothing of the agent's own folder is left
        codes += [reinstalled.round(number) for number in range(4, 12)]
        allowed = codes.index("ANC-2216")
        assert set(codes[:allowed]) == {""} and set(codes[allowed:]) == {"ANC-2216"} and 0 < allowed < 11
        assert len(first.learner.trained + reinstalled.learner.trained) == allowed
        assert epsilon([Mechanism(5.0)] * allowed, 1e-5) <= 1.5 < epsilon([Mechanism(5.0)] * (allowed + 1), 1e-5)

    def test_a_restart_between_paying_for_the_last_update_and_sending_it_loses_nothing(self, tmp_path: Path) -> None:
        site = Site(tmp_path, epsilon="1", learner=FakeLearner())
        rounds, model = site.ledger.lasts(Mechanism(5.0), 100), model_of(0.0)
        site.link.models[model.digest] = model
        for number in range(1, rounds):
            assert site.round(number) == ""
        buffers, task = MemoryBuffers(), train_task(model, rounds)
        site.link.refuse["announce"] = AnchorageError(transfer.SERVER_UNREACHABLE, "the line was cut")
        site.worker._buffers = buffers
        site.worker.handle(Assigned(task))
        assert site.ledger.lasts(Mechanism(5.0), 1) == 0 and not site.link.updates.get(task.id)
        site.audit.close()
        restarted = Site(tmp_path, epsilon="1", learner=FakeLearner())
        restarted.link.models[model.digest] = model
        restarted.worker._buffers = buffers
        restarted.worker.handle(Assigned(task))
        restarted.worker.handle(Permit(task.id))
        assert restarted.learner.trained == [] and task.id in restarted.link.updates, restarted.link.messages
        assert restarted.round(rounds + 1) == "ANC-2216"

    def test_is_written_down_before_it_leaves(self, tmp_path: Path) -> None:
        site, budgets = Site(tmp_path), []
        announce = site.link.announce
        site.link.announce = lambda announcement: (budgets.append(site.ledger.spent_epsilon()), announce(announcement))[
            1
        ]  # type: ignore[method-assign]
        site.round(1)
        assert budgets == [epsilon([Mechanism(5.0)], 1e-5)] == [site.state.epsilon]

    def test_only_the_number_of_images_and_what_is_spent_leave_with_an_update(self, tmp_path: Path) -> None:
        site = Site(tmp_path)
        site.round(1)
        (announcement,) = site.link.announcements.values()
        assert announcement.samples == {"train": IMAGES} and not announcement.auxiliary
        assert announcement.metrics == {"epsilon": epsilon([Mechanism(5.0)], 1e-5), "delta": 1e-5}
        assert {what[3] for what in site.link.messages if what[0] == "progress"} == {100}

    def test_a_silo_without_an_update_sends_noise_all_the_same(self, tmp_path: Path) -> None:
        site = Site(tmp_path, learner=FakeLearner(inactive=True))
        assert site.round(1) == ""
        arrays = read_arrays(LAYOUT, np.frombuffer(next(iter(site.link.updates.values())), np.uint8))
        assert (arrays["weight"] - 1.0).std() == pytest.approx(10.0, rel=0.01)
        assert arrays["count"].tolist() == [1, 2, 3]

    def test_an_update_that_is_not_finite_counts_as_none(self, tmp_path: Path) -> None:
        class Broken(FakeLearner):
            def train(self, task: Any, model: Any, out: Any, progress: Any) -> Announcement:
                announcement = super().train(task, model, out, progress)
                out(LAYOUT.nbytes)[LAYOUT.by_name["weight"].offset :][:4].view("<f4")[:] = np.nan
                return replace(announcement, update=Manifest.of(LAYOUT.digest, out(LAYOUT.nbytes)))

        site = Site(tmp_path, learner=Broken())
        assert site.round(1) == ""
        arrays = read_arrays(LAYOUT, np.frombuffer(next(iter(site.link.updates.values())), np.uint8))
        assert np.isfinite(arrays["weight"]).all()

    @pytest.mark.parametrize("name", ["SemiAnAgg", "DVW", "SCAFFOLD", "FedMix", "CBAFed"])
    def test_methods_that_send_more_are_refused(self, name: str, tmp_path: Path) -> None:
        site = Site(tmp_path, name)
        if name == "SCAFFOLD":
            site.gate.terms = terms_of(name, extras=("control",))  # what the layouts of such an update say
        assert site.round(1) == "ANC-2217" and not site.learner.trained

    def test_no_model_is_scored(self, tmp_path: Path) -> None:
        site, model = Site(tmp_path), model_of(1.0)
        site.link.models[model.digest] = model
        site.worker.handle(Assigned(evaluate_task(model)))
        assert [what[2] for what in site.link.messages if what[0] == "fail"] == ["ANC-2217"]
        assert not site.learner.evaluated

    def test_failures_tell_no_numbers_of_training(self, tmp_path: Path) -> None:
        site, announcements = Site(tmp_path), []
        site.link.fail = lambda task, code, message: announcements.append(message)  # type: ignore[method-assign]
        site.gate.fail("t", "ANC-1301", "the training loss is nan after 17 steps")
        assert "17" not in announcements[0]


class TestPolicy:
    @pytest.mark.parametrize(
        "text",
        [
            "privacyBudget: {epsilon: '2', delta: '0.00001'}",
            "clipNorm: '1'\nprivacyBudget: {epsilon: '2', delta: '0.00001'}",
            "clipNorm: '0'\nnoiseStd: '1'\nprivacyBudget: {epsilon: '2', delta: '0.00001'}",
            "clipNorm: '1'\nnoiseStd: '1'\nnoiseSeed: 3\nprivacyBudget: {epsilon: '2', delta: '0.00001'}",
            "clipNorm: '1'\nnoiseStd: '1'\nprivacyBudget: {epsilon: '2', delta: '1'}",
            "noiseStd: '1'\nprivacyBudget: {epsilon: '2', delta: '0.1', dpSgd: {clipNorm: '1', noiseMultiplier: '1'}}",
            "privacyBudget: {epsilon: '2', delta: '0.1', dpSgd: {clipNorm: '1', noiseMultiplier: '0'}}",
        ],
    )
    def test_a_budget_without_protection_is_a_mistake(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "policy.yaml").write_text(text)
        with pytest.raises(DocumentError):
            read_document(tmp_path / "policy.yaml", Policy)

    def test_an_unreadable_ledger_has_its_code(self, tmp_path: Path) -> None:
        (tmp_path / LEDGER_FILE).mkdir()
        with pytest.raises(AnchorageError, match="ANC-2223"):
            PrivacyLedger(tmp_path, 1.0, 1e-5).spent_epsilon()


class TestReview:
    def review(self, folder: Path, **budget: Any) -> str:
        authority = Authority.create(folder / "authority", "derm").certificate_path
        fields = {"silo": "a", "federation": "derm", "server": "s.example.org:8443", "enrolment": "s.example.org:8444"}
        fields |= {"authority": str(authority), "state": str(folder), "labels": "All", "trainer": {"type": "Null"}}
        config = SiloConfig.model_validate_json(json.dumps(fields))
        return "\n".join(Review.of(run_of().to_json(), config, policy_of(**budget)).words())

    def test_says_what_is_spent_what_an_update_costs_and_how_many_fit(self, tmp_path: Path) -> None:
        PrivacyLedger(tmp_path, 2.0, 1e-5).spend(Mechanism(5.0), federation="derm", task="t", digest="a")
        words, one = self.review(tmp_path), epsilon([Mechanism(5.0)], 1e-5)
        fits = next(n for n in range(100) if epsilon([Mechanism(5.0)] * (n + 2), 1e-5) > 2)
        assert f"epsilon {one:.4g} of 2 is spent, at delta 1e-05; protected: all images of the silo" in words
        assert f"a first update costs {one:.4g}, and {fits} of at most 60 fit" in words
        assert "the number of images and the privacy loss so far" in words and "digest that shows" not in words

    def test_says_what_dp_sgd_protects(self, tmp_path: Path) -> None:
        words = self.review(tmp_path, dpSgd={"clipNorm": "2", "noiseMultiplier": "1.5"})
        assert "epsilon 0 of 2 is spent" in words and "protected: one image more or less" in words
        assert "each image's gradient is scaled down to the norm 2, with 1.5 times that as noise" in words


def test_the_trainer_does_what_the_policy_says(tmp_path: Path) -> None:
    """A trainer of a federation whose network counts statistics of batches refuses to train with DP-SGD."""
    method = PRESETS["FedAvg"].slots
    model = ModelDescription(
        network="SmallCnn", task=Classification(classes=tuple("0123456789")), image_size=8, channels=1
    )
    initial = build_server_learner(model=model, method=method, seed=1).initialise()
    layout = initial.layout.to_json()
    run = run_of(model=model, down=layout, up=layout).to_json()
    section = SiloData(format="Digits", use="Part", partition=Partition(recipe="Iid", parts=8, part=0))
    policy = policy_of(dpSgd={"clipNorm": "1", "noiseMultiplier": "1"})
    data = section.model_dump(by_alias=True, mode="json", exclude_none=True)
    setup = setup_with(tmp_path, run, policy, labels="All", device="cpu", dataRoot=str(tmp_path), data=data)
    learner, _, _ = build_learner(Setup.from_json(setup.to_json()))
    with pytest.raises(AnchorageError, match="ANC-2217.*batchNorm"):
        learner.train(train_task(initial), initial.buffer(), MemoryBuffers().update, lambda done, total: 0)
