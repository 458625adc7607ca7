"""Scikit-learn's bundled digits: 1,797 grey images of 8×8 pixels, ten classes called 0 to 9 (UCI ML hand-written digits, test set)."""

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import DATA_MISSING
from anchorage.learning.data.labels import LabelReader
from anchorage.learning.data.listing import BadImage, Listing

_LARGEST = 16


def list_digits(reader: LabelReader) -> Listing:
    """List the digits, straight from scikit-learn's data file: importing scikit-learn would cost a second in every process.

    Raises
    ------
    AnchorageError
        DATA_MISSING: scikit-learn is not installed. Or as of `LabelReader.read`.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise AnchorageError(
            DATA_MISSING, "the digits come with scikit-learn, which is not installed; install anchorage[learning]"
        )
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    try:
        with gzip.open(file, "rt", encoding="ascii") as text:
            table = np.loadtxt(text, delimiter=",", dtype=np.int64)
    except OSError as error:
        raise AnchorageError(
            DATA_MISSING, f"{file} cannot be read ({error.strerror}); install scikit-learn anew"
        ) from error
    images = np.rint(table[:, :-1] * (255 / _LARGEST)).astype(np.uint8).reshape(-1, 8, 8)
    ids = tuple(f"digit-{row:04d}" for row in range(len(table)))
    labels = reader.read([str(digit) for digit in table[:, -1]], file, "label")
    bad = {row: BadImage(ids[row], *bad_image) for row, bad_image in labels.wrong.items()}
    return Listing.of(ids=ids, groups=ids, sources=tuple(images), labels=labels, bad=bad)
