"""``fedctl validate``: reports all errors of a file at once."""

from collections.abc import Sequence
from pathlib import Path

import typer

from anchorage.api.mistakes import DocumentError, Mistake, dotted
from anchorage.methods import validate_study
from fedctl.output import Format, counted, emit


def validate_file(file: Path, overrides: Sequence[str], output: Format) -> None:
    """Check a file and print its content; with ``-o json`` or ``yaml`` also its errors, as a list on stdout.

    Raises
    ------
    DocumentError
        With every mistake.
    """
    try:
        study = validate_study(file, overrides)
    except DocumentError as error:
        if not output.for_people:
            emit({"valid": False, "mistakes": [_values(mistake) for mistake in error.mistakes]}, output)
        raise
    federation, names = study.federation, [silo.metadata.name for silo in study.silos]
    if output.for_people:
        spec = federation.spec
        typer.echo(
            f"{file}: valid: federation {federation.metadata.name}, {spec.method.name} on {spec.model.network}, "
            f"{counted(spec.rounds, 'round')}, {counted(len(names), 'silo')} ({', '.join(names)})"
        )
    else:
        emit({"valid": True, "federation": federation.metadata.name, "silos": names, "mistakes": []}, output)


def _values(mistake: Mistake) -> dict[str, object]:
    return {
        "code": mistake.code,
        "reason": mistake.failure.reason,
        "where": mistake.where,
        "field": dotted(mistake.path),
        "message": mistake.message,
    }
