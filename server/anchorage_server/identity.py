"""The server's key and certificate, got like everyone's: a key made here, a signing request, an answer from the authority."""

import time
from collections.abc import Sequence
from pathlib import Path

from anchorage.pki import Authority, Credentials, SigningRequest, load_key, new_key, server_uri
from anchorage_server.durable import storage_errors


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
