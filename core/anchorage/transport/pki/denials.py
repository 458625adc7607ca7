"""Silos that are denied outside a cluster: a folder beside the authority with a file per silo, which the server looks at again and again."""

from pathlib import Path

from anchorage.api.text import printable
from anchorage.transport.files import write_atomically


class Denials:
    """The denied silos of one federation.

    Parameters
    ----------
    authority : Path
        The authority's folder.
    """

    def __init__(self, authority: Path) -> None:
        self._folder = authority / "denied"

    def deny(self, silo: str, reason: str = "") -> None:
        """Deny a silo of the federation's documents until `approve`.

        Raises
        ------
        OSError
            The folder cannot be written.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        write_atomically(self._folder / silo, printable(reason).encode(), mode=0o600, durable=True)

    def approve(self, silo: str) -> None:
        """Admit a silo again.

        Raises
        ------
        OSError
            The folder cannot be written.
        """
        (self._folder / silo).unlink(missing_ok=True)

    def __contains__(self, silo: str) -> bool:
        return (self._folder / silo).exists()
