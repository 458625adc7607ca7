"""The hospital's approvals of what a federation would do: one file each in the agent's state folder, named after the digest."""

import getpass
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from anchorage.api.errors import AnchorageError, silo
from anchorage.transport.files import write_once
from anchorage_silo.files import state_unusable
from anchorage_silo.review import Review


@dataclass(frozen=True, slots=True)
class Approvals:
    """The approvals in a state folder."""

    state: Path

    def check(self, review: Review) -> None:
        """Check that the hospital has approved exactly this.

        Raises
        ------
        AnchorageError
            It has not; the message names the command that approves it.
        """
        if not self.is_given(review):
            detail = f"federation {review.federation} waits for this hospital: anchorage-silo approve {review.digest} --config FILE"
            raise AnchorageError(silo.APPROVAL_NEEDED, detail)

    def is_given(self, review: Review) -> bool:
        """Return whether the hospital has approved exactly this."""
        return self._file(review.digest).exists()

    def give(self, review: Review) -> None:
        """Record an approval, with what was approved, when and by which user; one that exists stays as it is.

        Raises
        ------
        AnchorageError
            The folder is missing or not writable.
        """
        file = self._file(review.digest)
        entry = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "user": _user()}
        text = json.dumps({**entry, "review": review.model_dump(by_alias=True, mode="json")}, indent=2)
        try:
            file.parent.mkdir(mode=0o700, exist_ok=True)
            write_once(file, f"{text}\n".encode())
        except FileExistsError:
            return
        except OSError as error:
            raise state_unusable(file, error) from error

    def _file(self, digest: str) -> Path:
        return self.state / "approvals" / f"{digest}.json"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())
