"""Presets, their registry, and how overrides resolve."""

import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from anchorage.api.errors import AnchorageError
from anchorage.api.method import (
    Local,
    MethodSpec,
    Optimiser,
    PseudoLabels,
    ResolvedMethod,
    ServerTraining,
    Weighting,
)
from anchorage.methods import PRESETS, resolve, slots
from anchorage.methods import registry as registry_module
from anchorage.methods.fedavg import FEDAVG
from anchorage.methods.registry import Presets

EXTERNAL = replace(FEDAVG, slots=slots("MyMethod"))
NO_PRESET = "text"


def test_the_built_in_presets() -> None:
    assert list(PRESETS) == [
        *("FedAvg", "FedProx", "BalancedSoftmax", "UpperBound", "LowerBound", "SOLO", "FedAvgM", "FedAdagrad"),
        *("FedAdam", "FedYogi", "MOON", "MOONL2", "SCAFFOLD", "FedMix", "NaiveMix", "LocalMix", "GlobalMixup"),
        *("FedProxFedMix", "FedProxNaiveMix", "FedProxLocalMix", "Supervised", "FedAvgSL", "FedProxSL"),
        *("FedAvgFixMatch", "FedProxFixMatch", "FedAvgUDA", "FedProxUDA", "FedAvgFixMatchAlternate", "FedCon"),
        *("SemiFL", "SemiFLNoMixup", "FedMatch", "FedMatchServer", "FedAnchor", "FedAnchorMix", "FedAnchorNoMixup"),
        *("FedAnchorServerMixup", "FedAnchorNoContrastive", "FedAnchorEnsemble", "FedAvgSemi", "SemiAnAgg"),
        *("SemiAnAggCode", "SemiAnAggSecondSeed", "FedRoD", "FedRoDDual", "SSILCDM", "SSILCDMFedAvgSemi"),
        *("OrigACR", "RSCFed", "CBAFedLowerBound", "CBAFed", "FedBarlow", "FedCLR", "Orchestra", "SyncFedAvg"),
        *("AsyncFedAvg", "DVW", "DVWGMean", "DVWMCC", "SyncDVW", "AsyncDVW", "AsyncDVWAdaptive", "FedAsync"),
        *("FedAsyncPolynomial", "FedAsyncHinge"),
    ]
    for name, preset in PRESETS.items():
        assert preset.name == name
        assert preset.summary.endswith(".")
        assert "METHODS.md" in preset.source
        assert preset.reveals_to_server
        assert preset.reveals_to_silos


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("FedAvg", {"weighting.type": "SampleCount", "pseudo_labels.type": "None", "server_training.type": "None"}),
        ("FedProx", {"regulariser.type": "Proximal", "regulariser.mu": "0.01"}),
        (
            "FedAnchor",
            {
                "pseudo_labels.type": "AnchorSimilarity",
                "pseudo_labels.threshold": "0.6",
                "pseudo_labels.anchors": "Prototypes",
                "mixup.at": "Client",
                "mixup.alpha": "0.75",
                "server_training.type": "Anchors",
                "server_training.contrastive": "Enabled",
                "server_training.pretrain_epochs": 5,
                "server_training.pretrain_learning_rate": "0.05",
                "server_training.temperature": "0.5",
                "local.epochs": 5,
                "local.optimiser.learning_rate": "0.03",
                "local.optimiser.momentum": "0.9",
                "local.optimiser.weight_decay": "0.0005",
            },
        ),
        (
            "SemiAnAgg",
            {
                "supervised.type": "BalancedSoftmax",
                "pseudo_labels.type": "FlexMatch",
                "pseudo_labels.threshold": "0.95",
                "weighting.type": "SemiAnAgg",
                "weighting.order": "Paper",
                "weighting.labelled_share": "0.5",
                "local.batch_size": 64,
                "local.optimiser.clip_norm": "0",
                "local.unlabelled.clip_norm": "5",
                "local.unlabelled.learning_rate": "0.02",
                "local.optimiser.state": "Persist",
            },
        ),
        ("FedAvgSemi", {"weighting.type": "FedAvgSemi", "pseudo_labels.type": "FlexMatch"}),
        (
            "DVW",
            {
                "weighting.type": "DVW",
                "weighting.metric": "MicroF1",
                "weighting.validation_percent": 5,
                "local.epochs": 4,
                "local.batch_size": 100,
                "local.optimiser.momentum": "0.75",
            },
        ),
    ],
)
def test_presets_hold_the_papers_choices(name: str, expected: dict[str, object]) -> None:
    method = resolve(MethodSpec(name=name))
    for path, value in expected.items():
        found: object = method
        for part in path.split("."):
            found = getattr(found, part)
        assert found == value, path


