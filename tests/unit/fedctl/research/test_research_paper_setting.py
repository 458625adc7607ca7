"""In what a run differs from the setting of the published number beside it: what is known to differ, and what is not known."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from anchorage.api.model import network_called
from anchorage.engine.interfaces import RoundRecord
from anchorage.methods import validate_study
from fedctl import published
from fedctl.published import NETWORKS, PublishedResult, published_results
from fedctl.research.paper_setting import PaperSetting, compare_settings
from fedctl.research.results import Results, SeedResult

CLASSES = "airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck"
DOCUMENTS = f"""
kind: Federation
metadata: {{name: a}}
spec:
  rounds: 9
  task: {{classification: {{classes: [{CLASSES}]}}}}
  model: {{network: ResNet18, imageSize: 32}}
  method: {{name: FedAnchor}}
  anchorData: {{format: ImageFolder, claimName: cifar10, path: train, use: Anchors, anchors: 250}}
---
kind: Silo
metadata: {{name: a}}
spec:
  federation: a
  labels: None
  managed:
    data:
      format: ImageFolder
      claimName: cifar10
      path: train
      use: Part
      anchors: 250
      partition: {{recipe: PerClient, parts: 1, part: 0, alpha: "0.1"}}
"""
PAPER = PublishedResult(
    "P", "CIFAR-10", "Non-IID Dir(0.1); 250 anchors; 3 clients", "ResNet-18", "m", "accuracy", "0.5", ""
)


def results(folder: Path, overrides: Sequence[str] = (), rounds: int = 9, silos: int = 3) -> Results:
    (folder / "a.yaml").write_text(DOCUMENTS)
    study = validate_study(folder / "a.yaml", overrides, silos)
    last = RoundRecord(rounds, "d", 0.0, {"accuracy": 0.5}, (), {}, 0, 0)
    return Results(folder, study.federation, study.silos, (SeedResult(1, (last,), 1.0),))


def paper(**changes: str) -> PublishedResult:
    values = {name: getattr(PAPER, name) for name in PublishedResult.__slots__}
    return PublishedResult(**{**values, **changes})


@pytest.mark.parametrize(
    ("overrides", "differs", "unknown"),
    [
        ([], (), ("rounds",)),
        (["spec.model.network=SmallCnn"], ("network",), ("rounds",)),
        (["spec.anchorData.anchors=500", "silo.spec.managed.data.anchors=500"], ("anchors",), ("rounds",)),
        (["silo.spec.managed.data.partition.alpha=0.5"], ("partition",), ("rounds",)),
        (["silo.spec.managed.data.partition.recipe=Iid"], ("partition",), ("rounds",)),
        (["silo.spec.managed.data.claimName=cifar10-small"], (), ("rounds", "images")),
        (["spec.task={classification: {classes: [airplane, automobile]}}"], ("images",), ("rounds",)),
    ],
)
def test_what_differs_is_named_and_what_is_not_known_is_not_taken_for_equal(
    overrides: list[str], differs: tuple[str, ...], unknown: tuple[str, ...], tmp_path: Path
) -> None:
    assert compare_settings(PAPER, results(tmp_path, overrides)) == PaperSetting(differs, unknown)


def test_silos_and_rounds_are_those_of_the_run(tmp_path: Path) -> None:
    setting = paper(setting="3 clients, 9 rounds", model="")
    assert compare_settings(setting, results(tmp_path)) == PaperSetting((), ("network",))
    shorter = compare_settings(setting, results(tmp_path, rounds=8, silos=4))
    assert shorter == PaperSetting(("silos", "rounds"), ("network",))
    assert str(shorter) == "differs: silos, rounds; unknown: network"
    assert str(compare_settings(paper(setting="3 clients, 9 rounds"), results(tmp_path))) == "no known difference"


@pytest.mark.parametrize(
    ("setting", "silos", "rounds"),
    [
        ("1 labelled + 9 unlabelled clients; Dir(0.8)", 10, None),
        ("10 partially labelled clients (10 %)", 10, None),
        ("5 clients, 1 labelled; Dir(0.8)", 5, None),
        ("cross-silo, 10 clients", 10, None),
        ("2 labelled", None, None),
        ("100 parties (sample 0.2), 250 rounds; Dir(0.5)", 100, 250),
        ("10 classes per client, 500 rounds", None, 500),
        ("Batch-IID; labels at client; 100 clients, F=0.05, H=2, 200 rounds", 100, 200),
        ("Skewed Non-IID(5); 5 GPU + 5 CPU; at 14,000 s", 10, None),
        ("Uniform IID; 10 GPU; at 200 rounds", 10, 200),
    ],
)
def test_silos_and_rounds_are_read_from_a_paper_s_setting(setting: str, silos: int | None, rounds: int | None) -> None:
    setting_found = paper(setting=setting)
    assert (setting_found.silos, setting_found.rounds) == (silos, rounds)


def test_every_network_of_the_papers_has_a_name_here() -> None:
    assert [result.model for result in published_results() if result.model and not result.networks] == []
    for name in {name for names in NETWORKS.values() for name in names}:
        assert network_called(name) is not None
    moon = [result for result in published_results() if result.source == "MOON Table 1"]
    assert {result.dataset: result.networks[0] for result in moon} == {
        "CIFAR-10": "MoonCnn",
        "CIFAR-100": "torchvision/resnet50",
        "Tiny-ImageNet": "torchvision/resnet50",
    }


def test_an_image_has_no_published_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Images leave ``published.csv`` out (.dockerignore)."""
    monkeypatch.setattr(published, "files", lambda package: tmp_path)
    published_results.cache_clear()
    try:
        assert published_results() == ()
    finally:
        published_results.cache_clear()
