"""Names in certificates: URI subject alternative names of the form ``anchorage://<federation>/...``."""

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

_SCHEME = "anchorage://"


def authority_uri(federation: str) -> str:
    """Return the name of a federation's certificate authority."""
    return f"{_SCHEME}{federation}/authority"


def server_uri(federation: str) -> str:
    """Return the name of a federation's aggregation server."""
    return f"{_SCHEME}{federation}/server"


def operator_uri(federation: str) -> str:
    """Return the name under which a cluster's operator asks a federation's server."""
    return f"{_SCHEME}{federation}/operator"


def silo_uri(federation: str, silo: str) -> str:
    """Return the name of a silo of a federation."""
    return f"{_SCHEME}{federation}/silo/{silo}"


def silo_of(uris: list[str], federation: str) -> str | None:
    """Return the silo that a certificate's URI names stand for.

    Parameters
    ----------
    uris : list of str
        Every URI of the certificate's subject alternative names.
    federation : str
        The federation in which the silo must be a member.

    Returns
    -------
    str or None
        None where the certificate has not exactly one URI, or it is not a silo's of this federation.
    """
    prefix = silo_uri(federation, "")
    if len(uris) != 1 or not uris[0].startswith(prefix):
        return None
    silo = uris[0].removeprefix(prefix)
    return silo if silo and "/" not in silo else None


UNREADABLE = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What a certificate or a request with a damaged byte raises, some of it only when one of its parts is asked for."""


def uris_of(holder: x509.Certificate | x509.CertificateSigningRequest) -> list[str]:
    """Return the URIs among the subject alternative names of a certificate or a signing request."""
    try:
        names = holder.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)
