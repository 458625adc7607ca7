"""A cluster's certificates, and the kubeconfig files of those who hold them."""

import base64
import datetime
import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = datetime.timedelta(days=30)


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _name(common: str, organisation: str | None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation)] if organisation else []
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


class ClusterCertificates:
    """The cluster's authority, in a folder: `ca.crt`, and for every name that was asked for its `.crt` and `.key`."""

    def __init__(self, folder: Path, server: str) -> None:
        """
        Make the authority, and the key pair that signs service accounts' tokens (`sa.key`, `sa.pub`).

        Parameters
        ----------
        server
            The API server's URL, for kubeconfig files.
        """
        self.folder = folder
        self._server = server
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name("anchorage-test-cluster", None)
        builder = self._builder(self._subject, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._write("ca", self._key, builder.sign(self._key, hashes.SHA256()))
        accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (folder / "sa.key").write_bytes(_pem(accounts))
        public = serialization.PublicFormat.SubjectPublicKeyInfo
        (folder / "sa.pub").write_bytes(accounts.public_key().public_bytes(serialization.Encoding.PEM, public))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._subject).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - datetime.timedelta(minutes=5)).not_valid_after(now + LIFE)

    def _write(self, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        (self.folder / f"{name}.key").write_bytes(_pem(key))
        (self.folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _issue(self, name: str, subject: x509.Name, *extensions: x509.ExtensionType) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(subject, key.public_key())
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        self._write(name, key, builder.sign(self._key, hashes.SHA256()))

    def server(self, name: str, hosts: Sequence[str], addresses: Sequence[str]) -> None:
        """Write a certificate for a server of these host names and IP addresses."""
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        self._issue(name, _name(name, None), x509.SubjectAlternativeName(names), usage)

    def client(self, name: str, user: str, group: str | None, kubeconfig: Path) -> None:
        """Write a certificate for a user of this name and group, and its kubeconfig file (JSON, which is YAML)."""
        self._issue(name, _name(user, group), x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))

        def data(file: str) -> str:
            return base64.b64encode((self.folder / file).read_bytes()).decode()

        cluster = {"server": self._server, "certificate-authority-data": data("ca.crt")}
        user_data = {"client-certificate-data": data(f"{name}.crt"), "client-key-data": data(f"{name}.key")}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": cluster}],
            "users": [{"name": "user", "user": user_data}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "user"}}],
            "current-context": "local",
        }
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(json.dumps(document))
