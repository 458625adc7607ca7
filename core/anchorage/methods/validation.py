"""A file of documents, checked by every rule there is."""

from collections.abc import Sequence
from pathlib import Path

from anchorage.methods.checks import check
from anchorage.spec.files import Study, read_federation
from anchorage.spec.mistakes import DocumentError


def validate_study(path: Path, overrides: Sequence[str] = ()) -> Study:
    """Read a federation and its silos, and check documents and method.

    Parameters
    ----------
    path : Path
        A file of YAML documents.
    overrides : sequence of str
        ``path=value``, applied to the federation's document.

    Raises
    ------
    DocumentError
        With every mistake, each with its line.
    """
    reading = read_federation(path, overrides)
    mistakes = list(reading.mistakes)
    if reading.study is not None:
        mistakes += map(reading.study.located, check(reading.study.federation, reading.study.silos))
    if reading.study is None or mistakes:
        raise DocumentError(mistakes)
    return reading.study
