"""Presets, their registry, and how overrides resolve."""

import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from anchorage.api.errors import AnchorageError
from anchorage.api.method import SLOTS, Local, MethodSpec, ResolvedMethod, UnlabelledWork
from anchorage.methods import PRESETS, resolve, slots
from anchorage.methods import registry as registry_module
from anchorage.methods.fedavg import FEDAVG
from anchorage.methods.registry import Presets
from anchorage.pieces.local_loss.balanced_softmax import BalancedSoftmax
from anchorage.pieces.mixup.client import ClientMixup
from anchorage.pieces.mixup.none import NoMixup
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.anchor_similarity import AnchorSimilarity
from anchorage.pieces.pseudo_labels.flexmatch import FlexMatch
from anchorage.pieces.regulariser.proximal import Proximal
from anchorage.pieces.server_objective.label_contrastive import LabelContrastive
from anchorage.pieces.server_objective.task_loss import AnchorTaskLoss
from anchorage.pieces.server_training.anchors import Anchors
from anchorage.pieces.server_training.none import NoServerTraining
from anchorage.pieces.weighting.dvw import Dvw
from anchorage.pieces.weighting.fedavg_semi import FedAvgSemi
from anchorage.pieces.weighting.sample_count import SampleCount
from anchorage.pieces.weighting.semianagg import SemiAnAgg

EXTERNAL = replace(FEDAVG, slots=slots("MyMethod"))
SAME, OTHERWISE = EXTERNAL, replace(FEDAVG, slots=slots("Otherwise"))
NO_PRESET = "text"


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_says_what_it_is(name: str) -> None:
    preset = PRESETS[name]
    assert preset.name == name
    assert preset.summary.endswith(".")
    assert "methods reference" in preset.source
    assert preset.reveals_to_server and preset.reveals_to_silos


def test_fedavg_is_plain() -> None:
    """What every preset is told by its difference from, and what each alternative's own tests take for granted."""
    method = resolve(MethodSpec(name="FedAvg"))
    chosen = {slot: getattr(method, slot).name for slot in SLOTS}
    others = {"local_loss": "taskLoss", "weighting": "sampleCount", "aggregation": "mean", "batch_norm": "average"}
    assert chosen == dict.fromkeys(SLOTS, "none") | others | {"server_step": "replace", "encoding": "float32"}


@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("FedProx", {"regulariser": Proximal(mu="0.01")}),
        (
            "FedAnchor",
            {
                "pseudo_labels": AnchorSimilarity(threshold="0.6", anchors="Prototypes"),
                "mixup": ClientMixup(alpha="0.75", weight="1"),
                "server_training": Anchors(
                    pretrain_epochs=5, pretrain_learning_rate="0.05", objective=LabelContrastive(temperature="0.5")
                ),
                "weighting": SampleCount(),
                "local": Local(
                    epochs=5,
                    batch_size=10,
                    optimiser=Sgd(learning_rate="0.03", momentum="0.9", weight_decay="0.0005"),
                ),
            },
        ),
        (
            "SemiAnAgg",
            {
                "local_loss": BalancedSoftmax(),
                "pseudo_labels": FlexMatch(threshold="0.95"),
                "weighting": SemiAnAgg(order="Paper", labelled_share="0.5"),
                "local": Local(
                    epochs=1,
                    batch_size=64,
                    optimiser=Sgd(learning_rate="0.03", momentum="0.9", weight_decay="0.0005", state="Persist"),
                    unlabelled=UnlabelledWork(learning_rate="0.02", clip_norm="5"),
                ),
            },
        ),
        ("FedAvgSemi", {"weighting": FedAvgSemi(labelled_share="0.5"), "pseudo_labels": FlexMatch(threshold="0.95")}),
        (
            "DVW",
            {
                "weighting": Dvw(metric="MicroF1", validation_percent=5),
                "local": Local(
                    epochs=4,
                    batch_size=100,
                    optimiser=Sgd(learning_rate="0.05", momentum="0.75", weight_decay="0"),
                ),
            },
        ),
    ],
)
def test_presets_hold_the_papers_choices(name: str, pieces: dict[str, object]) -> None:
    method = resolve(MethodSpec(name=name))
    assert {slot: getattr(method, slot) for slot in pieces} == pieces


