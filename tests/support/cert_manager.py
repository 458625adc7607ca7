"""A double of cert-manager's issuers: it answers CertificateRequests, as an issuer that is an authority with a root of its own does."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from anchorage.transport.pki import make_key

ROOT = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root of the platform")])


class Issuer:
    """Signs what it is asked to."""

    def __init__(self) -> None:
        self.key = make_key()

    def sign(self, request_pem: bytes, *, authority: bool = True, days: int = 3650) -> bytes:
        """Return the certificate (PEM) that a signing request asks for."""
        request, now = x509.load_pem_x509_csr(request_pem), datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(ROOT)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        for extension in request.extensions:
            builder = builder.add_extension(extension.value, critical=extension.critical)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def answer(self, request: Mapping[str, Any], **how: Any) -> dict[str, Any]:
        """Return the status of a CertificateRequest that is granted."""
        certificate = self.sign(b64decode(request["spec"]["request"]), **{"authority": request["spec"]["isCA"], **how})
        return {"certificate": self.encoded(certificate), **conditions(Ready=("True", "Issued", "fetched"))}

    @staticmethod
    def encoded(certificate: bytes) -> str:
        """Return a certificate as a status has it."""
        return b64encode(certificate).decode()


def conditions(**of: tuple[str, str, str]) -> dict[str, Any]:
    """Return a status with conditions: status, reason and message by type."""
    names = ("status", "reason", "message")
    return {"conditions": [{"type": kind, **dict(zip(names, values, strict=True))} for kind, values in of.items()]}
