"""The agent loads no package of another author: what it needs of a piece it asks in a confined process."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from silo_fakes import LAYOUT

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import PRESET_BROKEN, WRONG_FORM
from anchorage.api.errors.learning import PIECE_WRONG
from anchorage.api.errors.transfer import MALFORMED_MESSAGE
from anchorage.api.model import ModelDescription
from anchorage.api.piece import expect
from anchorage.api.run import RunDescription
from anchorage.api.slot import read_piece, write_piece
from anchorage.api.task import Task
from anchorage.engine.hooks import AggregationHooks, EncodingHooks, WeightingEngineHooks
from anchorage.methods import PRESETS
from anchorage.pieces.task.classification import Classification
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.codings import BFloat16Coding
from anchorage.transport.tensors.encoded import encoding_of
from anchorage_silo.config import SiloConfig
from anchorage_silo.piece_questions import PieceQuestions
from anchorage_silo.policy import Policy
from anchorage_silo.review import Review, read_description
from anchorage_silo.stand_ins import PackagesApart, packages_apart
from anchorage_silo.used_packages import used_packages
from anchorage_silo.wrong_documents import told_in_one_line

MODULE = '''
import os, tempfile
from pathlib import Path
from anchorage.api.fact import Fact
from anchorage.api.piece import AuxiliaryArray, piece
from anchorage.api.task import MetricName, OutputKind, TallyArray
from anchorage.engine.aggregation.weigher import CountWeigher
from anchorage.methods.preset import Preset, slots
from anchorage.api.task import Task
from anchorage.pieces.slots import Aggregation, UpdateEncoding, Weighting
from anchorage.transport.tensors.codings import BFloat16Coding

class Counts(CountWeigher):
    evaluated, repetitions = True, 3

class Own(BFloat16Coding):
    pass

@piece("outer.Fair")
class Fair(Weighting):
    """Weighs."""
    power: int = 1
    def facts(self): return frozenset({Fact.PLAIN_WEIGHTS, f"power{self.power}"})
    def auxiliary(self): return (AuxiliaryArray("means", "[C] float32", "means", up=True),)
    def weigher(self, task): return Counts(*["train"] * self.power)
    def suppressed(self, counts, minimum): return counts * (counts >= minimum)

@piece("outer.Bounded")
class Bounded(Aggregation):
    """Aggregates."""
    @property
    def bound(self): return 2.5
    @property
    def server_noise(self): return f"noise of pid {os.getpid()}"
    def aggregate(self, updates, weights, layout, model): raise NotImplementedError

@piece("outer.Half")
class Half(UpdateEncoding):
    """Encodes."""
    def coding(self): return Own(feedback=True)

@piece("outer.Count")
class Count(Task):
    """Counts."""
    unit: str
    metrics = (MetricName("error", higher_is_better=False),)
    output_kind = OutputKind.VALUES
    outputs = property(lambda self: [self.unit])
    def tally_arrays(self): return [TallyArray("sums", (2,), "int64", "sums of numbers")]
    def scores(self, tally): return {}
    def images(self, tally): return int(tally["sums"][1])
    def suppressed(self, tally, minimum): return {"sums": tally["sums"] // minimum}

@piece("outer.Raises")
class Raises(Weighting):
    """Raises."""
    def weigher(self, task): raise KeyError("no such thing")

@piece("outer.Ends")
class Ends(Weighting):
    """Ends its process."""
    def weigher(self, task): os._exit(3)

FAIR = Preset(slots=slots("FairMethod", weighting=Fair()), summary="Is fair.", setting="", labels=("All",),
    reveals_to_server="means", reveals_to_silos="nothing of each other", source="none")
'''
TASK = Classification(classes=("a", "b"))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lay out a package, and one that cannot be loaded, as `pip` would."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for name, text, entries in (
        ("outer", MODULE, "[anchorage.pieces]\nouter = outer\n[anchorage.methods]\nfair-method = outer:FAIR\n"),
        ("broken", "raise ImportError('half of it is missing')", "[anchorage.pieces]\nbroken = broken\n"),
    ):
        (folder / f"{name}.py").write_text(text)
        metadata = folder / f"{name}-1.2.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (metadata / "entry_points.txt").write_text(entries)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    return folder


@pytest.fixture
def config(packages: Path, tmp_path: Path) -> SiloConfig:
    (tmp_path / "state").mkdir()
    fields = {"silo": "a", "federation": "derm", "server": "s.example.org:8443", "enrolment": "s.example.org:8444"}
    fields |= {"authority": "ca.pem", "state": str(tmp_path / "state"), "labels": "All", "trainer": {"type": "Null"}}
    return SiloConfig.model_validate_json(json.dumps(fields))


@pytest.fixture
def apart(config: SiloConfig) -> Iterator[PackagesApart]:
    with packages_apart() as made:
        made.configure(config)
        yield made
    assert {"outer", "broken"}.isdisjoint(sys.modules)
    assert [each.name for each in config.state.iterdir()] in ([], ["trainer.log"])


def plugin(name: str, **options: Any) -> dict[str, Any]:
    return {"plugin": {"name": name, "options": options}}


def run_text(**method: Any) -> str:
    model = ModelDescription(network="SmallCnn", task=TASK, image_size=8, channels=1)
    terms = {"federation": "derm", "seed": 1, "rounds": 3, "mode": "Synchronous", "method": PRESETS["FedAvg"].slots}
    terms |= {"model": model, "down": LAYOUT.to_json(), "up": LAYOUT.to_json()}
    document = json.loads(RunDescription(**terms).to_json())
    document["method"] |= method
    return json.dumps(document)


class TestStandIn:
    def test_a_weighting_says_and_computes_what_the_piece_does(self, apart: PackagesApart) -> None:
        document = plugin("outer.Fair", power=2)
        weighting = expect(read_piece("weighting", document), WeightingEngineHooks)
        assert weighting.facts() == {"plainWeights", "power2"} and write_piece(weighting) == document
        assert [(array.name, array.up) for array in weighting.auxiliary()] == [("means", True)]
        weigher = weighting.weigher(TASK)
        assert (weigher.evaluated, weigher.repetitions, weigher.most(10)) == (True, 3, 20.0)
        announcement = Announcement("1", {"train": 7}, {}, {}, Manifest.of("l", np.zeros(3, np.uint8)))
        assert weigher.weigh({"own": announcement}, {}) == {"own": 14.0}
        assert weighting.suppressed(np.array([3, 20]), 16).tolist() == [0, 20]
        assert read_piece("weighting", document) == weighting != read_piece("weighting", plugin("outer.Fair"))

    def test_an_aggregation_says_its_bound_in_another_process(self, apart: PackagesApart) -> None:
        aggregation = expect(read_piece("aggregation", plugin("outer.Bounded")), AggregationHooks)
        assert aggregation.bound == 2.5
        assert aggregation.server_noise == f"noise of pid {apart.questions.pid}"

    def test_an_encoding_writes_the_same_bytes(self, apart: PackagesApart) -> None:
        coding = expect(read_piece("encoding", plugin("outer.Half")), EncodingHooks).coding()
        assert coding is not None and coding.feedback and coding.words == "changes rounded to 16 bits"
        rng = np.random.default_rng(0)
        update, base = (rng.normal(size=100).astype(np.float32) for _ in range(2))
        code, direct = coding.encode(update, base), BFloat16Coding()
        assert code == direct.encode(update, base) and coding.chosen(update, base) is None
        actual, due = np.empty_like(base), np.empty_like(base)
        assert coding.decode(b"xx" + code, 2, base, actual) == direct.decode(b"xx" + code, 2, base, due) == 202
        assert np.array_equal(actual, due)
        with pytest.raises(ValueError):
            coding.decode(code, 10, base, actual)
        assert coding.encode(np.full(2, np.nan, np.float32), base[:2]) is None
        second_coding = expect(read_piece("encoding", plugin("outer.Half")), EncodingHooks).coding()
        assert encoding_of(coding, LAYOUT.to_json(), LAYOUT.to_json()) is encoding_of(
            second_coding, *[LAYOUT.to_json()] * 2
        )

    def test_a_task_says_its_outputs_and_leaves_out_what_few_images_are_behind(self, apart: PackagesApart) -> None:
        task = expect(read_piece("task", plugin("outer.Count", unit="mm")), Task)
        assert (tuple(task.outputs), task.gives_maps) == (("mm",), False)
        assert [(array.name, array.shape) for array in task.tally_arrays()] == [("sums", (2,))]
        assert task.suppressed({"sums": np.array([10, 20])}, 5)["sums"].tolist() == [2, 4]

    def test_a_method_says_what_it_reveals(self, apart: PackagesApart) -> None:
        preset = PRESETS["FairMethod"]
        assert (preset.name, preset.summary, preset.reveals_to_server) == ("FairMethod", "Is fair.", "means")
        assert preset.sent == {"means"}
        assert "NoSuch" not in PRESETS and "FedAvg" in PRESETS

    def test_what_is_asked_once_is_known(self, apart: PackagesApart, monkeypatch: pytest.MonkeyPatch) -> None:
        read_piece("weighting", plugin("outer.Fair"))
        monkeypatch.setattr(PieceQuestions, "ask", None)
        assert "power1" in read_piece("weighting", plugin("outer.Fair")).facts()


class TestMistakes:
    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("outer.Fair", {"power": "x"}, "1 unknown or wrong fields"),
            ("outer.NoSuch", {}, "1 unknown or wrong fields"),
            ("missing.Piece", {}, "names what is not installed here: found 'missing.Piece'"),
        ],
    )
    def test_in_a_description_are_told_in_one_line(
        self, apart: PackagesApart, name: str, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(AnchorageError, match=message) as raised:
            read_description(run_text(weighting=plugin(name, **options)))
        assert raised.value.failure is MALFORMED_MESSAGE and "\n" not in str(raised.value)

    def test_a_package_that_cannot_be_loaded_is_named(self, apart: PackagesApart) -> None:
        with pytest.raises(AnchorageError, match=r"the package broken 1\.2 cannot be loaded: .*half of it") as raised:
            read_description(run_text(weighting=plugin("broken.Piece")))
        assert raised.value.failure is PRESET_BROKEN and "\n" not in str(raised.value)

    @pytest.mark.parametrize(
        ("name", "message"),
        [("outer.Raises", "weigher raised KeyError"), ("outer.Ends", "outer.Ends: .* answered nothing")],
    )
    def test_a_piece_that_raises_or_ends_is_named_and_the_next_question_is_answered(
        self, apart: PackagesApart, name: str, message: str
    ) -> None:
        weighting = expect(read_piece("weighting", plugin(name)), WeightingEngineHooks)
        with pytest.raises(AnchorageError, match=message) as raised:
            weighting.weigher(TASK)
        assert raised.value.failure is PIECE_WRONG
        assert "power1" in read_piece("weighting", plugin("outer.Fair")).facts()


def test_a_mistake_that_shows_where_pieces_are_loaded_is_told_in_one_line() -> None:
    with (
        pytest.raises(AnchorageError, match="WrongForm: server: Field required") as raised,
        told_in_one_line(),
    ):
        SiloConfig.model_validate_json('{"silo": "a", "federation": "derm", "labels": "some"}')
    assert raised.value.failure is WRONG_FORM and "\n" not in str(raised.value)


class TestUsedPackages:
    def test_are_those_of_the_pieces_that_a_run_names(self, apart: PackagesApart, config: SiloConfig) -> None:
        named = read_description(run_text(weighting=plugin("outer.Fair"), name="FairMethod"))
        assert used_packages(named, config) == {"outer": "1.2"}
        assert used_packages(read_description(run_text(name="FairMethod")), config) == {"outer": "1.2"}
        assert used_packages(read_description(run_text()), config) == {}

    def test_a_review_names_them_and_its_digest_is_of_them(
        self, apart: PackagesApart, config: SiloConfig, packages: Path
    ) -> None:
        (packages / "ca.pem").write_text("no certificate is looked into here")
        text, policy = run_text(weighting=plugin("outer.Fair")), Policy()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("anchorage_silo.review.key_fingerprint", lambda content: "0" * 64)
            patch.chdir(packages)
            review = Review.of(text, config, policy)
            (packages / "outer-1.2.dist-info" / "METADATA").write_text(
                "Metadata-Version: 2.1\nName: outer\nVersion: 1.3\n"
            )
            later = Review.of(text, config, policy)
        assert review.outside == {"outer": "1.2"} and later.outside == {"outer": "1.3"}
        assert review.digest != later.digest
        assert "Packages of other authors: outer 1.2; the trainer loads them, and the agent does not" in list(
            review.words()
        )
        assert "means" in {leaf.name for leaf in review.stages[0].leaves}
