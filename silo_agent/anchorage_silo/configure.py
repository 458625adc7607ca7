"""``anchorage-silo configure``: an agent's files of the invitation that the coordinating site wrote."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from anchorage.api.base import NAME_PATTERN, Document, Name
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.commands import WORKDIR_UNUSABLE
from anchorage.api.errors.documents import WRONG_FORM
from anchorage.api.errors.silo import CONFIGURED_FOR_ANOTHER
from anchorage.api.regular_files import open_regular
from anchorage.api.single import read_document
from anchorage.api.source import write_documents
from anchorage.transport.files import write_atomically
from anchorage_silo.config import Address, SiloConfig

PROBES = "127.0.0.1:8080"
LONGEST_NAME = 63
"""Characters of a DNS label."""
SAMPLED, HEAD_BYTES = 20, 1024
"""Files that are looked at to see what a folder has, and how much of each."""
TABLES = (".csv", ".tsv")
"""Suffixes of a table beside the images."""

Certificate = Annotated[
    str,
    StringConstraints(
        strict=True,
        pattern=r"^\s*-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----\s*$",
        max_length=65_536,
    ),
]
"""A certificate, PEM."""


class Enrolment(Document):
    """Where and as what a silo enrols."""

    federation: Name
    silo: Name
    labels: Literal["None", "All", "Partial"]
    server: Address
    enrolment: Address
    authority: Certificate
    token: Annotated[str, StringConstraints(strict=True, pattern=r"^\S+$", max_length=512)] = Field(repr=False)


class Invitation(Document):
    """The file that ``fedctl silo invite`` writes."""

    enrolment: Enrolment


def configure(invitation: Path, images: Path, out: Path, state: Path) -> str:
    """Write the agent's files and return what to do next.

    ``ca.pem`` and ``token`` (which only its owner may read) are written anew; a ``silo.yaml`` of the same silo stays as it is.

    Parameters
    ----------
    invitation : Path
        The file that the coordinating site sent.
    images : Path
        Folder of the hospital's images.
    out : Path
        Folder that the files are written to; it is made.
    state : Path
        Folder of the agent's own files.

    Raises
    ------
    DocumentError
        The invitation is none.
    AnchorageError
        The folder has the configuration of another silo, federation or server, or cannot be written; or the images lie in no folder that a
        configuration can name.
    """
    enrolment = read_document(invitation, Invitation).enrolment
    images, out, state = images.resolve(), out.absolute(), state.absolute()
    config, authority, token = (out / name for name in ("silo.yaml", "ca.pem", "token"))
    values = {
        **enrolment.model_dump(by_alias=True, include={"silo", "federation", "server", "enrolment", "labels"}),
        "authority": str(authority),
        "token": str(token),
        "state": str(state),
        **_place(images),
        "probesListen": PROBES,
        "stay": True,
        "patienceSeconds": 0,
    }
    try:
        is_new = not config.exists()
        if not is_new:
            _require_same(config, enrolment)
        out.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_atomically(authority, enrolment.authority.strip().encode() + b"\n", mode=0o644)
        write_atomically(token, enrolment.token.encode(), mode=0o600)
        if is_new:
            write_atomically(config, write_documents([values], explicit_start=False).encode(), mode=0o644)
    except OSError as error:
        message = f"{out} cannot be written: {error.strerror or error}"
        raise AnchorageError(WORKDIR_UNUSABLE, message) from error
    written = f"wrote {config}, {authority.name} and {token.name}" if is_new else f"wrote a new token; {config} stays"
    return (
        f"{written}\nsee that `data` in {config} says what your images are, then run anchorage-silo --config {config}"
    )


def _place(images: Path) -> dict[str, object]:
    """Return where images lie: below the nearest folder whose name can be a claim's, as ``claimName`` asks for."""
    for folder in (images, *images.parents):
        if re.fullmatch(NAME_PATTERN, folder.name) and len(folder.name) <= LONGEST_NAME:
            below = {} if folder == images else {"path": str(images.relative_to(folder))}
            data = {**_recognise(images), "claimName": folder.name, **below}
            return {"dataRoot": str(folder.parent), "data": data}
    message = (
        f"--images {images}: no folder on this path has a name of lower-case letters, digits and dashes; move or "
        "mount the images below one"
    )
    raise AnchorageError(WRONG_FORM, message)


def _recognise(images: Path) -> dict[str, str]:
    """Return the format of what lies in a folder: of its only table, of a PACS export, else folders of pictures, or where nothing can be read."""
    from anchorage.pieces.decoder.dicom import Dicom

    tables, heads = list[str](), list[bytes]()
    with suppress(OSError):  # the folder of another machine, or one that only the agent may read
        tables = [file.name for file in images.iterdir() if file.name.lower().endswith(TABLES)]
    if len(tables) == 1:
        return {"format": "CsvManifest", "manifest": tables[0]}
    for path in islice(_files(images), SAMPLED):
        with suppress(OSError), open_regular(path) as file:
            heads.append(file.read(HEAD_BYTES))
    scans = sum(map(Dicom().recognises, heads))
    return {"format": "DicomFolder" if 2 * scans > len(heads) else "ImageFolder"}


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that are not hidden."""
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in sorted(names) if not name.startswith("."))


def _require_same(config: Path, enrolment: Enrolment) -> None:
    """Refuse a configuration that is another silo's, or names another server."""
    there = read_document(config, SiloConfig)
    for field in ("silo", "federation", "server", "enrolment"):
        one, other = getattr(there, field), getattr(enrolment, field)
        if one != other:
            message = f"{config} has {field} {one}, the invitation {other}; name another folder with --out, or remove that file"
            raise AnchorageError(CONFIGURED_FOR_ANOTHER, message)
