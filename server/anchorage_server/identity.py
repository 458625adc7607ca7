"""The server's key and certificate: made here and signed by the authority in a folder beside, or ready-made by a cluster's operator."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.identity import AUTHORITY_UNUSABLE
from anchorage.engine.store.durable import storage_errors
from anchorage.transport.pki import Authority, Credentials, SigningRequest, load_key, new_key, server_uri
from anchorage.transport.pki.authority import PREVIOUS_KEY


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
            return (folder / "ca.pem").read_bytes(), str((folder / PREVIOUS_KEY).exists()).encode()
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
        found = f"{folder} is the authority of federation {authority.federation!r}, the file's is {federation!r}"
        raise AnchorageError(AUTHORITY_UNUSABLE, found)
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
