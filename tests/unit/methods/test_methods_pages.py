"""What the pages and `fedctl methods describe` tell of a method holds."""

import re
from pathlib import Path

import pytest

from anchorage.api.mistakes import DocumentError
from anchorage.methods import PRESETS, validate_study
from anchorage.methods.advice import advice_of
from anchorage.methods.snippet import snippet
from anchorage.methods.variants import variants
from fedctl.published import NAMES, published_of, published_results
from makers.method_pages import pages


@pytest.mark.parametrize("name", PRESETS)
def test_the_file_to_start_from_is_valid(name: str, tmp_path: Path) -> None:
    file = tmp_path / "federation.yaml"
    file.write_text(snippet(PRESETS[name]))
    study = validate_study(file)
    spec = study.federation.spec
    assert name in (spec.method.name, *(stage.method for stage in spec.warm_up)) and len(study.silos) == 2
    assert study.federation.spec.evaluation and all(silo.spec.managed for silo in study.silos), "it plays as it is"
    assert max(map(len, file.read_text().splitlines())) <= 80


def test_every_method_has_its_page() -> None:
    texts = pages()
    assert set(texts) == {f"{name}.md" for name in PRESETS} | {"README.md"}
    for name, preset in PRESETS.items():
        assert preset.summary in texts[f"{name}.md"] and f"[{name}]({name}.md)" in texts["README.md"]
        assert advice_of(preset), name


@pytest.mark.parametrize("name", variants())
def test_a_variant_is_on_the_page_of_its_method_and_plays_as_it_is_written(name: str, tmp_path: Path) -> None:
    variant = variants()[name]
    preset = PRESETS[variant.method["name"]]
    assert name not in PRESETS
    assert f"- {name}, `{variant.written}`: {variant.summary}" in pages()[f"{preset.name}.md"]
    file = tmp_path / "federation.yaml"
    file.write_text(snippet(preset))
    assert validate_study(file, [f"spec.method={variant.written}"]).federation.spec.method.name == preset.name
    with pytest.raises(
        DocumentError, match=re.escape(f"found {name!r}, which is a variant of {preset.name} and written")
    ):
        validate_study(file, [f"spec.method.name={name}"])


def test_pages_hold_the_numbers_that_papers_report() -> None:
    texts, names = pages(), {result.method for result in published_results()}
    assert {
        name for known in NAMES.values() for name in known
    } <= names and NAMES.keys() <= PRESETS.keys() | variants().keys()
    known_names = {known for name in (*PRESETS, *variants()) for known in NAMES.get(name, (name,))}
    assert names - known_names == {"IsoFed", "FedAvg aggregation"}  # no methods of this project
    assert re.search(
        r"- SemiAnAgg Table 3: FedAvg-Semi \(ResNet-18, .*\): ISIC-18: 0\.6779, balanced accuracy 0\.4021\n",
        texts["FedAvgSemi.md"],
    )
    assert (
        "(ResNet-18, 10 partially labelled clients, 10 % + 90 %), accuracy, macro auc, macro precision, balanced accuracy: "
        "SVHN: 0.9257, 0.9950, 0.9202, 0.9228; ISIC-18: 0.7039, 0.8834, 0.4071, 0.4262\n"
    ) in texts["SemiAnAgg.md"], "what all cells have is named once"
    assert "(500 rounds): CIFAR-10: 2, 3, 5, 10 classes per client: 0.8120, " in texts["FedMix.md"]
    assert "- FedMatch Table 1: FedProx-UDA" in texts["FedAvgUDA.md"]
    for name, text in texts.items():
        printed = text.partition("## Published results")[2]
        results = published_of(name.removesuffix(".md")) if name != "README.md" else []
        assert all(result.figure.replace(" ", "") in printed and result.method in printed for result in results), name
        assert not re.search(r"\bat [\d,]+ s(?! of its machines)", text), name
    assert not any("Published results: methods reference" in text for text in texts.values())
