"""What a hospital is told, what it approves, and the limits that follow from a run's description."""

import json
import logging
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from silo_fakes import LAYOUT, FakeLearner, FakeLink, evaluate_task, model_of, terms_of, train_task

from anchorage.api.errors import AnchorageError
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription, StageDescription
from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.silo import SiloWorker
from anchorage.methods import PRESETS
from anchorage.pieces.aggregation.private_mean import PrivateMean
from anchorage.pieces.task.classification import Classification
from anchorage.transport.messages import Assigned, Dismissed, Task, TaskKind
from anchorage.transport.pki import Authority
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.layout import HELPER, NOTHING, Layout
from anchorage_silo.approval import Approvals
from anchorage_silo.audit import AuditLog
from anchorage_silo.config import SiloConfig
from anchorage_silo.limits import MOST_LARGE_BYTES, MOST_SILOS, PLAYED_AGAIN, Limits, ModelSizes
from anchorage_silo.outbound_gate import OutboundGate
from anchorage_silo.policy import Policy
from anchorage_silo.review import Review
from anchorage_silo.state import AgentState

CHANGES = 200
MODELS = [model_of(value) for value in range(5)]


def run_of(name: str = "FedAvg", **fields: Any) -> RunDescription:
    model = ModelDescription(
        network="SmallCnn", task=Classification(classes=("benign", "malignant")), image_size=8, channels=1
    )
    terms = {"federation": "derm", "seed": 1, "rounds": 3, "mode": "Synchronous", "method": PRESETS[name].slots}
    terms |= {"model": model, "down": LAYOUT.to_json(), "up": LAYOUT.to_json()}
    return RunDescription(**{**terms, **fields})


def policy_of(**fields: Any) -> Policy:
    return Policy.model_validate_json(json.dumps(fields))


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> SiloConfig:
    folder = tmp_path_factory.mktemp("silo")
    authority = Authority.create(folder / "authority", "derm").certificate_path
    fields = {"silo": "a", "federation": "derm", "server": "s.example.org:8443", "enrolment": "s.example.org:8444"}
    fields |= {"authority": str(authority), "state": str(folder), "labels": "All", "trainer": {"type": "Null"}}
    return SiloConfig.model_validate_json(json.dumps(fields))


def review_of(run: RunDescription, config: SiloConfig, **policy: Any) -> Review:
    return Review.of(run.to_json(), config, policy_of(**policy))


def gate_of(folder: Path, link: FakeLink, needed: Limits, policy: Policy, name: str = "FedAvg") -> OutboundGate:
    state = AgentState(folder / "silo.crt")
    state.set_joined(1000)
    return OutboundGate(link, policy, AuditLog(folder / "audit.jsonl"), terms_of(name, needed=needed), state)


