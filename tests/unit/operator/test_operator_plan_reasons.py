"""Every reason that the operator gives is documented."""

import re
from pathlib import Path

import pytest

import anchorage_operator
from anchorage.api.errors import CATALOGUE
from anchorage_operator import reasons
from anchorage_operator.pods import failure_in
from makers import conditions_page


def test_reasons_are_words_and_say_what_they_mean() -> None:
    documented = list(conditions_page.reasons())
    assert [reason.name for reason in documented] == [vars(reasons)[name] for name in vars(reasons) if name.isupper()]
    assert len({reason.name for reason in documented}) == len(documented)
    for reason in documented:
        assert re.fullmatch(r"[A-Z][A-Za-z]{2,62}", reason.name)
        assert reason.on and reason.meaning.endswith(".")
        assert "|" not in reason.meaning + reason.remedy


def test_a_word_of_the_catalogue_means_the_same_here() -> None:
    shared = {reason.name for reason in conditions_page.reasons()} & {entry.reason for entry in CATALOGUE.values()}
    assert shared == {"CertificateExpired", "OutOfMemory", "PodOverrideRefused", "ServerUnreachable", "TokenExpired"}


def test_every_reason_is_used() -> None:
    folder = Path(anchorage_operator.__path__[0])
    text = "".join(path.read_text() for path in folder.glob("*.py") if path.name != "reasons.py")
    constants = {name for name in vars(reasons) if name.isupper()}
    assert {name for name in constants if f"reasons.{name}" not in text} == set()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", None),
        ("Traceback (most recent call last):", None),
        ("ANC-3002 DeadlineExceeded: too long", "DeadlineExceeded"),
        ('{"message": "x"}\nANC-3001 QuorumLost: a\nANC-3002 DeadlineExceeded: b\n', "DeadlineExceeded"),
        ("ANC-9999 OfANewerServer: what it says", "OfANewerServer"),
        ("note: ANC-3002 DeadlineExceeded: not at the line's start", None),
    ],
)
def test_the_failure_in_a_termination_message(text: str, reason: str | None) -> None:
    failure = failure_in(text)
    assert (failure[0] if failure else None) == reason
