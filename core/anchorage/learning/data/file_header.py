"""What one image file says of itself beside pixels."""

from dataclasses import dataclass
from enum import StrEnum


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
