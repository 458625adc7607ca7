"""Headers of files in a file, so that a second start opens only what is new: to read those of 100,000 DICOM files takes minutes.

They name patients, as the images do; the file is as sensitive as these.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anchorage.api.regular_files import read_regular
from anchorage.learning.data.decoders import decoders
from anchorage.learning.data.file_header import Caution, Header
from anchorage.learning.data.headers import FileState, asked_for, take_known
from anchorage.transport.files import replacing

RULES = 1
"""Raised when other headers are made of the same files than before."""

_log = logging.getLogger(__name__)


@contextmanager
def headers_stored_in(file: Path) -> Iterator[None]:
    """Take headers of files that are as they were from a file, and leave in it those that were asked for in the block, and no others.

    Of files without a header nothing is left: perhaps they could not be read this time. If the file is damaged, or cannot be written, that only
    costs time.
    """
    before = _load(file)
    take_known(before)
    with asked_for() as asked:
        yield
    present = {state: header for state, header in asked.items() if header is not None}
    if present.keys() == before.keys():
        return
    try:
        _write(file, present)
    except OSError as error:
        _log.warning("headers of images cannot be stored (%s); they are read again at the next start", error.strerror)


def _load(file: Path) -> dict[FileState, Header]:
    try:
        content = json.loads(read_regular(file))
        if (content["rules"], content["decoders"]) != (RULES, [*decoders()]):
            return {}
        return {FileState(*state): _header(values) for state, values in content["headers"]}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError):
        _log.warning("the stored headers of images are damaged; they are read again")
        return {}


def _header(values: dict[str, Any]) -> Header:
    return Header(**{**values, "cautions": frozenset(map(Caution, values.get("cautions", ())))})


def _write(file: Path, headers: Mapping[FileState, Header]) -> None:
    """Write headers, mode 0600; what is as usual is left out of each."""
    usual, rows = Header(""), []
    for state, header in headers.items():
        values = {
            name: getattr(header, name) for name in Header.__slots__ if getattr(header, name) != getattr(usual, name)
        }
        rows.append((state, {**values, "kind": header.kind, "cautions": sorted(header.cautions)}))
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (
        replacing(file, shared=True) as partial,
        os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as text,
    ):
        json.dump({"rules": RULES, "decoders": [*decoders()], "headers": rows}, text, separators=(",", ":"))
