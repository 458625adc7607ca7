"""Which values of a picture become black and white. Imports nothing of this project: a registered model carries this file.

A picture is anything with the attributes of `anchorage.learning.data.decoding.Picture`. Shades go from 0, black, to 1, white; whether large values
are dark, as in some radiographs, is not looked at here. Padding counts in no statistic.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

DEVIATIONS = 5
"""Standard deviations from the mean, which is middle grey, to black and to white."""


def intensity_of(
    description: Mapping[str, Mapping[str, Any]] | None,
) -> Callable[[Any], NDArray[np.float32] | None] | None:
    """Return the intensity that a document or ``model.json`` names.

    Parameters
    ----------
    description : mapping or None
        Its name with its options, such as ``{"window": {"low": "-57", "high": "164"}}``; None: by the bits of each picture.

    Returns
    -------
    callable or None
        Picture to shades, float32 in the shape of its pixels; None: by the bits.

    Raises
    ------
    KeyError
        There is none of this name here.
    """
    if description is None:
        return None
    ((name, options),) = description.items()
    return None if name == "bits" else partial(_BY_NAME[name], **options)


def window(picture: Any, low: str, high: str) -> NDArray[np.float32]:
    """Show values from `low`, black, to `high`, white."""
    return _between(picture.pixels, float(low), float(high))


def dicom_window(picture: Any) -> NDArray[np.float32] | None:
    """Show a file as its own lookup table or window says, else from its least to its largest value; one that is no scanner's by its bits."""
    if picture.measured is None:
        return None
    if picture.measured.window is not None:
        shown: NDArray[np.float32] = picture.measured.window(picture.pixels)
        return shown
    values = _values(picture)
    return _between(picture.pixels, float(values.min()), float(values.max()))


def percentiles(picture: Any, low: str, high: str) -> NDArray[np.float32]:
    """Show values between two percentiles of the picture."""
    least, most = np.percentile(_values(picture), [float(low), float(high)])
    return _between(picture.pixels, float(least), float(most))


def z_score(picture: Any, over: str) -> NDArray[np.float32]:
    """Show how many standard deviations a value is from the mean: of all values, or of those above their mean, which are the foreground."""
    values = _values(picture).astype(np.float64)
    if over == "Foreground" and (values > values.mean()).any():
        values = values[values > values.mean()]
    mean, deviation = float(values.mean()), float(values.std())
    return _between(picture.pixels, mean - DEVIATIONS * deviation, mean + DEVIATIONS * deviation)


_BY_NAME: Mapping[str, Callable[..., NDArray[np.float32] | None]] = {
    "window": window,
    "dicomWindow": dicom_window,
    "percentiles": percentiles,
    "zScore": z_score,
}


def _values(picture: Any) -> NDArray[Any]:
    """Return the values of a picture that are no padding."""
    padding = None if picture.measured is None else picture.measured.padding
    values: NDArray[Any] = picture.pixels if padding is None or padding.all() else picture.pixels[~padding]
    return values


def _between(pixels: NDArray[Any], low: float, high: float) -> NDArray[np.float32]:
    """Return shades of values from `low` to `high`; where these are equal, black up to them and white above."""
    values = pixels.astype(np.float32)
    if high <= low:
        return (values > low).astype(np.float32)
    values -= np.float32(low)  # in place, for volumes are large
    values /= np.float32(high - low)
    return values.clip(0, 1, out=values)
