"""Text of another party, made safe to show, and numbers as people read them."""

from collections.abc import Sequence


def printable(text: str) -> str:
    """Return text with spaces in the place of line ends, tabs, escape sequences' beginnings and other characters that cannot be printed."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


_MOST_PLACES = 4


def in_percent(share: float, places: int = 0) -> str:
    """Write a share from 0 to 1 in percent, without the sign, such as ``81``: 0 and 100 are none and all, so more decimals show what is near them.

    Parameters
    ----------
    share : float
        The share.
    places : int
        Decimals of a share that is not near 0 or 1, at most 4.
    """
    for decimals in range(places, _MOST_PLACES + 1):
        text = f"{100 * share:.{decimals}f}"
        if share in (0, 1) or float(text) not in (0, 100):
            return text
    return f"<{10**-_MOST_PLACES:.{_MOST_PLACES}f}" if share < 0.5 else f">{100 - 10**-_MOST_PLACES:.{_MOST_PLACES}f}"


MOST_NAMED = 5
"""Names of a long list that are written."""


def list_some(names: Sequence[str]) -> str:
    """Join names, of many the first `MOST_NAMED` and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
