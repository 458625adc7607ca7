"""How good input is damaged: bytes anywhere, or values anywhere in JSON."""

import json
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

DEEP = 100_000
"""Brackets one in another, more than any reader's stack holds."""
TOKENS = (
    b"\x00", b"\xff\xff\xff\xff", b"\xff" * 9 + b"\x01", b"\x80" * 12, b"\n", b"---\n", b"&a [*a, *a]\n",
    b"!!python/object:os.system x",
    b"1e999", b"NaN", b"-1", b"9" * 5000, b"[" * DEEP, b'{"a":' * DEEP, b'"', b"'", b": ", b", ", b"\r", b"\xed\xa0\x80", b"../../x", b"%s",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2.0, 2**31, 2**63, 2**64, 10**30, -(2**63), 1e308, float("inf"), float("nan"), "", "a", "-1", "x" * 70, "\ud800", [],
    {}, [[]], [0], {"a": 1}, ["F32", "C64"], "C64", "BF16", "F8_E4M3",
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """Draw one of the seeds with a few bytes changed, put in, taken out or taken from another seed; now and then none of them."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        length = draw(st.sampled_from((1, 1, 2, 4, 8, 40, len(data))))
        match draw(st.sampled_from(("flip", "set", "token", "cut", "twice", "end", "other"))):
            case "flip" if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "set" if data:
                data[at] = draw(st.integers(0, 255))
            case "token":
                data[at:at] = draw(st.sampled_from(TOKENS))
            case "cut":
                del data[at : at + length]
            case "twice":
                data[at:at] = data[at : at + length]
            case "end":
                del data[at:]
            case "other":
                other = draw(st.sampled_from(seeds))
                data[at:] = other[draw(st.integers(0, len(other))) :]
            case _:
                data += bytes([at & 255])
    return bytes(data)


@st.composite
def damaged_json(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """Draw one of the seeds, JSON, with a few of its values, names or items changed, removed or put in."""
    tree = [json.loads(draw(st.sampled_from(seeds)))]
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(tree))
        holder, key = draw(st.sampled_from(places))
        value = deepcopy(draw(st.sampled_from(VALUES)))
        match draw(st.sampled_from(("set", "set", "set", "remove", "more"))):
            case "remove" if holder is not tree:
                del holder[key]
            case "more" if isinstance(holder, dict):
                holder[str(value)] = holder[key]
            case "more" if holder is not tree:
                holder.insert(key, value)
            case _:
                holder[key] = value
    return json.dumps(tree[0]).encode()


def _places(value: Any) -> Any:
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])
