"""The committed definitions are what the types say, small, and the same in the chart."""

import json
from pathlib import Path

import pytest
import yaml

from anchorage.crd.__main__ import main
from anchorage.crd.definitions import MOST_BYTES, files, templates

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "anchorage" / "templates"


@pytest.mark.parametrize("arguments", [[str(ROOT / "crds")], [str(CHART), "--chart"]])
def test_the_project_s_files_are_in_step(arguments: list[str]) -> None:
    assert main([*arguments, "--check"]) == 0


def test_they_are_small() -> None:
    assert sum(len(text.encode()) for text in files().values()) < MOST_BYTES
    assert len(files()["federations.yaml"].encode()) < 60_000


@pytest.mark.parametrize("text", files().values(), ids=files())
def test_a_file_is_one_definition_in_plain_yaml(text: str) -> None:
    (definition,) = yaml.safe_load_all(text)
    assert definition["kind"] == "CustomResourceDefinition"
    assert definition["metadata"]["name"] == f"{definition['spec']['names']['plural']}.anchorage.dev"
    assert "&id" not in text
    json.dumps(definition)


def test_a_template_is_the_same_between_helm_s_words() -> None:
    for name, text in templates().items():
        plain = [line for line in text.splitlines() if "{{" not in line and "resource-policy" not in line]
        assert [line for line in plain if line != "  annotations:"] == files()[name.removeprefix("crd-")].splitlines()
        assert text.count("{{- if ") == text.count("{{- end }}") == 2
        assert ".Values.crds.enabled" in text
        assert "    helm.sh/resource-policy: keep" in text


def test_writes_what_differs_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--check"]) == 1
    assert "silos.yaml: not what the spec says; run `make generate`" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main([str(tmp_path)]) == 0
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files()
    assert main([str(tmp_path), "--check"]) == 0
    (tmp_path / "silos.yaml").write_text("stale")
    assert main([str(tmp_path), "--check"]) == 1
    assert capsys.readouterr().err.startswith(str(tmp_path / "silos.yaml"))


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "cannot be written" in capsys.readouterr().err
