"""``fedctl validate``: reports all errors of a file at once."""

from collections.abc import Sequence
from pathlib import Path

import typer

from anchorage.api.files import Study
from anchorage.api.mistakes import DocumentError, Mistake, format_path
from anchorage.methods import cautions, validate_study
from fedctl.output import Format, emit, format_count, warn


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
    warnings = warn_about(study)
    if output.for_people:
        spec = federation.spec
        typer.echo(
            f"{file}: valid: federation {federation.metadata.name}, {spec.method.name} on {spec.model.network}, "
            f"{format_count(spec.rounds, 'round')}, {format_count(len(names), 'silo')} ({', '.join(names)})"
        )
    else:
        emit(
            {
                "valid": True,
                "federation": federation.metadata.name,
                "silos": names,
                "mistakes": [],
                "warnings": warnings,
            },
            output,
        )


def warn_about(study: Study) -> list[str]:
    """Say on stderr, and return, what a valid study will do that its author may not mean (`cautions`)."""
    warnings = [*cautions(study.federation, study.silos)]
    for warning in warnings:
        warn(warning)
    return warnings


def _values(mistake: Mistake) -> dict[str, object]:
    return {
        "code": mistake.code,
        "reason": mistake.failure.reason,
        "where": mistake.where,
        "field": format_path(mistake.path),
        "message": mistake.message,
    }
