"""A federation and its silos, checked by every rule there is."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorage.api.federation import Federation, Silo
from anchorage.api.files import Study, read_federation
from anchorage.api.mistakes import DocumentError
from anchorage.api.objects import add_silo_name, read_objects
from anchorage.methods.checks import check


def validate_study(path: Path, overrides: Sequence[str] = (), silos: int | None = None) -> Study:
    """Read a federation and its silos from a file, and check documents and method.

    Parameters
    ----------
    path : Path
        A file of YAML documents.
    overrides : sequence of str
        ``path=value``, applied to the federation's document; ``silo.path=value``, to every silo's.
    silos : int, optional
        As in `load_federation`.

    Raises
    ------
    DocumentError
        With every mistake, each with its line.
    """
    reading = read_federation(path, overrides, silos)
    mistakes = list(reading.mistakes)
    if reading.study is not None:
        mistakes += map(reading.study.add_place, check(reading.study.federation, reading.study.silos))
    if reading.study is None or mistakes:
        raise DocumentError(mistakes)
    return reading.study


def validate_documents(
    federation: Mapping[str, Any], silos: Sequence[Mapping[str, Any]] = ()
) -> tuple[Federation, tuple[Silo, ...]]:
    """Check the Kubernetes objects of a federation and its silos, documents and method.

    How many silos there are is not held against the quorum: silos come and go, and the condition QuorumMet tells.

    Parameters
    ----------
    federation : mapping
        The object; of its metadata only name and namespace are looked at, its status is not.
    silos : sequence of mapping
        Its silos, likewise.

    Raises
    ------
    DocumentError
        With every mistake; those of a silo name it, and `Mistake.silo` is its index.
    """
    reading = read_objects(federation, silos)
    mistakes, members = list(reading.mistakes), [silo for silo in reading.silos if silo is not None]
    if reading.federation is not None and len(members) == len(silos):
        mistakes += [add_silo_name(mistake, silos) for mistake in check(reading.federation, members)]
    if mistakes or reading.federation is None:
        raise DocumentError(mistakes)
    return reading.federation, tuple(members)
