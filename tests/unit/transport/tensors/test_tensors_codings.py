"""What codings write, byte by byte, as calculated by hand."""

from fractions import Fraction

import numpy as np
import pytest

from anchorage.transport.tensors.codings import BFloat16Coding, BlockCoding, Coding, TopCoding
from anchorage.transport.tensors.encoded import Encoding
from anchorage.transport.tensors.layout import Layout

INT4, INT8 = BlockCoding(bits=4), BlockCoding(bits=8)
ONE, TWO = 120, 121
"""Scales of 1 and 2: their exponents, from -120 on."""

KNOWN = {
    # 7 is 7 steps of 1; 3.5 and 0.5 lie half-way and go to the even neighbour
    "int4": (INT4, [7.0, -7.0, 3.5, 0.5, -1.2], [ONE, 0x97, 0x04, 0x0F], [7.0, -7.0, 4.0, 0.0, -1.0]),
    # 7.3 is above 7.25 steps of 1, so steps are of 2
    "int4 wide": (INT4, [7.3, -1.2], [TWO, 0xF4], [8.0, -2.0]),
    "int8": (INT8, [127.0, -100.4, 0.6], [ONE, 127, 156, 1], [127.0, -100.0, 1.0]),
    # one change, at place 2: the number that it leads to
    "topK": (TopCoding(share=Fraction(1, 3)), [0.0, 0.0, 5.0], [1, 0, 0, 0, 2, 0, 0, 0, 0xA0, 0x40], [0.0, 0.0, 5.0]),
    # 1 + 2**-8 lies half-way between 1 and the next bfloat16, and goes to the even one
    "bFloat16": (BFloat16Coding(), [1.0 + 2.0**-8, -2.5], [0x80, 0x3F, 0x20, 0xC0], [1.0, -2.5]),
}


@pytest.mark.parametrize(("coding", "values", "code", "read"), KNOWN.values(), ids=KNOWN)
def test_bytes_known_by_hand(coding: Coding, values: list[float], code: list[int], read: list[float]) -> None:
    update, base, actual = (
        np.array(values, np.float32),
        np.zeros(len(values), np.float32),
        np.empty(len(values), np.float32),
    )
    assert coding.encode(update, base) == bytes(code)
    assert coding.decode(b"before" + bytes(code), 6, base, actual) == 6 + len(code)
    assert actual.tolist() == read


def test_every_block_of_four_bits_has_a_scale_of_its_own() -> None:
    values = np.repeat(np.array([7.0, 0.4375], np.float32), 64)  # 7 steps of 1, and 7 of 2**-4
    assert INT4.encode(values, np.zeros_like(values)) == bytes([ONE, ONE - 4]) + bytes([0x77]) * 64


def test_error_feedback_sends_later_what_was_lost() -> None:
    """By hand: 0.25 beside a 7 is a quarter of a step; after three rounds it is sent as one step, which is a quarter too much."""
    layout = Layout.of([("weight", "F32", (1, 2))])
    encoding, base, lost = Encoding(INT4, layout, layout), np.zeros(8, np.uint8), np.zeros(8, np.uint8)
    sent = []
    for _ in range(4):
        update = np.array([7.0, 0.25], np.float32)
        encoding.round_update(update.view(np.uint8), base, lost)
        sent.append((*update.tolist(), *lost.view(np.float32).tolist()))
    assert sent == [(7, 0, 0, 0.25), (7, 0, 0, 0.5), (7, 1, 0, -0.25), (7, 0, 0, 0)]


def test_the_largest_changes_of_every_tensor_are_sent_and_of_equal_ones_the_first() -> None:
    """By hand: a third of 7 numbers is 3 of them, of 2 numbers 1; what is not sent is kept, and sent when it has become large."""
    layout = Layout.of([("a", "F32", (1, 7)), ("b", "F32", (2, 1)), ("bias", "F32", (2,))])
    encoding = Encoding(TopCoding(share=Fraction(1, 3)), layout, layout)
    base, lost = np.full(11, -0.0, np.float32), np.zeros(11, np.float32)
    update = np.array([1, -4, 2, 2, 3, 0, 0, 0.5, -0.25, 9, 9], np.float32)
    encoding.round_update(update.view(np.uint8), base.view(np.uint8), lost.view(np.uint8))
    assert update.tolist() == [0, -4, 2, 0, 3, 0, 0, 0.5, 0, 9, 9]
    assert lost.tolist() == [1, 0, 0, 2, 0, 0, 0, 0, -0.25, 0, 0]
    update = np.array([1, 0, 0, 0, 0, 0, 0.5, 0, -0.25, 9, 9], np.float32)
    encoding.round_update(update.view(np.uint8), base.view(np.uint8), lost.view(np.uint8))
    assert update.tolist() == [2, 0, 0, 2, 0, 0, 0.5, 0, -0.5, 9, 9]
    assert not lost.any()
    assert np.signbit(update[[1, 2, 4, 5, 7]]).all()  # what is not sent is the received number to the bit


def test_places_beyond_16_bits_are_told_by_page() -> None:
    coding, base = TopCoding(share=Fraction(1, 2)), np.zeros(70_000, np.float32)
    update = base.copy()
    update[[0, 65_535, 65_536, 69_999]] = 1
    actual, code = np.empty_like(base), coding.encode(update, base)
    assert code[:16] == bytes([2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0x6F, 0x11]) and len(code) == 8 + 4 * 6
    assert coding.decode(code, 0, base, actual) == len(code) and (actual == update).all()


@pytest.mark.parametrize("places", [[1, 1], [2, 1], [0, 3]], ids=str)
def test_places_that_no_coding_writes_are_refused(places: list[int]) -> None:
    data = np.array([2], "<u4").tobytes() + np.array(places, "<u2").tobytes() + bytes(8)
    with pytest.raises(ValueError, match="places"):
        TopCoding(share=Fraction(1, 2)).decode(data, 0, np.zeros(3, np.float32), np.empty(3, np.float32))


@pytest.mark.parametrize("count", [9, 1 << 16, (1 << 16) + 1, (1 << 32) - 1])
def test_more_places_than_there_are_bytes_or_numbers_are_refused(count: int) -> None:
    data = np.array([count], "<u4").tobytes() + bytes(14)
    with pytest.raises(ValueError, match="buffer|numbers"):
        TopCoding(share=Fraction(1, 2)).decode(data, 0, np.zeros(3, np.float32), np.empty(3, np.float32))


@pytest.mark.parametrize("coding", [INT4, TopCoding(share=Fraction(1, 4))])
def test_of_what_is_not_finite_nothing_is_kept(coding: Coding) -> None:
    layout = Layout.of([("weight", "F32", (2, 2))])
    update, lost = np.array([7, np.nan, np.inf, 0.25], np.float32), np.array([0, 1, 1, 0.5], np.float32)
    Encoding(coding, layout, layout).round_update(update.view(np.uint8), np.zeros(16, np.uint8), lost.view(np.uint8))
    assert np.array_equal(update, [7, np.nan, np.inf, 0.75], equal_nan=True)  # as it is: the server refuses it
    assert lost.tolist() == [0, 0, 0, 0]
