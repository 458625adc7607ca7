"""``fedctl explain`` prints what docs/errors.md has, without it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anchorage.api.errors import CATALOGUE, AnchorageError
from anchorage.api.errors.documents import UNKNOWN_CHOICE
from fedctl.main import app

PAGE = (Path(__file__).parents[3] / "docs" / "errors.md").read_text()


@pytest.mark.parametrize("name", ["ANC-1203", "anc-1203", "1203", "BadImages"])
def test_a_failure_is_explained_by_its_code_or_reason(name: str) -> None:
    entry = CATALOGUE["ANC-1203"]
    printed = CliRunner().invoke(app, ["explain", name]).stdout
    assert printed == f"ANC-1203 BadImages (exit status 3)\n\n{entry.title}\n\n{entry.remedy}\n"


def test_the_manual_has_what_is_printed() -> None:
    for code, entry in CATALOGUE.items():
        for line in entry.explanation().splitlines()[1:]:
            assert line in PAGE, code


def test_programs_get_the_entry() -> None:
    entry = json.loads(CliRunner().invoke(app, ["explain", "ANC-1203", "-o", "json"]).stdout)
    assert (entry["code"], entry["reason"], entry["exitCode"]) == ("ANC-1203", "BadImages", 3)


@pytest.mark.parametrize(("name", "meant"), [("ANC1203", "ANC-1203 BadImages"), ("BadImage", "ANC-1203 BadImages")])
def test_an_unknown_code_is_refused_with_what_may_be_meant(name: str, meant: str) -> None:
    error = CliRunner().invoke(app, ["explain", name]).exception
    assert isinstance(error, AnchorageError) and error.failure is UNKNOWN_CHOICE
    assert "did you mean" in error.message and meant in error.message
