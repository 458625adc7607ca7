"""An authority that lies in memory, the operator's certificate, fingerprints of keys."""

import hashlib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from anchorage.api.errors import AnchorageError, identity
from anchorage.transport.pki import (
    Authority,
    SigningRequest,
    key_fingerprint,
    key_from_pem,
    key_to_pem,
    make_key,
    operator_uri,
    server_uri,
    silo_uri,
    uris_of,
)


def test_an_authority_goes_through_bytes() -> None:
    made = Authority.make("derm")
    reloaded = Authority.from_pem("derm", made.key_pem, made.certificate_pem)
    key = make_key()
    pem = reloaded.issue_silo(SigningRequest.make(key, silo_uri("derm", "a")), "a")
    root = x509.load_pem_x509_certificate(made.certificate_pem)
    x509.load_pem_x509_certificate(pem).verify_directly_issued_by(root)
    assert reloaded.expires == made.expires > 0
    with pytest.raises(ValueError, match="no folder"):
        _ = reloaded.folder


def test_an_authority_in_a_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    made = Authority.create(tmp_path / "authority", "derm")
    assert made.certificate_path.read_bytes() == made.certificate_pem
    assert (made.folder / "ca.key").read_bytes() == made.key_pem
    assert Authority.load(made.folder).certificate_pem == made.certificate_pem


@pytest.mark.parametrize("wrong", ["federation", "key", "certificate", "no key", "no certificate"])
def test_bytes_that_are_not_one_federations_authority_are_refused(wrong: str) -> None:
    made, other = Authority.make("derm"), Authority.make("derm")
    name = "lung" if wrong == "federation" else "derm"
    key = {"key": other.key_pem, "no key": b"rubbish"}.get(wrong, made.key_pem)
    certificate = {"certificate": other.certificate_pem, "no certificate": b"rubbish"}.get(wrong, made.certificate_pem)
    with pytest.raises(AnchorageError) as caught:
        Authority.from_pem(name, key, certificate)
    assert caught.value.failure is identity.AUTHORITY_UNUSABLE
    assert "rubbish" not in caught.value.message


def test_the_operators_certificate_says_what_it_is_for() -> None:
    authority, key = Authority.make("derm"), make_key()
    certificate = x509.load_pem_x509_certificate(
        authority.issue_operator(SigningRequest.make(key, operator_uri("derm")))
    )
    assert uris_of(certificate) == ["anchorage://derm/operator"]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]


@pytest.mark.parametrize("uri", [server_uri("derm"), silo_uri("derm", "operator"), operator_uri("lung")])
def test_nobody_else_gets_the_operators_certificate(uri: str) -> None:
    with pytest.raises(AnchorageError) as caught:
        Authority.make("derm").issue_operator(SigningRequest.make(make_key(), uri))
    assert caught.value.failure is identity.REQUEST_REFUSED


def test_a_key_has_one_fingerprint_in_request_and_certificate() -> None:
    authority, key = Authority.make("derm"), make_key()
    request = SigningRequest.make(key, silo_uri("derm", "a"))
    der = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    expected = hashlib.sha256(der).hexdigest()
    assert key_fingerprint(request) == key_fingerprint(authority.issue_silo(request, "a")) == expected
    assert key_fingerprint(SigningRequest.make(make_key(), silo_uri("derm", "a"))) != expected


@pytest.mark.parametrize("pem", [b"", b"rubbish", b"-----BEGIN CERTIFICATE REQUEST-----\nAA\n", b"\xff\x00"])
def test_what_has_no_key_has_no_fingerprint(pem: bytes) -> None:
    with pytest.raises(AnchorageError) as caught:
        key_fingerprint(pem)
    assert caught.value.failure is identity.CREDENTIALS_UNUSABLE


def test_a_key_goes_through_bytes() -> None:
    key = make_key()
    assert key_to_pem(key_from_pem(key_to_pem(key), "the key")) == key_to_pem(key)
    with pytest.raises(AnchorageError, match="the key"):
        key_from_pem(b"rubbish", "the key")
