"""Plays of hostile members, drawn at random: well-formed messages in legal and illegal orders, with usual and extreme values.

A play is plain data, so that one that breaks something can be printed: `Step` names who makes which call, and its fields stand for what only the
player knows (`member_player`), such as the task that the member has.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from anchorage.api.errors import CATALOGUE
from anchorage.transport.versions import PROTOCOL

IMAGES = 100
"""Images that a member says to have, mostly."""
MEMBERS = ("c", "d", "e")
_TEXTS = st.one_of(
    st.sampled_from(["", "x", "é" * 40, "\u202eab", "\x1b[2J\r\n", "\0", "../../x", "𝔘" * 30, "x" * 129, "y" * 5000]),
    st.text(max_size=20),
)
_COUNTS = st.sampled_from([0, 1, IMAGES - 1, IMAGES, IMAGES, IMAGES, IMAGES + 1, 10**8, 2**31, 2**63 - 1, -1, -(2**63)])
_UNSIGNED = st.sampled_from([0, 1, IMAGES, IMAGES + 1, 10**8, 10**8 + 1, 2**32, 2**63, 2**64 - 1])
_UNSIGNED_32 = st.sampled_from([0, 1, 2, 100, 2**31, 2**32 - 1])
_FLOATS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, 1e3, 1e30, 3.4e38, np.nan, np.inf, -np.inf])
_NAMES = st.one_of(st.sampled_from(["train", "loss", "validation", "system/memory_mb", "labelled", "selected"]), _TEXTS)
_TASKS = st.sampled_from(["own"] * 8 + ["old", "other", "next", "step", "none", "long", "strange"])
_SESSIONS = st.sampled_from(["own"] * 12 + ["before", "other", "none", "strange"])
_UPDATES = st.one_of(
    st.tuples(st.just("filled"), st.sampled_from([0.0, 1.0, -1.0])),
    st.tuples(st.just("filled"), _FLOATS),
    st.sampled_from([("other-layout",), ("none",), ("unknown-bytes",)]),
    st.tuples(
        st.just("sized"),  # bytes, digests, front
        st.sampled_from([0, 1, 1 << 20, 1600028, 4 << 30, 2**64 - 1]),
        st.sampled_from([0, 1, 2, 4096]),
        st.sampled_from([0, 0, 1, 1 << 20, 2**64 - 1]),
    ),
)
_ARRAYS = st.dictionaries(
    _NAMES,
    st.tuples(
        st.sampled_from(["int64", "float64", "float32", "bool", "complex64", "uint8"]),
        st.sampled_from([(), (0,), (2,), (3, 3), (2, 3, 4), (1, 1, 1, 1, 1), (1000,)]),
        st.sampled_from([0.0, 1.0, 50.0, -1.0, 2.0**62, np.nan, np.inf]),
    ),
    max_size=2,
)
_HEADS = st.sampled_from([None] * 6 + ["signed", "signed-far", "forged", "short", "no-lines"])
_CHUNKS = st.lists(st.sampled_from([0, 0, 1, 1, 2, 2**32 - 1]), max_size=5)
_COMPLETE = st.sampled_from([([0, 1], ["none", "none"]), ([1, 0], ["none", "none"]), ([0, 0, 1], ["none"] * 3)])
_DAMAGE = st.sampled_from(["none"] * 6 + ["short", "long", "empty", "huge", "other", "twice"])


_USUAL = [(True, True, True)] * 3 + [
    (True, True, False),
    (True, False, True),
    (False, True, True),
    (False, False, False),
]
"""Whether announcement, upload and chunks of a legal order are usual ones."""


class Step(NamedTuple):
    """One call of one member."""

    who: str
    call: str
    fields: dict[str, Any]
    with_next: bool = False
    """Whether it is made at the same time as the next call."""


Play = list[Step]


def array_of(dtype: str, shape: tuple[int, ...], value: float) -> NDArray[Any]:
    """Return the array that a field stands for."""
    with np.errstate(all="ignore"):
        return np.full(shape, value).astype(dtype)


def _step(who: str, call: str, **fields: "st.SearchStrategy[Any]") -> "st.SearchStrategy[Step]":
    return st.builds(
        Step, st.just(who), st.just(call), st.fixed_dictionaries(fields), st.sampled_from([False] * 7 + [True])
    )


@cache
def _join(who: str) -> "st.SearchStrategy[Step]":
    strange = st.fixed_dictionaries(
        {},
        optional={
            "labels": st.one_of(st.sampled_from(["None", "All", "Partial"]), _TEXTS),
            "version": st.one_of(st.sampled_from(["0.1.0", "9" * 40]), _TEXTS),
            "fingerprint": st.one_of(st.sampled_from(["ab", "0" * 64, "0" * 65]), _TEXTS),
            "protocol": st.sampled_from([0, PROTOCOL - 1, PROTOCOL, PROTOCOL + 1, 2**32 - 1]),
            "packages": st.lists(st.one_of(st.just("acme 0.1.0"), _TEXTS), max_size=40),
        },
    )
    return st.one_of(
        _step(who, "join", samples=st.just(IMAGES), fields=st.just({})),
        _step(who, "join", samples=_UNSIGNED, fields=strange),
    )


@cache
def _announce(who: str) -> "st.SearchStrategy[Step]":
    return _step(
        who, "announce", task=_TASKS, session=_SESSIONS, update=_UPDATES,
        samples=st.one_of(st.just({"train": 0}), st.just({"train": IMAGES}), st.dictionaries(_NAMES, _COUNTS, max_size=3)),
        metrics=st.dictionaries(_NAMES, _FLOATS, max_size=3), auxiliary=_ARRAYS, head=_HEADS, names=st.sampled_from([0, 0, 0, 0, 300]),
        behind=st.sampled_from(["", "", "", "", "layout", "other-layout", "{}", "x"]),
    )  # fmt: skip


@cache
def _upload(who: str) -> "st.SearchStrategy[Step]":
    """Upload what was announced last, whole or otherwise: chunks as they are declared, and what becomes of each."""
    drawn = st.tuples(_CHUNKS, st.lists(_DAMAGE, max_size=5))
    return _step(
        who, "upload", task=_TASKS, session=_SESSIONS, update=st.one_of(st.just(("announced",)), _UPDATES), chunks=st.one_of(_COMPLETE, drawn),
        first=st.sampled_from(["list"] * 8 + ["absent", "chunk", "empty"]), stalls=st.sampled_from([False] * 9 + [True]),
    )  # fmt: skip


@cache
def _other_calls(who: str) -> "st.SearchStrategy[Step]":
    answers = st.sampled_from([b""] * 4 + [b"{}", b"x", b"\0" * 100, b"y" * ((1 << 20) + 1)])
    return st.one_of(
        _step(who, "report", task=_TASKS, session=_SESSIONS, tally=_ARRAYS, images=_UNSIGNED, answer=answers, head=_HEADS),
        _step(
            who, "fail", task=_TASKS, session=_SESSIONS, message=_TEXTS,
            code=st.one_of(st.just("ANC-1301"), st.sampled_from(sorted(CATALOGUE)), st.just("ANC-9999"), _TEXTS),
        ),
        _step(who, "progress", task=_TASKS, session=_SESSIONS, done=_UNSIGNED_32, total=_UNSIGNED_32),
        _step(who, "fetch", session=_SESSIONS, model=st.sampled_from(["own", "own", "old", "none", "strange"]), chunks=_CHUNKS),
        _step(who, "lacking", task=_TASKS, session=_SESSIONS, update=st.one_of(st.just(("announced",)), _UPDATES)),
        _step(who, "describe", session=_SESSIONS),
        _step(who, "trust", session=_SESSIONS),
        _step(who, "renew", session=_SESSIONS, request=st.sampled_from(["own", "other", "empty", "text"])),
        _step(who, "leave"),
        _step(who, "park"),
    )  # fmt: skip


@cache
def _any_step(who: str) -> "st.SearchStrategy[Step]":
    return st.one_of(
        _join(who), _announce(who), _upload(who), _other_calls(who), _other_calls(who), _step(who, "listen")
    )


@st.composite
def _legal_order(draw: st.DrawFn, who: str) -> Play:
    """Draw joining, announcing and uploading in order, each with drawn values, cut off or with a step between."""
    announce, upload = draw(_announce(who)).fields, draw(_upload(who)).fields
    own_fields = {"task": "own", "session": "own"}
    usual_announcement, usual_upload, complete = draw(st.sampled_from(_USUAL))
    if usual_announcement:
        train = draw(st.sampled_from([0, IMAGES]))
        usual = {"samples": {"train": train}, "metrics": {}, "auxiliary": {}, "head": None, "names": 0, "behind": ""}
        announce = {**announce, **usual, "update": ("filled", draw(_FLOATS))}
    if usual_upload:
        upload = {**upload, **own_fields, "update": ("announced",), "first": "list", "stalls": False}
    if complete:
        upload = {**upload, "chunks": draw(_COMPLETE)}
    play = [
        Step(who, "join", {"samples": IMAGES, "fields": {}}),
        Step(who, "listen", {}),
        Step(who, "announce", {**announce, **own_fields}),
        Step(who, "listen", {}),
        Step(who, "upload", upload),
    ]
    for _ in range(draw(st.integers(0, 3))):
        play.insert(draw(st.integers(0, len(play))), draw(_any_step(who)))
    return play[: draw(st.sampled_from([2, 3, 4, len(play), len(play), len(play)]))]


@cache
def _part(who: str) -> "st.SearchStrategy[Play]":
    return st.one_of(_legal_order(who), st.lists(_any_step(who), min_size=1, max_size=6))


@st.composite
def _play(draw: st.DrawFn) -> Play:
    """Draw a play of one member, or of several at once."""
    several = draw(st.sampled_from([False, False, True]))
    play: Play = []
    for _ in range(draw(st.integers(1, 4))):
        who = draw(st.sampled_from(MEMBERS if several else MEMBERS[:1]))
        play += draw(_part(who))
    if several and len(play) > 2:
        return draw(st.permutations(play))
    return play


def drawn_plays(number: int, count: int) -> list[Play]:
    """Return the plays of a seed, at most so many, no two of the same calls: hypothesis repeats what it draws with few values changed."""
    plays: dict[tuple[tuple[str, str], ...], Play] = {}

    @seed(number)
    @settings(
        max_examples=3 * count, database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate,)
    )  # fmt: skip
    @given(_play())
    def collect(play: Play) -> None:
        plays.setdefault(tuple((step.who, step.call) for step in play), play)

    collect()
    return list(plays.values())[:count]
