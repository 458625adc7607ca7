"""To which MLflow a federation's server sends the platform's credentials: to that of the platform, whatever a Federation names."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from anchorage.api.federation import FederationSpec
from anchorage_operator.names import owner_reference, server_labels, tracking_login_name
from anchorage_operator.planned import MakeTrackingLogin
from anchorage_operator.settings import OperatorSettings
from anchorage_operator.situation import Situation

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
    parts, wanted = _parts(uri), _parts(trusted)
    if parts is None or wanted is None:
        return False
    (*site, path), (*trusted_site, prefix) = parts, wanted
    return site == trusted_site and path[: len(prefix)] == prefix


def credentials_secret(spec: FederationSpec, federation: str, settings: OperatorSettings) -> str | None:
    """Return the Secret with the credentials for the MLflow that a federation sends to; None where the platform has none for that one.

    Parameters
    ----------
    spec : FederationSpec
        Names the MLflow, or leaves it to the platform.
    federation : str
        The federation's name.
    settings : OperatorSettings
        The platform's MLflow, and what it has for it.
    """
    uri, login = spec.tracking.uri or settings.tracking_uri or "", settings.tracking_login
    if settings.tracking_secret is not None and is_same_site(uri, settings.tracking_uri or ""):
        return settings.tracking_secret
    if login is not None and is_same_site(uri, login.uri):
        return tracking_login_name(federation)
    return None


def tracking_effects(situation: Situation) -> Iterator[MakeTrackingLogin]:
    """Yield the log-in to write: that of a server that sends to the chart's MLflow."""
    if situation.spec is not None and not has_credentials(situation, situation.spec):
        yield MakeTrackingLogin(owner_reference(situation.federation), server_labels(situation.observed.name))


def has_credentials(situation: Situation, spec: FederationSpec) -> bool:
    """Return whether what the operator itself writes of a server's credentials is there; a pod reads it when it starts."""
    name = situation.observed.name
    is_generated = credentials_secret(spec, name, situation.settings) == tracking_login_name(name)
    return situation.observed.has_tracking_login or not is_generated


def tracking_note(situation: Situation) -> str:
    """Say that credentials are withheld, or cannot be made, and what to do; empty where they are not."""
    spec, settings = situation.spec, situation.settings
    if spec is None:
        return ""
    if (why := situation.observed.certificates_undone) and not has_credentials(situation, spec):
        return f"the server waits for its log-in to MLflow: {why}"
    if spec.tracking.uri is None or (settings.tracking_secret is None and settings.tracking_login is None):
        return ""
    if credentials_secret(spec, situation.observed.name, settings) is not None:
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