def test_an_override_wins_field_by_field_over_preset_and_defaults() -> None:
    local = Local(optimiser=Optimiser(learning_rate="0.1"))
    method = resolve(MethodSpec(name="SemiAnAgg", local=local, server_training=ServerTraining(type="Anchors")))
    assert method.local.optimiser.learning_rate == "0.1"  # the user's
    assert method.local.optimiser.state == "Persist"  # the preset's
    assert method.local.optimiser.momentum == "0.9"
    assert method.local.batch_size == 64
    assert method.server_training.type == "Anchors"
    assert method.server_training.pretrain_epochs == 1  # what the type starts from: as in each round (METHODS.md 6.5)
    assert method.server_training.pretrain_learning_rate == method.server_training.optimiser.learning_rate
    assert method.weighting == PRESETS["SemiAnAgg"].slots.weighting


def test_a_user_can_set_a_preset_s_choice_back_to_the_slot_s_default() -> None:
    method = resolve(MethodSpec(name="FedAnchor", server_training=ServerTraining(contrastive="Disabled")))
    assert method.server_training.contrastive == "Disabled"
    assert method.server_training.type == "Anchors"


def test_a_slot_of_another_type_starts_from_that_type_s_defaults() -> None:
    assert (
        resolve(MethodSpec(name="FedAnchor", pseudo_labels=PseudoLabels(type="FlexMatch"))).pseudo_labels.threshold
        == "0.95"
    )
    method = resolve(MethodSpec(name="SemiAnAgg", pseudo_labels=PseudoLabels(type="AnchorSimilarity")))
    assert method.pseudo_labels.threshold == "0.6"
    same = PseudoLabels(type="FlexMatch", flex_state="Reset")
    assert resolve(MethodSpec(name="SemiAnAgg", pseudo_labels=same)).pseudo_labels.threshold == "0.95"
    weighting = resolve(MethodSpec(name="FedAnchor", weighting=Weighting(type="SemiAnAgg"))).weighting
    assert weighting == Weighting(type="SemiAnAgg")


def test_a_resolved_method_travels_as_json() -> None:
    method = resolve(MethodSpec(name="FedAnchor", weighting=Weighting(type="DVW")))
    assert ResolvedMethod.model_validate_json(method.model_dump_json(by_alias=True)) == method


def test_an_unknown_name_is_refused_with_those_that_exist() -> None:
    with pytest.raises(
        AnchorageError, match=r"ANC-1110 UnknownMethod: found 'FedMagic', allowed are Async.*, CBAFed, "
    ):
        resolve(MethodSpec(name="FedMagic"))
    with pytest.raises(AnchorageError, match="found 'SemiFl', did you mean SemiFL"):
        resolve(MethodSpec(name="SemiFl"))


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch):
    def declare(*values: str) -> Presets:
        points = [EntryPoint("mine", value, registry_module.ENTRY_POINTS) for value in values]
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
        ([f"{__name__}:EXTERNAL", f"{__name__}:EXTERNAL"], "the method MyMethod of .* is there already"),
        (["anchorage.methods.fedavg:FEDAVG"], "the method FedAvg of anchorage.methods.fedavg:FEDAVG is there already"),
        (["no_such_module:X"], "cannot be loaded"),
        ([f"{__name__}:MISSING"], "cannot be loaded"),
        ([f"{__name__}:NO_PRESET"], "is str, not a Preset"),
    ],
)
def test_a_broken_package_is_named(declare, values: list[str], message: str) -> None:
    with pytest.raises(AnchorageError, match=f"ANC-1111 PresetBroken: .*{message}"):
        len(declare(*values))


def test_methods_import_without_torch() -> None:
    code = "import sys, anchorage.methods, anchorage.api.run; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
