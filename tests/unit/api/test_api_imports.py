"""Imports of large modules: garbage waits, and what is imported is left out of later searches."""

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anchorage.api.imports import import_large


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "large_module", raising=False)
    (tmp_path / "large_module.py").write_text("import gc\ncollected = gc.isenabled()\n")
    yield "large_module"
    gc.unfreeze()


def test_nothing_is_collected_during_an_import(module: str) -> None:
    import_large(module)
    assert not sys.modules[module].collected
    assert gc.isenabled()
    assert gc.get_freeze_count()


def test_what_is_imported_already_stays_as_it_is(module: str) -> None:
    import_large(module)
    gc.unfreeze()
    import_large(module)
    assert not gc.get_freeze_count()


def test_a_failed_import_is_raised_and_garbage_collected_again(tmp_path: Path, module: str) -> None:
    (tmp_path / f"{module}.py").write_text("raise ImportError('no')\n")
    with pytest.raises(ImportError, match="no"):
        import_large(module)
    assert gc.isenabled()
