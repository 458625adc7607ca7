"""The catalogue and its page."""

import re
import sys
from pathlib import Path

import pytest

from anchorage.api.errors import CATALOGUE, AnchorageError
from anchorage.api.errors.catalogue import failure
from makers.errors_page import PARTS, page

MODULES = {
    "documents": ("10", "11"),
    "data": ("12",),
    "learning": ("13",),
    "identity": ("20",),
    "transfer": ("21",),
    "silo": ("22",),
    "rounds": ("30",),
    "storage": ("31",),
    "tracking": ("40",),
    "commands": ("50",),
}
SOURCES = Path(sys.modules[AnchorageError.__module__].__file__ or "").parent


def test_every_entry_is_whole() -> None:
    assert len({entry.reason for entry in CATALOGUE.values()}) == len(CATALOGUE)
    for code, entry in CATALOGUE.items():
        assert entry.code == code
        assert re.fullmatch(r"ANC-[0-9]{4}", code)
        assert re.fullmatch(r"[A-Z][A-Za-z0-9]+", entry.reason), code
        assert entry.title.endswith("."), code
        assert entry.remedy.rstrip("`)").endswith((".", "%")), code
        assert "\n" not in entry.title + entry.remedy, code
        assert entry.exit_code in {2, 3, 4, 5, 6, 7, 8, 70}, code
        assert any(code.startswith(prefix) for prefix, _ in PARTS), code


@pytest.mark.parametrize("module", sorted(MODULES))
def test_codes_stay_in_their_module_s_range(module: str) -> None:
    codes = re.findall(r'"ANC-(\d\d)\d\d ', (SOURCES / f"{module}.py").read_text())
    assert set(codes) <= set(MODULES[module])


@pytest.mark.parametrize(("code", "reason"), [("ANC-1001", "Fresh"), ("ANC-9999", "FileUnreadable")])
def test_codes_and_reasons_are_used_once(code: str, reason: str) -> None:
    with pytest.raises(ValueError, match="duplicate entry"):
        failure(2, f"{code} {reason}", "Title.", "Remedy.")
    assert "ANC-9999" not in CATALOGUE


def test_an_error_is_one_line_with_code_and_reason() -> None:
    error = AnchorageError(CATALOGUE["ANC-1001"], "x.yaml: no such file; check the path")
    assert str(error) == "ANC-1001 FileUnreadable: x.yaml: no such file; check the path"
    assert error.code == "ANC-1001"
    assert CATALOGUE[error.code].exit_code == 2


def test_the_page_covers_the_catalogue() -> None:
    made = page()
    assert re.findall(r"^### (.*)$", made, re.MULTILINE) == sorted(CATALOGUE)
    for entry in CATALOGUE.values():
        words, part = (made.partition(f"\n### {entry.code}\n")[at] for at in (2, 0))
        usual = re.findall(r"^Exit status (\d+)\.$", part, re.MULTILINE)[-1]
        status = "" if str(entry.exit_code) == usual else f" ({entry.exit_code})"
        assert words.startswith(f"\n**{entry.reason}**{status}. {entry.title}\n\n{entry.remedy}\n"), entry.code