class TestReview:
    @pytest.mark.parametrize("name", sorted(PRESETS))
    def test_every_array_that_leaves_is_told_with_what_it_is(self, name: str, config: SiloConfig) -> None:
        words = "\n".join(review_of(run_of(name), config).words())
        for array in PRESETS[name].up:
            assert f"{array.name}, {array.shape}: {array.meaning}" in words
        assert f"update, {LAYOUT.nbytes:,} bytes" in words and PRESETS[name].reveals_to_server in words

    def test_says_who_how_often_and_what_protects(self, config: SiloConfig) -> None:
        bare = "\n".join(review_of(run_of("DVW"), config).words())
        assert "the server s.example.org:8443; SHA-256 of its authority's key: " in bare
        assert f"{3 + PLAYED_AGAIN} updates and {3 * MOST_SILOS + PLAYED_AGAIN} scored models" in bare
        assert "validation, [2] int64: how the other silos' models do on its validation images" in bare
        assert "Protection here: noise as large as 1 times" in bare and "Policy: none" in bare
        review = review_of(run_of("SemiAnAgg"), config, clipNorm="1", noiseStd="0.01", allowedAuxiliaryData=[])
        words = "\n".join(review.words())
        assert "scaled down to the norm 1 (clipNorm of the policy) and noise of standard deviation 0.01" in words
        (similarity,) = (leaf for leaf in review.stages[0].leaves if leaf.name == "similarity")
        assert similarity.refused and "REFUSED" in words
        assert not review.stages[0].leaves[0].refused

    @pytest.mark.parametrize(
        ("policy", "code"),
        [
            ({"allowedMethods": ["FedAnchor"]}, "ANC-2210"),
            ({"requireSecureAggregation": True}, "ANC-2224"),
            ({"maximumRounds": 0}, "ANC-2213"),
        ],
    )
    def test_says_that_the_policy_refuses_the_run(self, policy: dict[str, Any], code: str, config: SiloConfig) -> None:
        (stage,) = review_of(run_of("SemiAnAgg"), config, **policy).stages
        assert all(leaf.refused and leaf.reason.startswith(code) for leaf in stage.leaves)
        assert not any(leaf.refused or leaf.reason for leaf in review_of(run_of("SemiAnAgg"), config).stages[0].leaves)

    @pytest.mark.parametrize(("policy", "least"), [({}, 16), ({"clipNorm": "1"}, 16), ({"minimumSamples": 4}, 4)])
    def test_says_what_protects_where_nobody_has_decided(
        self, policy: dict[str, Any], least: int, config: SiloConfig
    ) -> None:
        protection = review_of(run_of(), config, **policy).protection
        assert "noise as large as 1 times its change is added to every array" in protection
        assert (
            f"from {least} images or more" in protection
            and 'relativeNoise: "0" states that the server is trusted' in protection
        )

    @pytest.mark.parametrize(
        "policy",
        [
            {"relativeNoise": "0"},
            {"relativeNoise": "1"},
            {"noiseStd": "0"},
            {"clipNorm": "1", "noiseStd": "0.01"},
            {"privacyBudget": {"epsilon": "8", "delta": "0.00001", "dpSgd": {"clipNorm": "1", "noiseMultiplier": "1.5"}}},
        ],
    )  # fmt: skip
    def test_names_no_default_where_it_was_decided(self, policy: dict[str, Any], config: SiloConfig) -> None:
        protection = review_of(run_of(), config, **policy).protection
        assert "images or more" not in protection and protection

    def test_the_log_has_every_line(self, config: SiloConfig, caplog: pytest.LogCaptureFixture) -> None:
        review = review_of(run_of(), config)
        with caplog.at_level(logging.INFO):
            review.log()
        assert [each.message for each in caplog.records] == [f"review: {line}" for line in review.words()]

    def test_a_policy_may_state_that_the_server_is_trusted(self, config: SiloConfig) -> None:
        for field in ("relativeNoise", "noiseStd"):
            stated = review_of(run_of(), config, **{field: "0"})
            assert stated.protection == f'none: updates leave as they are ({field}: "0" of the policy)'

    @pytest.mark.parametrize(
        ("policy", "bound"),
        [
            ({}, "scaled down to the norm 0.5 (as the method asks) and noise as large as 1 times its change"),
            ({"relativeNoise": "0"}, "scaled down to the norm 0.5 (as the method asks); a norm alone hides no image"),
            ({"clipNorm": "2", "relativeNoise": "0"}, "scaled down to the norm 0.5 (as the method asks); a norm alone hides no image"),
            ({"clipNorm": "0.25", "relativeNoise": "0"}, "scaled down to the norm 0.25 (clipNorm of the policy); a norm alone hides no image"),
            ({"relativeNoise": "1"}, "scaled down to the norm 0.5 (as the method asks) and noise as large as 1 times its change is added"),
            ({"noiseStd": "0.1"}, "scaled down to the norm 0.5 (as the method asks) and noise of standard deviation 0.1 is added"),
            (
                {"privacyBudget": {"epsilon": "8", "delta": "0.00001", "dpSgd": {"clipNorm": "1", "noiseMultiplier": "1.5"}}},
                "scaled down to the norm 0.5 (as the method asks) and DP-SGD: each image's gradient is scaled down to the norm 1, with 1.5",
            ),
        ],
    )  # fmt: skip
    def test_says_what_the_method_itself_bounds_and_noises(
        self, policy: dict[str, Any], bound: str, config: SiloConfig
    ) -> None:
        private = PrivateMean(clip_norm="0.5", noise_multiplier="4")
        method = PRESETS["FedAvg"].slots.model_copy(update={"aggregation": private})
        words = "\n".join(review_of(run_of(method=method), config, **policy).words())
        assert f"Protection here: an update's change is {bound}" in words
        assert "says that it adds Gaussian noise of standard deviation 2 to every number of the updates' sum" in words
        assert "At the server" not in "\n".join(review_of(run_of(), config, **policy).words())

    def test_each_stage_has_its_own_rounds(self, config: SiloConfig) -> None:
        first = StageDescription(method=PRESETS["FedAvg"].slots, down=LAYOUT.to_json(), up=LAYOUT.to_json(), last=2)
        review = review_of(run_of("FedAnchor", rounds=7, warm_up=(first,)), config)
        assert [(stage.method, stage.rounds) for stage in review.stages] == [("FedAvg", 2), ("FedAnchor", 5)]
        assert review.updates == 7 + PLAYED_AGAIN

    def test_foreign_text_moves_no_cursor(self, config: SiloConfig) -> None:
        model = run_of().model.model_copy(update={"initial": "\x1b[2Jweights\r"})
        assert all(line.isprintable() for line in review_of(run_of(model=model), config).words())

    def test_a_description_that_cannot_be_read_is_refused(self, config: SiloConfig) -> None:
        with pytest.raises(AnchorageError, match="ANC-2150.*unknown or wrong fields"):
            Review.of('{"federation": "derm", "more": 1}', config, Policy())