def test_an_override_wins_option_by_option_over_preset_and_defaults() -> None:
    spec = MethodSpec(
        name="SemiAnAgg",
        local=Local(optimiser=Sgd(learning_rate="0.1")),
        weighting=SemiAnAgg(anchor_seed=2),
        server_training=Anchors(),
    )
    method, preset = resolve(spec), PRESETS["SemiAnAgg"].slots
    assert isinstance(preset.local.optimiser, Sgd) and preset.local.optimiser.state == "Persist"
    assert method.local.optimiser == preset.local.optimiser.model_copy(update={"learning_rate": "0.1"})
    assert (method.local.batch_size, method.local.unlabelled) == (64, preset.local.unlabelled)
    assert method.weighting == preset.weighting.model_copy(update={"anchor_seed": 2})
    trained = (
        method.server_training
    )  # the preset trains nothing there: it starts from its own defaults (methods reference, 6.5)
    assert isinstance(trained, Anchors) and isinstance(trained.optimiser, Sgd)
    assert (trained.pretrain_epochs, trained.pretrain_learning_rate) == (1, trained.optimiser.learning_rate)


def test_a_piece_inside_a_piece_is_overridden_likewise() -> None:
    """FedAnchor's server keeps what it learns unless that is set, too."""
    preset = PRESETS["FedAnchor"].slots.server_training
    assert isinstance(preset, Anchors)
    faster = resolve(MethodSpec(name="FedAnchor", server_training=Anchors(epochs=3))).server_training
    assert faster == preset.model_copy(update={"epochs": 3})
    anchors = Anchors(objective=LabelContrastive(denominator="Bounded"))
    bounded = resolve(MethodSpec(name="FedAnchor", server_training=anchors)).server_training
    assert isinstance(bounded, Anchors)
    assert bounded.objective == preset.objective.model_copy(update={"denominator": "Bounded"})
    other = resolve(MethodSpec(name="FedAnchor", server_training=Anchors(objective=AnchorTaskLoss())))
    assert other.server_training == preset.model_copy(update={"objective": AnchorTaskLoss()})


def test_a_preset_s_choice_is_taken_back_by_another_alternative() -> None:
    assert resolve(MethodSpec(name="FedAnchor", server_training=NoServerTraining())).server_training.name == "none"
    assert resolve(MethodSpec(name="FedAnchor", mixup=NoMixup())).mixup == NoMixup()


def test_another_alternative_starts_from_its_own_defaults() -> None:
    """FedAnchor's threshold of 0.6 means nothing to FlexMatch."""
    assert resolve(MethodSpec(name="FedAnchor", pseudo_labels=FlexMatch())).pseudo_labels == FlexMatch()
    reset = resolve(MethodSpec(name="FedAnchor", pseudo_labels=FlexMatch(curriculum="Reset"))).pseudo_labels
    assert reset == FlexMatch(curriculum="Reset")
    assert resolve(MethodSpec(name="SemiAnAgg", pseudo_labels=AnchorSimilarity())).pseudo_labels == AnchorSimilarity()


def test_what_is_set_to_null_is_the_preset_s() -> None:
    spec = MethodSpec.model_validate({"name": "SemiAnAgg", "weighting": None, "local": None})
    assert resolve(spec) == PRESETS["SemiAnAgg"].slots


def test_a_resolved_method_travels_as_json() -> None:
    method = resolve(MethodSpec(name="FedAnchor", weighting=Dvw()))
    assert ResolvedMethod.model_validate_json(method.model_dump_json(by_alias=True)) == method


def test_an_unknown_name_is_refused_with_those_that_exist() -> None:
    with pytest.raises(AnchorageError, match=r"ANC-1110 UnknownMethod: found 'FedMagic', allowed are .*CBAFed, "):
        resolve(MethodSpec(name="FedMagic"))
    with pytest.raises(AnchorageError, match="found 'SemiFl', did you mean SemiFL"):
        resolve(MethodSpec(name="SemiFl"))


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch):
    def declare(*values: str) -> Presets:
        points = [EntryPoint("my-method", value, registry_module.METHODS) for value in values]
        monkeypatch.setattr(registry_module, "entry_points", lambda group: points)
        return Presets()

    return declare


def test_another_package_adds_a_preset(declare) -> None:
    presets = declare(f"{__name__}:EXTERNAL")
    assert presets["MyMethod"] is EXTERNAL
    assert "FedAvg" in presets


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([f"{__name__}:EXTERNAL", f"{__name__}:SAME"], "the method MyMethod of .* is there already"),
        (["anchorage.methods.fedavg:FEDAVG"], "the method FedAvg of anchorage.methods.fedavg:FEDAVG is there already"),
        (["no_such_module:X"], "cannot be loaded"),
        ([f"{__name__}:MISSING"], "cannot be loaded"),
        ([f"{__name__}:NO_PRESET"], "is str, not a Preset"),
        ([f"{__name__}:OTHERWISE"], "my-method = .*:OTHERWISE is the method Otherwise; call both the same"),
    ],
)
def test_a_broken_package_is_named(declare, values: list[str], message: str) -> None:
    with pytest.raises(AnchorageError, match=f"ANC-1111 PresetBroken: .*{message}"):
        len(declare(*values))


def test_methods_import_without_torch() -> None:
    code = "import sys, anchorage.methods, anchorage.api.run; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
