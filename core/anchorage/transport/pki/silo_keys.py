"""The key of each silo outside a cluster, and the one that is to take its place: a folder beside the authority with a file per silo."""

import json
from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from anchorage.api.errors import AnchorageError, identity
from anchorage.api.regular_files import read_regular
from anchorage.transport.files import write_atomically


class SiloKeys:
    """The keys by which the silos of one federation are known, as `anchorage.transport.pki.key_fingerprint` has them.

    A silo that changes its key has a certificate over the new one first. Both are its own until it shows the new one, as that certificate may be
    lost on its way; from then on the old one is nobody's.

    Parameters
    ----------
    authority : Path
        The authority's folder.
    """

    def __init__(self, authority: Path) -> None:
        self._folder = authority / "keys"
        self._lock = Lock()

    def set_key(self, silo: str, key: str, authority: str = "") -> None:
        """Know a silo by this key alone, which the authority of this key has signed last.

        Raises
        ------
        AnchorageError
            The folder cannot be read or written.
        """
        with self._lock:
            self._write(silo, key, "", authority)

    def offer(self, silo: str, key: str, authority: str = "") -> None:
        """Let another key take the place of a silo's as soon as it is shown; `authority` as of `set_key`, which it raises as."""
        with self._lock:
            known, _, signed = self._read(silo)
            if key != known or authority != signed:
                self._write(silo, known, "" if key == known else key, authority)

    def not_signed_by(self, authority: str, silos: Iterable[str]) -> list[str]:
        """Return the silos whose last certificate the authority of this key did not sign. Raises as `set_key`."""
        return [silo for silo in silos if self._read(silo)[2] != authority]

    def admits(self, silo: str, key: str) -> bool:
        """Return whether this is the silo's key; one that is shown for the first time takes the place of the one before.

        A silo that enrolled with an earlier version, which kept no keys, may show any that the authority signed. Raises as `set_key`.
        """
        with self._lock:
            known, following, signed = self._read(silo)
            if key and key == following:
                self._write(silo, key, "", signed)
                return True
            return known in ("", key)

    def _read(self, silo: str) -> tuple[str, str, str]:
        try:
            stored_keys = json.loads(read_regular(self._folder / silo))
            return str(stored_keys["key"]), str(stored_keys["next"]), str(stored_keys["authority"])
        except FileNotFoundError:
            return "", "", ""
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise self._unusable(f"{silo} cannot be read: {type(error).__name__}") from error

    def _write(self, silo: str, key: str, following: str, authority: str) -> None:
        content = json.dumps({"key": key, "next": following, "authority": authority}).encode()
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            write_atomically(self._folder / silo, content, mode=0o600, durable=True)
        except OSError as error:
            raise self._unusable(f"{silo} cannot be written: {error.strerror}") from error

    def _unusable(self, detail: str) -> AnchorageError:
        return AnchorageError(identity.AUTHORITY_UNUSABLE, f"{self._folder}/{detail}")
