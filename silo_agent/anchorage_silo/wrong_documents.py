"""Mistakes in documents that show where pieces of other packages are loaded: the agent reads the documents without them."""

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import WRONG_FORM
from anchorage.api.piece_faults import shorten


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Have a mistake of a document that is read in the block end it as a failure of the catalogue.

    Raises
    ------
    AnchorageError
        WRONG_FORM: with the first mistake.
    """
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        detail = shorten(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
        raise AnchorageError(WRONG_FORM, detail, redacted=detail) from error
