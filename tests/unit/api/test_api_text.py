"""Numbers as people read them."""

import math

import pytest

from anchorage.api.text import in_percent


@pytest.mark.parametrize(
    ("share", "places", "text"),
    [
        (0, 0, "0"),
        (1.0, 0, "100"),
        (0.5, 0, "50"),
        (0.5, 1, "50.0"),
        (1 / 260, 0, "0.4"),
        (0.0001, 1, "0.01"),
        (0.9999, 0, "99.99"),
        (0.994, 0, "99"),
        (1e-9, 0, "<0.0001"),
        (1 - 1e-9, 2, ">99.9999"),
        (math.nan, 0, "nan"),
    ],
)
def test_a_share_that_is_neither_none_nor_all_is_not_written_so(share: float, places: int, text: str) -> None:
    assert in_percent(share, places) == text
