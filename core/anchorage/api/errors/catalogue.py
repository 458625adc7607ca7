"""Entries of the catalogue. Codes are never reused; `make generate` writes docs/errors.md of them.

The modules beside this one hold the entries, a range of codes each: documents 10xx and 11xx, data 12xx, learning 13xx, identity 20xx,
transfer 21xx, silo 22xx, rounds 30xx, storage 31xx, tracking 40xx, commands 50xx, clusters 51xx.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """One entry of the catalogue."""

    code: str
    """``ANC-`` and four digits."""
    reason: str
    """One CamelCase word, used as condition reason and gRPC status detail."""
    title: str
    """What went wrong, in one sentence."""
    remedy: str
    """What to do, in one or two sentences."""
    exit_code: int
    """Exit status of a process that ends with this failure."""

    def explanation(self) -> str:
        """Return what ``fedctl explain`` prints."""
        return f"{self.code} {self.reason} (exit status {self.exit_code})\n\n{self.title}\n\n{self.remedy}\n"


CATALOGUE: dict[str, Failure] = {}


def failure(exit_code: int, heading: str, title: str, remedy: str) -> Failure:
    """Add an entry to the catalogue; `heading` is its code and reason, as ``ANC-1001 FileUnreadable``.

    Raises
    ------
    ValueError
        The code or the reason is taken.
    """
    code, reason = heading.split()
    if code in CATALOGUE or any(entry.reason == reason for entry in CATALOGUE.values()):
        raise ValueError(f"duplicate entry in the catalogue: {code} {reason}")
    CATALOGUE[code] = Failure(code, reason, title, remedy, exit_code)
    return CATALOGUE[code]
