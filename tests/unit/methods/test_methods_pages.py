"""What the pages and `fedctl methods describe` tell of a method holds."""

from pathlib import Path

import pytest

from anchorage.methods import PRESETS, validate_study
from anchorage.methods.pages import pages
from anchorage.methods.snippet import snippet


@pytest.mark.parametrize("name", PRESETS)
def test_the_file_to_start_from_is_valid(name: str, tmp_path: Path) -> None:
    file = tmp_path / "federation.yaml"
    file.write_text(snippet(PRESETS[name]))
    study = validate_study(file)
    assert study.federation.spec.method.name == name and len(study.silos) == 2


def test_every_method_has_its_page() -> None:
    texts = pages()
    assert set(texts) == {f"{name}.md" for name in PRESETS} | {"README.md"}
    for name, preset in PRESETS.items():
        assert preset.summary in texts[f"{name}.md"] and f"[{name}]({name}.md)" in texts["README.md"]
        assert preset.advice, name
