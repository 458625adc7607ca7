"""What image files say of themselves beside pixels: whose they are, how many frames they have, and whether they may be used.

Nothing of it leaves a hospital, but for counts of kinds.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from anchorage.api.regular_files import open_regular
from anchorage.learning.data.decoders import HEAD_BYTES, decoder_for, decoders
from anchorage.learning.data.decoding import MOST_BYTES, RefusedImageError


class Caution(StrEnum):
    """Why an image is not used unless its section says so."""

    BURNED_IN_TEXT = "BurnedInText"
    """Names are written in its pixels, by its header."""
    FOR_PROCESSING = "ForProcessing"
    """A radiograph with the detector's raw values, which nobody looks at."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of itself.

    Parameters
    ----------
    kind : str
        What it is, such as ``DICOM CT Image Storage``.
    image : bool
        Whether it is an image that is read; reports, plans and the like are not.
    patient, study, series, instance, accession : str
        Identifiers, without surrounding blanks; empty: not stated. Two patients of different issuers of identifiers are different.
    frames : int
        Frames of which each is an image, at least 1.
    cautions : frozenset of Caution
        Why it is not used unless the section says so.
    may_have_text : bool
        Whether it is of a kind in which text is often burned in, and does not say that it has none.
    in_volumes : bool
        Whether it may be a slice, or the slices, of a volume, which localisers and pictures of a screen are not.
    """

    kind: str
    image: bool = True
    patient: str = ""
    study: str = ""
    series: str = ""
    instance: str = ""
    accession: str = ""
    frames: int = 1
    cautions: frozenset[Caution] = frozenset()
    may_have_text: bool = False
    in_volumes: bool = True


def read_headers(files: Sequence[Path]) -> Iterator[Header | None]:
    """Yield the header of each file; None: it has none, or cannot be read, which decoding says.

    Raises
    ------
    AnchorageError
        PACKAGE_MISSING: there are files whose decoder needs a package that is not installed.
    """
    for file in files:
        try:
            state = file.stat()
        except OSError:
            yield None
        else:
            yield _header(str(file), state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=1_000_000)
def _header(path: str, nbytes: int, modified: int) -> Header | None:
    """Return the header of a file of this size and time."""
    if nbytes > MOST_BYTES:
        return None
    try:
        with open_regular(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # libraries warn with values of headers
            version = decoder_for(file.read(HEAD_BYTES), Path(path).name)
            if version is None:
                return None
            file.seek(0)
            return decoders()[version].header(file)
    except (OSError, RefusedImageError):
        return None
