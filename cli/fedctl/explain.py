"""``fedctl explain``: what a failure means and what to do, from the catalogue."""

from dataclasses import asdict
from difflib import get_close_matches

import typer
from pydantic.alias_generators import to_camel

from anchorage.api.errors import CATALOGUE, AnchorageError
from anchorage.api.errors.documents import UNKNOWN_CHOICE
from fedctl.output import Format, emit


def explain_failure(code: str, output: Format) -> None:
    """Print what a code, ``ANC-1203`` or ``1203``, or a reason, ``BadImages``, means and what to do.

    Raises
    ------
    AnchorageError
        There is no such failure.
    """
    names = {name.lower(): entry for key, entry in CATALOGUE.items() for name in (key, key[4:], entry.reason)}
    entry = names.get(code.lower())
    if entry is None:
        near = dict.fromkeys(f"{names[n].code} {names[n].reason}" for n in get_close_matches(code.lower(), names))
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        detail = (
            f"found {code!r}, {meant}allowed is the code or the reason that a message begins with, such as ANC-1203"
        )
        raise AnchorageError(UNKNOWN_CHOICE, detail)
    if output.for_people:
        typer.echo(entry.explanation(), nl=False)
    else:
        emit({to_camel(name): value for name, value in asdict(entry).items()}, output)
