"""The committed definitions are what the types say, small, and the same in the chart."""

import json

import pytest
import yaml

from makers.crd.definitions import MOST_BYTES, files, templates


def test_they_are_small() -> None:
    assert MOST_BYTES == 200_000
    assert all(len(text.encode()) < MOST_BYTES for text in files().values())


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
