"""Every failure that a user can meet. Codes are never reused; `make generate` writes one page per entry under docs/errors.

Ranges: 10xx files and documents, 11xx cross-field rules of a federation, 12xx data, 13xx methods and models, 20xx identity and
connections, 21xx transfer, 30xx rounds, 31xx storage, 40xx tracking, 50xx the command line and the local runner.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """One entry of the catalogue.

    Parameters
    ----------
    code : str
        ``ANC-`` and four digits.
    reason : str
        One CamelCase word, used as condition reason and gRPC status detail.
    title : str
        What went wrong, one sentence.
    remedy : str
        What to do, one or two sentences.
    exit_code : int
        Exit status of a process that ends with this failure.
    """

    code: str
    reason: str
    title: str
    remedy: str
    exit_code: int


CATALOGUE: dict[str, Failure] = {}


def _failure(code: str, reason: str, title: str, remedy: str, exit_code: int) -> Failure:
    if code in CATALOGUE or any(entry.reason == reason for entry in CATALOGUE.values()):
        raise ValueError(f"duplicate entry in the catalogue: {code} {reason}")
    CATALOGUE[code] = Failure(code, reason, title, remedy, exit_code)
    return CATALOGUE[code]


FILE_UNREADABLE = _failure(
    "ANC-1001",
    "FileUnreadable",
    "A file that was named cannot be read.",
    "Check the path and the permissions.",
    2,
)