def _fits(limits: Limits, kind: TaskKind, round_number: int, size: int, held_out: bool) -> bool:
    """Whether a silo takes a task with a model of this length."""
    try:
        limits.check_size(Task("x", kind, round_number, Manifest("x", size, ()), held_out=held_out))
    except AnchorageError as error:
        assert error.code == "ANC-2150"
        return False
    return True


class TestLimits:
    @pytest.mark.parametrize(
        ("name", "labels", "fields", "expected"),
        [
            ("FedAvg", "All", {}, (3, 0, 1)),
            ("FedAvg", "All", {"silo_percent": 20}, (3, 3, 1)),
            ("FedAvg", "None", {"silo_percent": 20}, (3, 0, 1)),
            ("DVW", "All", {}, (3, 3 * MOST_SILOS, 1)),
            (
                "FedMix",
                "All",
                {},
                (6, 0, 1),
            ),  # its means leave before the first training, after every start of the server
            ("RSCFed", "None", {}, (3, 0, PRESETS["RSCFed"].slots.weighting.groups)),
        ],
    )
    def test_are_what_the_description_needs(
        self, name: str, labels: str, fields: dict[str, Any], expected: tuple[int, int, int]
    ) -> None:
        updates, evaluations, repetitions = expected
        run = run_of(name, **fields)
        limits = Limits.of(run, labels)
        large = MOST_LARGE_BYTES if PRESETS[name].down else 0
        counts = updates + PLAYED_AGAIN, evaluations + PLAYED_AGAIN if evaluations else 0, repetitions
        size = Layout.from_json(run.down).nbytes
        assert limits == Limits(*counts, (ModelSizes(3, size, size, size),), large)

    @pytest.mark.parametrize(("name", "large"), [("FedAvg", 0), ("FedMix", MOST_LARGE_BYTES)])
    def test_a_model_of_another_length_is_refused_before_there_is_room_made(self, name: str, large: int) -> None:
        run = run_of(name)
        limits, size = Limits.of(run, "All"), Layout.from_json(run.down).nbytes
        behind = Layout.of([("pool", "U8", (large,))])

        def task(nbytes: int, behind: Layout = NOTHING) -> Task:
            return Task("1.train", TaskKind.TRAIN, 1, Manifest("x", nbytes, ()), {}, behind)

        limits.check_size(task(size))
        limits.check_size(task(size + large, behind))
        further = Layout.of([("pool", "U8", (large + 1,))])
        for asked in (*map(task, (0, size - 4, size + 1, 4 << 30)), task(size + large + 1, further)):
            with pytest.raises(AnchorageError, match=f"ANC-2150.*has {size} bytes for its model and {large} at most"):
                limits.check_size(asked)

    def test_the_length_of_a_model_is_that_of_its_kind_and_stage(self) -> None:
        network = [("base", "F32", (100,)), ("head", "F32", (10,))]
        first, frozen = Layout.of([("first", "F32", (3,))]), Layout.of(network, {"base"})
        helped = Layout.of([*network, (f"{HELPER}0.head", "F32", (10,))], {"base"}).to_json()
        stage = StageDescription(method=run_of().method, down=first.to_json(), up=first.to_json(), last=2)
        parts = Layout.of([("head", "F32", (6,))])
        limits = Limits.of(run_of(warm_up=(stage,), down=helped, up=parts.to_json()), "All")
        assert frozen.nbytes == 440

        def accepted(kind: TaskKind, round_number: int, held_out: bool = False) -> set[int]:
            return {
                size for size in (0, 12, 24, 40, 424, 440, 480) if _fits(limits, kind, round_number, size, held_out)
            }

        for kind in (TaskKind.TRAIN, TaskKind.EVALUATE):
            assert accepted(kind, 1) == accepted(kind, 2) == {12}
        assert accepted(TaskKind.TRAIN, 3) == accepted(TaskKind.TRAIN, 9) == {440, 480}
        assert accepted(TaskKind.EVALUATE, 3) == {424} and accepted(TaskKind.EVALUATE, 3, held_out=True) == {440}
        assert accepted(TaskKind.SHOW_KEYS, 3) == {0}

    def test_hold_without_a_policy(self, tmp_path: Path) -> None:
        """Two updates and no scored model, whatever is asked for."""
        link = FakeLink(*MODELS)
        gate = gate_of(tmp_path, link, Limits(2, 0), Policy())
        gate.approved = lambda: True
        worker = SiloWorker(gate, FakeLearner(), MemoryBuffers(), admit=gate.admit)
        for number, model in enumerate(MODELS, 1):
            worker.handle(Assigned(train_task(model, number)))
            worker.handle(Assigned(evaluate_task(model, number)))
        assert [what[0] for what in link.messages if what[0] in ("announce", "report")] == ["announce"] * 2
        assert {what[2] for what in link.messages if what[0] == "fail"} == {"ANC-2213"}

    def test_a_policy_sets_other_ones(self, tmp_path: Path) -> None:
        link = FakeLink(*MODELS)
        gate = gate_of(tmp_path, link, Limits(0, 0), policy_of(maximumRounds=3, maximumEvaluations=4))
        worker = SiloWorker(gate, FakeLearner(), MemoryBuffers(), admit=gate.admit)
        for number, model in enumerate(MODELS, 1):
            worker.handle(Assigned(train_task(model, number)))
            worker.handle(Assigned(evaluate_task(model, number)))
        kinds = [what[0] for what in link.messages]
        assert (kinds.count("announce"), kinds.count("report")) == (3, 4)

    def test_one_name_for_several_tasks_saves_no_budget(self, tmp_path: Path) -> None:
        """A server chooses the ids of tasks: it asks for the updates of two models, in turns, under the same ids."""
        link = FakeLink(*MODELS)
        gate = gate_of(tmp_path, link, Limits(2, 2), policy_of(relativeNoise="0"))
        worker = SiloWorker(gate, FakeLearner(), MemoryBuffers(), admit=gate.admit)
        for model in MODELS:
            for number in (1, 2):
                worker.handle(Assigned(Task(f"{number}.train", train_task(model).kind, number, model.manifest)))
            scored = evaluate_task(model)
            worker.handle(Assigned(Task("1.evaluate", scored.kind, 1, model.manifest)))
            worker.handle(Dismissed("1.evaluate", "counted"))
        assert len(gate.audit.read_sent("announce", all_runs=True)) == 2
        assert [what[0] for what in link.messages].count("report") == 2

    @pytest.mark.parametrize("fields", [{}, {"relativeNoise": "2"}, {"clipNorm": "1", "minimumSamples": 1}])
    def test_relative_noise_lets_one_update_out_before_a_person_approves(
        self, fields: dict[str, Any], tmp_path: Path
    ) -> None:
        """A server may describe as many rounds and runs as it likes, and restarts change nothing."""
        link, needed = FakeLink(*MODELS), Limits(240 + PLAYED_AGAIN, 0)
        for number, model in enumerate(MODELS, 1):
            gate = gate_of(tmp_path, link, needed, policy_of(**fields))
            gate.audit.record("join", digest=f"run {number}")
            worker = SiloWorker(gate, FakeLearner(), MemoryBuffers(), admit=gate.admit)
            worker.handle(Assigned(train_task(model, number)))
            gate.audit.close()
        assert [what[0] for what in link.messages if what[0] in ("announce", "fail")] == ["announce"] + ["fail"] * 4
        assert {what[2] for what in link.messages if what[0] == "fail"} == {"ANC-2213"}
        gate = gate_of(tmp_path, link, needed, policy_of(**fields))
        gate.announce(link.announcements[train_task(MODELS[0], 1).id])  # what left may be told again
        gate.approved = lambda: True
        gate.admit(train_task(MODELS[1], 2))
        gate.audit.close()

    def test_of_several_trainings_for_one_update_each_counts(self, tmp_path: Path) -> None:
        gate = gate_of(tmp_path, FakeLink(*MODELS), Limits(1 + PLAYED_AGAIN, 0, repetitions=2), Policy())
        with pytest.raises(AnchorageError, match=r"ANC-2213.*relative noise"):
            gate.admit(train_task(MODELS[0]))
        gate.audit.close()

    @pytest.mark.parametrize(
        "fields",
        [
            {"relativeNoise": "0"},
            {"noiseStd": "0"},
            {"clipNorm": "1", "noiseStd": "0.01"},
            {"maximumRounds": 9},
            {"privacyBudget": {"epsilon": "8", "delta": "0.00001", "dpSgd": {"clipNorm": "1", "noiseMultiplier": "1.5"}}},
        ],
    )  # fmt: skip
    def test_a_policy_that_states_protection_or_number_needs_no_approval(
        self, fields: dict[str, Any], config: SiloConfig, tmp_path: Path
    ) -> None:
        assert not review_of(run_of(), config, **fields).needs_approval
        gate = gate_of(tmp_path, FakeLink(*MODELS), Limits(9, 0), policy_of(**fields))
        for number in (1, 2, 3):
            gate.audit.record("announce", f"{number}.train", digest=str(number))
        gate.admit(train_task(MODELS[0], 4))
        gate.audit.close()

    def test_noise_cannot_be_averaged_away_by_repetitions(self, tmp_path: Path) -> None:
        gate = gate_of(tmp_path, FakeLink(*MODELS), Limits.of(run_of(), "All"), Policy())
        task = train_task(MODELS[0])
        often = Task(task.id, task.kind, 1, task.model, repetitions=50)
        with pytest.raises(AnchorageError, match="ANC-2213.*50 trainings"):
            gate.admit(often)
        gate.admit(task)

    def test_are_counted_for_each_run(self, tmp_path: Path) -> None:
        log = AuditLog(tmp_path / "audit.jsonl")
        for run in ("first", "second"):
            log.record("join", digest=run)
            log.record("announce", "1.train", digest="d")
        log.close()
        log = AuditLog(tmp_path / "audit.jsonl")
        log.record("join", digest="first")
        assert (
            len(log.read_sent("announce", all_runs=False)) == 1 and len(log.read_sent("announce", all_runs=True)) == 1
        )
        log.record("announce", "2.train", digest="e")
        assert len(log.read_sent("announce", all_runs=False)) == 2
        log.close()


