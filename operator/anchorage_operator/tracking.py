"""To which MLflow a federation's server sends the platform's credentials: to that of the platform, whatever a Federation names."""

import re
from urllib.parse import urlsplit

from anchorage.api.federation import FederationSpec
from anchorage_operator.settings import OperatorSettings

_PLAIN = re.compile(
    r"https?://([a-z0-9]([-a-z0-9.]*[a-z0-9])?\.?|\[[0-9a-f:.]+\])(:[0-9]{1,5})?(/[\w.~-]*)*", re.ASCII | re.IGNORECASE
)
"""Addresses that every parser takes apart in the same way."""
_PORTS = {"http": 80, "https": 443}


def is_same_site(uri: str, trusted: str) -> bool:
    """Return whether an address is the trusted one or below it: the same scheme, host and port, and its path is there or below.

    Parameters
    ----------
    uri : str
        As a Federation names it. One that has more than scheme, host, port and a plain path (a query, ``%2e``, a backslash, …) is another.
    trusted : str
        The address that the credentials were set with.
    """
    found, wanted = _parts(uri), _parts(trusted)
    if found is None or wanted is None:
        return False
    (*site, path), (*own, prefix) = found, wanted
    return site == own and path[: len(prefix)] == prefix


def credentials_withheld(spec: FederationSpec, settings: OperatorSettings) -> bool:
    """Return whether the platform has credentials for MLflow, and the Federation names another one, which does not get them."""
    own = spec.tracking.uri
    return (
        settings.tracking_secret is not None and own is not None and not is_same_site(own, settings.tracking_uri or "")
    )


def tracking_note(spec: FederationSpec, settings: OperatorSettings) -> str:
    """Say that credentials are withheld, and what to do; empty where they are not."""
    if not credentials_withheld(spec, settings):
        return ""
    return (
        "spec.tracking.uri is not the platform's MLflow, so the server has none of its credentials; leave the field out to use the platform's, "
        "or have the platform let documents set env (podOverrides) for credentials of your own"
    )


def _parts(uri: str) -> tuple[str, str, int, tuple[str, ...]] | None:
    """Take an address apart; None where it is not plain."""
    if not _PLAIN.fullmatch(uri):
        return None
    split = urlsplit(uri.lower())
    segments = tuple(part for part in urlsplit(uri).path.rstrip("/").split("/")[1:])
    if any(part in ("", ".", "..") for part in segments):
        return None
    try:
        port = split.port or _PORTS[split.scheme]
    except ValueError:
        return None
    return split.scheme, (split.hostname or "").rstrip("."), port, segments
