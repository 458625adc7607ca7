"""What the pages and `fedctl methods describe` tell of a method holds."""

from pathlib import Path

import pytest

from anchorage.methods import PRESETS, validate_study
from anchorage.methods.advice import advice_of
from anchorage.methods.published import NAMES, published_results
from anchorage.methods.snippet import snippet
from makers.method_pages import pages


@pytest.mark.parametrize("name", PRESETS)
def test_the_file_to_start_from_is_valid(name: str, tmp_path: Path) -> None:
    file = tmp_path / "federation.yaml"
    file.write_text(snippet(PRESETS[name]))
    study = validate_study(file)
    assert study.federation.spec.method.name == name and len(study.silos) == 2
    assert study.federation.spec.evaluation and all(silo.spec.managed for silo in study.silos), "it plays as it is"
    assert max(map(len, file.read_text().splitlines())) <= 80


def test_every_method_has_its_page() -> None:
    texts = pages()
    assert set(texts) == {f"{name}.md" for name in PRESETS} | {"README.md"}
    for name, preset in PRESETS.items():
        assert preset.summary in texts[f"{name}.md"] and f"[{name}]({name}.md)" in texts["README.md"]
        assert advice_of(preset), name


def test_pages_hold_the_numbers_that_papers_report() -> None:
    texts, names = pages(), {result.method for result in published_results()}
    assert {name for known in NAMES.values() for name in known} <= names and NAMES.keys() <= PRESETS.keys()
    told = {known for name in PRESETS for known in NAMES.get(name, (name,))}
    assert names - told == {"IsoFed", "FedAvg aggregation"}  # no methods of this project
    assert "| SemiAnAgg Table 3 | ISIC-18, ResNet-18 |" in texts["FedAvgSemi.md"] and "0.6779" in texts["FedAvgSemi.md"]
    assert not any("Published results: methods reference" in text for text in texts.values())
