"""A new certificate authority in the place of another: both are trusted until every silo has a certificate of the new one.

In the authority's folder, or Secret in a cluster, ``ca.pem`` then has both certificates, the new one first, and ``ca.key`` the new key, which
renews silos' certificates. ``previous.key`` still signs for the server and for silos that enrol, who could not trust the new one yet, and
``endorsements.pem`` has the new key certified by the old one, by which a silo comes to trust it. In a folder each step leaves files that fit, so
that a crash in between leaves the one authority or both.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from anchorage.api.errors import AnchorageError, identity
from anchorage.transport.files import write_atomically
from anchorage.transport.pki.authority import PREVIOUS_KEY, Authority
from anchorage.transport.pki.credentials import ENDORSEMENTS, certificates_of, issuer_of
from anchorage.transport.pki.identity import authority_uri, uris_of

MOST_AUTHORITIES = 4


def introduce_authority(folder: Path, now: Callable[[], float] = time.time) -> Authority:
    """Make a new authority beside the one in a folder, and return it.

    Raises
    ------
    AnchorageError
        Another one is being introduced, or the folder cannot be read or written.
    """
    old = Authority.load(folder, now=now)
    if old.former().certificate_pem != old.certificate_pem:
        detail = f"{folder} has a new authority already; finish that first"
        raise AnchorageError(identity.AUTHORITY_UNUSABLE, detail)
    try:
        for name, content in succession_files(old, now).items():
            mode = 0o600 if name.endswith(".key") else 0o644
            write_atomically(folder / name, content, mode=mode, durable=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return Authority.load(folder, now=now)


def succession_files(old: Authority, now: Callable[[], float] = time.time) -> dict[str, bytes]:
    """Make a new authority, and return what its folder or Secret then holds, in the order in which files are to be written."""
    made = Authority.make(old.federation, now=now)
    return {
        ENDORSEMENTS: old.endorse(made),
        PREVIOUS_KEY: old.key_pem,
        "ca.pem": made.certificate_pem + old.certificate_pem,
        "ca.key": made.key_pem,
    }


def drop_previous_authority(folder: Path, now: Callable[[], float] = time.time) -> None:
    """Trust the new authority alone; whoever has no certificate of it is shut out.

    Raises
    ------
    AnchorageError
        No new one was introduced, or the folder cannot be read or written.
    """
    new = Authority.load(folder, now=now)
    if not (folder / PREVIOUS_KEY).exists():
        raise AnchorageError(identity.AUTHORITY_UNUSABLE, f"{folder} has one authority; introduce a new one first")
    try:
        write_atomically(folder / "ca.pem", new.certificate_pem, mode=0o644, durable=True)
        for name in (PREVIOUS_KEY, ENDORSEMENTS):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error


def accepted_authorities(
    trusted: Sequence[x509.Certificate], offered: bytes, endorsements: bytes, federation: str, now: float
) -> bytes:
    """Return the authorities that a server offers, PEM, where each is one that is trusted already, or endorsed by such a one.

    Parameters
    ----------
    trusted : sequence of x509.Certificate
        Who is trusted now.
    offered, endorsements : bytes
        Certificates of authorities, and of their keys by others, PEM; the latter may be empty.
    federation : str
        Whose authorities they must be.
    now : float
        Seconds since the epoch.

    Raises
    ------
    AnchorageError
        One of them is neither, or not valid now.
    """
    certificates = certificates_of(offered, "the server's authorities")
    by_others = certificates_of(endorsements, "the endorsements") if endorsements else []
    if len(certificates) > MOST_AUTHORITIES or len(by_others) > MOST_AUTHORITIES:
        raise _unacceptable(f"it offers {len(certificates)} authorities, at most {MOST_AUTHORITIES} are taken")
    vouched = [each.public_key() for each in by_others if issuer_of(each, trusted) is not None]
    for each in certificates:
        known = each in trusted or (each.public_key() in vouched and issuer_of(each, [each]) is not None)
        if not known or uris_of(each) != [authority_uri(federation)]:
            raise _unacceptable("it offers an authority that none of the present ones endorses")
        if not each.not_valid_before_utc.timestamp() <= now <= each.not_valid_after_utc.timestamp():
            raise _unacceptable("it offers an authority that is not valid now")
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def _unacceptable(detail: str) -> AnchorageError:
    return AnchorageError(
        identity.CREDENTIALS_UNUSABLE, f"what the server says of its authority is not taken: {detail}"
    )


def _unwritable(folder: Path, error: OSError) -> AnchorageError:
    return AnchorageError(identity.AUTHORITY_UNUSABLE, f"{folder} cannot be written: {error.strerror}")