class TestApproval:
    def test_is_needed_for_more_than_one_update_with_relative_noise(self, config: SiloConfig) -> None:
        for fields in ({}, {"relativeNoise": "1"}):
            needed = review_of(run_of(rounds=2), config, **fields)
            assert needed.needs_approval and any(line.startswith("Approval: nothing runs") for line in needed.words())
            assert "protects one update" in needed.protection
            assert not review_of(run_of(rounds=1), config, **fields).needs_approval
        assert review_of(run_of("RSCFed", rounds=1), config).needs_approval, "several models leave in its one round"

    def test_no_change_of_the_description_runs_without_a_new_approval(self, config: SiloConfig, tmp_path: Path) -> None:
        """`CHANGES` random changes of one field each."""
        first = StageDescription(method=PRESETS["FedMix"].slots, down=LAYOUT.to_json(), up=LAYOUT.to_json(), last=2)
        text = run_of("SemiAnAgg", rounds=9, warm_up=(first,), silo_percent=10).to_json()
        policy, approvals = policy_of(requireApproval=True), Approvals(tmp_path)
        approvals.give(Review.of(text, config, policy))
        rng, readable = random.Random(7), 0
        gate = gate_of(tmp_path, FakeLink(*MODELS), Limits(9, 9), policy, "SemiAnAgg")

        def is_admitted(described: str) -> bool:
            gate.check_approval = partial(approvals.check, Review.of(described, config, policy))
            gate.admit(train_task(MODELS[0]))
            return True

        assert is_admitted(text)
        for _ in range(CHANGES):
            described = changed(text, rng)
            assert described != text
            with pytest.raises(AnchorageError) as caught:
                is_admitted(described)
            assert caught.value.code in ("ANC-2214", "ANC-2150"), described
            readable += caught.value.code == "ANC-2214"
        assert readable > CHANGES / 3, "most changes are no descriptions at all"
        assert is_admitted(text)

    def test_software_image_and_authority_are_approved_too(
        self, config: SiloConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = review_of(run_of(), config)
        monkeypatch.setenv("ANCHORAGE_IMAGE", "registry/anchorage-silo:2")
        image = review_of(run_of(), config)
        monkeypatch.setattr("anchorage_silo.review.version", lambda name: "9.9")
        software = review_of(run_of(), config)
        other = Authority.create(tmp_path / "other", "derm").certificate_path
        authority = review_of(run_of(), config.model_copy(update={"authority": other}))
        assert len({each.digest for each in (before, image, software, authority)}) == 4
        assert review_of(run_of(), config, requireApproval=True).digest == software.digest, (
            "the policy is the hospital's"
        )

    def test_says_which_command_approves_and_keeps_what_was_approved(self, config: SiloConfig, tmp_path: Path) -> None:
        review, approvals = review_of(run_of(), config), Approvals(tmp_path)
        with pytest.raises(AnchorageError, match=f"ANC-2214.*anchorage-silo approve {review.digest}"):
            approvals.check(review)
        approvals.give(review)
        approvals.give(review)
        approvals.check(review)
        (file,) = (tmp_path / "approvals").iterdir()
        document = json.loads(file.read_text())
        assert (
            document["review"]["digest"] == review.digest and document["user"] and file.stat().st_mode & 0o777 == 0o600
        )


def changed(text: str, rng: random.Random) -> str:
    """Return a description with one leaf changed to another value of its type."""
    document = json.loads(text)
    leaves = list(leaves_of(document))
    holder, key = rng.choice(leaves)
    match holder[key]:
        case bool(value):
            holder[key] = not value
        case int(value):
            holder[key] = value + rng.randint(1, 9)
        case str(value) if value.replace(".", "").isdigit():
            holder[key] = f"{value[:-1]}{(int(value[-1]) + rng.randint(1, 9)) % 10}"
        case str(value):
            holder[key] = value + rng.choice("abc")
        case _:
            holder[key] = 1
    return json.dumps(document)


def leaves_of(node: Any) -> Any:
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from leaves_of(value)
        else:
            yield node, key


def test_a_layout_with_control_variates_is_told(config: SiloConfig) -> None:
    layout = Layout.of([("weight", "F32", (3,)), ("control.weight", "F32", (3,))])
    up = layout.to_json()
    review = review_of(run_of("SCAFFOLD", up=up, down=up), config)
    assert "control variates" in review.stages[0].leaves[0].reveals
