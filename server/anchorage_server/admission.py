"""Who is let in, and who gets a certificate: decided here by documents and tokens, or by a cluster's operator."""

import re
from pathlib import Path
from typing import Protocol

from anchorage.api.base import NAME_PATTERN
from anchorage.api.errors import AnchorageError, identity
from anchorage.transport.link import Clock
from anchorage.transport.pki import Denials, Registrar, SigningRequest, SiloKeys, key_fingerprint, silo_uri
from anchorage_server.members import Members
from anchorage_server.request_queue import Kind, RequestQueue

_NAME = re.compile(NAME_PATTERN)


class Admission(Protocol):
    """What the ports of the silos ask."""

    @property
    def names(self) -> tuple[str, ...]:
        """The members now, in the order of the sums over silos."""
        ...

    def admits(self, silo: str, key: str) -> bool:
        """Return whether the silo of this name may come with a certificate over the key of this fingerprint."""
        ...

    def enrol(self, csr_pem: bytes, token: str, silo: str) -> bytes:
        """Return a first certificate, PEM.

        Raises
        ------
        AnchorageError
            There is none, or not yet.
        """
        ...

    def renew(self, csr_pem: bytes, silo: str) -> bytes:
        """Return a further certificate, PEM, for the silo that showed a valid one.

        Raises
        ------
        AnchorageError
            There is none, or not yet.
        """
        ...


class DocumentAdmission:
    """The silos of the federation's file that nobody has denied, with certificates signed by the authority in a folder beside the server.

    Parameters
    ----------
    listed : tuple of str
        The silos of the file.
    registrar : Registrar
        Signs.
    denials : Denials
        Who is denied now.
    keys : SiloKeys
        The keys of the silos.
    """

    def __init__(self, listed: tuple[str, ...], registrar: Registrar, denials: Denials, keys: SiloKeys) -> None:
        self.enrol = registrar.enrol
        self.renew = registrar.renew
        self._listed, self._denials, self._keys = listed, denials, keys

    @property
    def names(self) -> tuple[str, ...]:
        """The members now, in the file's order."""
        return tuple(name for name in self._listed if name not in self._denials)

    def admits(self, silo: str, key: str) -> bool:
        """Return whether the file names this silo, nobody has denied it, and the key is its own.

        Raises
        ------
        AnchorageError
            A new key cannot be kept.
        """
        if silo not in self._listed or silo in self._denials:
            return False
        return self._keys.admits(silo, key)


class ClusterAdmission:
    """What the operator decides: it puts the members, and answers requests for certificates.

    Parameters
    ----------
    federation : str
        The federation's name.
    state : Path
        Folder for ``members.json``.
    clock : Clock
        Time.

    Raises
    ------
    AnchorageError
        ``members.json`` cannot be read.
    """

    def __init__(self, federation: str, state: Path, clock: Clock) -> None:
        self._federation = federation
        self.members = Members(state / "members.json")
        self.requests = RequestQueue(clock)

    @property
    def names(self) -> tuple[str, ...]:
        """The members now, in the operator's order."""
        return self.members.names

    def admits(self, silo: str, key: str) -> bool:
        """Return whether this is a member with its own key."""
        return self.members.admits(silo, key)

    def enrol(self, csr_pem: bytes, token: str, silo: str) -> bytes:
        """Have the operator decide; refuses at once what no operator could sign.

        Raises
        ------
        AnchorageError
            The request does not fit, is not answered yet, or was refused.
        """
        return self._ask("Enrol", csr_pem, silo, token)

    def renew(self, csr_pem: bytes, silo: str) -> bytes:
        """Have the operator decide, over the key that the member is known by or another one, which takes its place as soon as it is shown.

        Raises
        ------
        AnchorageError
            The request does not fit, is not answered yet, or was refused.
        """
        certificate = self._ask("Renew", csr_pem, silo, "")
        if not self.members.knows(
            silo, key_fingerprint(csr_pem)
        ):  # else it would be refused with the key that it changes to
            raise AnchorageError(
                identity.ENROLMENT_PENDING, f"the new key of silo {silo} is not in the list of members yet"
            )
        return certificate

    def _ask(self, kind: Kind, csr_pem: bytes, silo: str, token: str) -> bytes:
        uri = silo_uri(self._federation, silo)
        readable = _NAME.fullmatch(silo) is not None and len(silo) <= 63 and csr_pem.isascii()
        if not readable or SigningRequest.parse(csr_pem).uri != uri:
            raise AnchorageError(identity.REQUEST_REFUSED, f"the request does not ask for the name {uri[:128]!r}")
        return self.requests.ask(kind, silo, csr_pem, token)
