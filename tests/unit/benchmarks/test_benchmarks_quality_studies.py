"""The studies of benchmarks/quality: their documents, their grids and the published numbers beside them."""

from pathlib import Path

import pytest

from anchorage.api.single import read_document
from anchorage.engine.interfaces import RoundRecord
from fedctl.research.paper_setting import compare_settings
from fedctl.research.results import Results, SeedResult
from fedctl.research.study import Cell, StudyFile, cells_of

QUALITY = Path(__file__, "../../../../benchmarks/quality").resolve()
FILES = sorted(QUALITY.rglob("*.yaml"))
STUDIES = [file for file in FILES if "\nmethods:" in file.read_text()]
OURS = {"ham10000", "frozen", "lesions", "pretrain", "shares", "small", "volumes"}
"""Folders of the studies that no paper has."""
SIMULATED = {QUALITY / "ham10000/pretrain/pretrain.yaml"}
"""Federations that `fedctl simulate` plays for a study's weights."""


def few_of(study: StudyFile, file: Path) -> list[Cell]:
    """Return every method in the first setting, and the first method in every other: a cell is nothing but the overrides of both."""
    cells = list(cells_of(study, file, Path("results"), None, "cpu"))
    first = cells[0]
    return [cell for cell in cells if cell.setting == first.setting or cell.method == first.method]


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_every_cell_of_a_study_is_valid_and_stands_beside_a_published_number(file: Path) -> None:
    study = read_document(file, StudyFile)
    assert study.metric is not None
    drawn = file.parent.name not in ("frozen", "pretrain", "shares")  # a classifier in closed form draws nothing
    drawn = drawn and "choose" not in file.stem  # what chooses on validation images is scored in another study
    for cell in few_of(study, file):
        assert len(cell.wanted.studies()) >= (3 if drawn else 1), cell.title
    for cell in cells_of(study, file, Path("results"), None, "cpu"):
        assert file.parent.name in OURS or cell.paper(study.metric) is not None, cell.title


@pytest.mark.parametrize("file", [file for file in STUDIES if file.parent.name not in OURS], ids=lambda file: file.stem)
def test_no_study_of_a_paper_differs_from_it_in_what_is_known(file: Path) -> None:
    study = read_document(file, StudyFile)
    assert study.metric is not None
    for cell in few_of(study, file):
        paper, documents = cell.paper(study.metric), cell.wanted.studies()[0]
        last = RoundRecord(documents.federation.spec.rounds, "d", 0.0, {}, (), {}, 0, 0)
        results = Results(Path(), documents.federation, documents.silos, (SeedResult(1, (last,), 1.0),))
        assert paper is not None
        assert compare_settings(paper, results).differs == (), cell.title


def test_every_federation_is_of_a_study() -> None:
    studies = [(file.parent, read_document(file, StudyFile)) for file in STUDIES]
    used = {(folder / name).resolve() for folder, study in studies for name in [study.federation, *_of_settings(study)]}
    assert used == set(FILES) - set(STUDIES) - SIMULATED


def _of_settings(study: StudyFile) -> list[str]:
    return [case.federation for case in study.settings.values() if case.federation is not None]
