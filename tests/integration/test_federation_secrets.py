"""What crosses the wire in a whole federation, read in clear: certificates and models, never a key."""

from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from federation_documents import WEIGHTS, null_study
from federation_processes import Site
from federation_wiretap import Wiretap, inward, outward


def forms_of(key: Path) -> list[bytes]:
    """Return every form in which a private key could travel: lines of its PEM, DER (PKCS 8 and SEC 1), the bare number."""
    private = load_pem_private_key(key.read_bytes(), None)
    number = private.private_numbers().private_value.to_bytes(32, "big")
    ders = [
        private.private_bytes(Encoding.DER, form, NoEncryption())
        for form in (PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL)
    ]
    first, second, *_ = key.read_bytes().splitlines()[1:-1]  # the others hold the public key, which the request is over
    return [first, second, *ders, number]


def test_no_key_crosses_the_wire(tmp_path: Path) -> None:
    taps: list[Wiretap] = []
    with Site(null_study(tmp_path, silos=1)) as site:
        server = site.server()
        silo, authority = site.workdir.silo("a") / "state", site.authority.certificate_path
        identity = inward(
            site.workdir.server / "identity" / "server.key", site.workdir.server / "identity" / "server.pem"
        )
        try:
            enrolment = Wiretap(site.endpoints["enrolment"], identity, lambda: outward(authority))
            taps.append(enrolment)
            link = Wiretap(
                site.endpoints["silos"], identity, lambda: outward(authority, silo / "silo.key", silo / "silo.crt")
            )
            taps.append(link)
            site.endpoints |= {"enrolment": enrolment.address, "silos": link.address}
            site.finish(server, site.null_agent("a"))
        finally:
            for tap in taps:
                tap.close()
    token = (site.workdir.silo("a") / "token").read_bytes()
    assert token in enrolment.up and b"BEGIN CERTIFICATE REQUEST" in enrolment.up
    assert b"BEGIN CERTIFICATE-" in enrolment.down
    assert WEIGHTS["encoder.weight"].tobytes()[:1000] in link.down
    assert token not in link.up
    crossed = [bytes(record) for tap in taps for record in (tap.up, tap.down)]
    keys = sorted(site.workdir.root.rglob("*.key"))
    assert len(keys) == 4  # authority, server, silo, and that of its audit log
    for key in keys:
        for form in forms_of(key):
            assert len(form) >= 32 and not any(form in record for record in crossed), key
    assert not any(b"PRIVATE KEY" in record for record in crossed)
