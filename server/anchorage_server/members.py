"""Who is a member of a federation in a cluster: what the operator says, kept across restarts."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, ValidationError, model_validator

from anchorage.api.base import KEY_PATTERN, Document, Name
from anchorage.api.regular_files import read_regular
from anchorage.api.status import MOST_SILOS, Total
from anchorage.engine.store.durable import storage_errors
from anchorage.transport.files import write_atomically

Key = Annotated[str, StringConstraints(strict=True, pattern=KEY_PATTERN, max_length=64)]
"""`anchorage.transport.pki.key_fingerprint` of a certificate."""

_log = logging.getLogger(__name__)


class Member(Document):
    """One silo that is let in."""

    name: Name = Field(description="Name of the silo, as its certificate says it.")
    labels: Literal["None", "All", "Partial"] = Field("None", description="Which of its images are labelled.")
    key: Key = Field("", description="Fingerprint of its certificate's key; empty: any that the authority signed.")
    next_key: Key = Field("", description="Fingerprint of the key that takes its place when the silo first shows it.")


class MemberList(Document):
    """Every silo that is let in; the order is that of the sums over silos."""

    members: Annotated[tuple[Member, ...], Field(max_length=MOST_SILOS)] = Field((), description="The silos.")
    generation: Total = Field(0, description="The operator's own; given back as it came.")

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [member.name for member in self.members]
        if len(set(names)) < len(names):
            raise ValueError("found a name twice")
        return self


@dataclass(frozen=True, slots=True)
class Change:
    """What a new list of members changes.

    Parameters
    ----------
    names : tuple of str
        The members now, in their order.
    same : bool
        Whether they were the same, in the same order.
    rekeyed : tuple of str
        Members, before and now, that another key is expected of.
    """

    names: tuple[str, ...]
    same: bool
    rekeyed: tuple[str, ...]


class Members:
    """The members, in memory and in a file.

    Parameters
    ----------
    file : Path
        Read now where there is one; a file that cannot be understood counts as none, since the operator says again who is a member.

    Raises
    ------
    AnchorageError
        The file is there but cannot be read.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = Lock()
        self._list = MemberList()
        self._keys: Mapping[str, Member] = {}
        with storage_errors("read the members", file):
            content = read_regular(file) if file.exists() else b""
        if content:
            try:
                self._take(MemberList.model_validate_json(content))
            except ValidationError as error:
                _log.warning("the members are not as they were written", extra={"file": str(file), "error": str(error)})

    @property
    def list(self) -> MemberList:
        """The members as the operator put them last."""
        return self._list

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in their order."""
        return tuple(member.name for member in self._list.members)

    def admits(self, silo: str, key: str) -> bool:
        """Return whether the silo of this name may come with a certificate over this key; its next key takes the place of the one before.

        Raises
        ------
        AnchorageError
            The disk is full or not writable; the next key is then not its own yet.
        """
        expected = self._keys.get(silo)
        if expected is not None and key and expected.next_key == key:
            self._promote(silo, key)
            return True
        return expected is not None and expected.key in ("", key)

    def knows(self, silo: str, key: str) -> bool:
        """Return whether this is the silo's key or the one that takes its place."""
        expected = self._keys.get(silo)
        return expected is not None and (expected.key in ("", key) or expected.next_key == key)

    def replace(self, new: MemberList, changed: Callable[[Change], None]) -> None:
        """Keep a new list, then tell `changed`; one list after the other.

        Raises
        ------
        AnchorageError
            The disk is full or not writable; the members are then as before.
        """
        with self._lock:
            names, keys = self.names, self._keys
            self._keep(new)
            rekeyed = [m.name for m in new.members if m.key and keys.get(m.name, m).key not in (m.key, m.next_key)]
            changed(Change(self.names, names == self.names, tuple(rekeyed)))

    def _promote(self, silo: str, key: str) -> None:
        with self._lock:
            used = {"key": key, "next_key": ""}
            now = [m.model_copy(update=used) if m.name == silo and m.next_key == key else m for m in self._list.members]
            self._keep(self._list.model_copy(update={"members": tuple(now)}))
        _log.info("a silo shows its new key", extra={"silo": silo, "key": key})

    def _keep(self, new: MemberList) -> None:
        if new != self._list:
            with storage_errors("keep the members", self._file):
                write_atomically(self._file, new.model_dump_json(by_alias=True, indent=2).encode())
            self._take(new)

    def _take(self, new: MemberList) -> None:
        self._keys = {member.name: member for member in new.members}
        self._list = new
