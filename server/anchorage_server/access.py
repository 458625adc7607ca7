"""Who the server is, and who may come: its TLS files, and the silos that documents and tokens, or a cluster's operator, let in."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from anchorage.api.base import NAME_PATTERN
from anchorage.api.errors import AnchorageError, identity
from anchorage.api.files import Study
from anchorage.api.regular_files import read_regular
from anchorage.engine.store.durable import storage_errors
from anchorage.transport.link import Clock
from anchorage.transport.pki import (
    Authority,
    Credentials,
    Denials,
    Registrar,
    SigningRequest,
    SiloKeys,
    Tokens,
    key_fingerprint,
    load_key,
    new_key,
    server_uri,
    silo_uri,
)
from anchorage.transport.pki.authority import PREVIOUS_KEY
from anchorage.transport.pki.credentials import read_certificates
from anchorage.transport.secure_aggregation.member import Keys
from anchorage_server.config import ServerConfig
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


@dataclass(frozen=True, slots=True)
class AccessControl:
    """What the ports need to know of who they are and who may come.

    Parameters
    ----------
    federation : str
        The federation's name.
    credentials : Credentials
        The server's TLS files.
    admission : Admission
        Who is let in.
    """

    federation: str
    credentials: Credentials
    admission: Admission

    def check_keys(self, clock: Clock, task: str, silo: str, keys: Keys) -> None:
        """Check that keys of secure aggregation are this silo's for this task, as every other silo does.

        Raises
        ------
        ProtocolError
            They are not.
        AnchorageError
            The authority's certificate cannot be read.
        """
        keys.check(self.federation, task, silo, read_certificates(self.credentials.authority), clock.now())


def open_access(config: ServerConfig, study: Study, clock: Clock) -> AccessControl:
    """Get the server's certificate, and know who decides on silos.

    Raises
    ------
    AnchorageError
        The authority or the TLS files cannot be used, or are another federation's; a file cannot be read or written.
    """
    name = study.federation.metadata.name
    authority = None if config.authority is None else own_authority(config.authority, name)
    if authority is not None:
        credentials = obtain_credentials(config.state / "identity", authority.former(), config.names)
    else:
        assert config.tls is not None, "the configuration names one of them"
        credentials = ready_credentials(config.tls, name)
    if config.control_listen is not None or authority is None:
        return AccessControl(name, credentials, ClusterAdmission(name, config.state, clock))
    keys = SiloKeys(authority.folder)
    registrar = Registrar(authority, Tokens(authority.folder / "tokens"), keys)
    listed = tuple(silo.metadata.name for silo in study.silos)
    return AccessControl(name, credentials, DocumentAdmission(listed, registrar, Denials(authority.folder), keys))


def obtain_credentials(folder: Path, authority: Authority, names: Sequence[str]) -> Credentials:
    """Return the server's TLS files; key and certificate are made where there are none that fit.

    Parameters
    ----------
    folder : Path
        Where the files lie; made (mode 0700) when missing.
    authority : Authority
        Signs the request.
    names : sequence of str
        Host names and addresses by which silos call the server.

    Raises
    ------
    AnchorageError
        The folder is not writable, or the authority refuses.
    """
    credentials = Credentials(folder / "server.key", folder / "server.pem", authority.certificate_path)
    uri = server_uri(authority.federation)
    with storage_errors("keep the server's key", folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = load_key(credentials.key) if credentials.key.exists() else new_key(credentials.key)
        credentials.save_certificate(authority.issue_server(SigningRequest.make(key, uri), names))
    credentials.check(uri, time.time)
    return credentials


def authority_files(folder: Path) -> Callable[[], tuple[bytes, ...]]:
    """Return what tells the present content of an authority's public files, and whether another one takes its place."""

    def content() -> tuple[bytes, ...]:
        try:
            return read_regular(folder / "ca.pem"), str((folder / PREVIOUS_KEY).exists()).encode()
        except OSError:
            return ()

    return content


def own_authority(folder: Path, federation: str) -> Authority:
    """Open the authority in a folder beside the server.

    Raises
    ------
    AnchorageError
        There is none, it is damaged, or another federation's.
    """
    authority = Authority.load(folder)
    if authority.federation != federation:
        message = f"{folder} is the authority of federation {authority.federation!r}, the file's is {federation!r}"
        raise AnchorageError(identity.AUTHORITY_UNUSABLE, message)
    return authority


def ready_credentials(folder: Path, federation: str) -> Credentials:
    """Return the TLS files that somebody else made and renews: ``tls.key``, ``tls.crt`` and ``ca.pem`` in a folder.

    Raises
    ------
    AnchorageError
        One is missing or cannot be read, they do not belong together, are not this federation's server's, or are not valid now.
    """
    credentials = Credentials(folder / "tls.key", folder / "tls.crt", folder / "ca.pem")
    credentials.check(server_uri(federation), time.time)
    return credentials
