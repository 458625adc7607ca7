"""Objects that somebody spoiled: what the operator makes anew, what it leaves alone and tells."""

from base64 import b64decode
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from anchorage.transport.kube.client import ApiError
from anchorage.transport.pki import certificate_of, key_to_pem, make_key, uris_of
from anchorage.transport.pki.keys import key_from_pem
from anchorage_operator.reconcile import IncompleteError
from anchorage_operator.secret_facts import decode_value, encode_data


def unusable_certificates(settled):
    """What may stand in the server's Secret and is of no use: without names, over another key, damaged, empty."""
    tls = settled.store.get("secrets", "study", "derm-server-tls")["data"]
    authority = settled.store.get("secrets", "study", "derm-authority")["data"]
    yield {"tls.crt": authority["ca.pem"].replace("\n", "")}
    yield {"tls.key": encode_data({"k": key_to_pem(make_key())})["k"]}
    yield {"tls.crt": tls["tls.crt"][:200]}
    yield {"tls.crt": nameless_certificate(tls["tls.key"])}
    yield {"tls.key": ""}


def nameless_certificate(key):
    private = key_from_pem(b64decode(key), "key")
    start, nobody = datetime.now(UTC), x509.Name([])
    builder = x509.CertificateBuilder(nobody, nobody, private.public_key(), 7, start, start + timedelta(days=9))
    pem = builder.sign(private, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return encode_data({"c": pem})["c"]


def test_a_certificate_that_no_server_can_use_is_made_anew(settled):
    for damage in unusable_certificates(settled):
        settled.store.patch("secrets", "study", "derm-server-tls", {"data": damage})
        settled.start()
        settled.settle(3)
        secret = settled.store.get("secrets", "study", "derm-server-tls")
        certificate = certificate_of(decode_value(secret, "tls.crt"), "tls.crt")
        assert uris_of(certificate) == ["anchorage://derm/server"], damage
        assert certificate.public_key() == key_from_pem(decode_value(secret, "tls.key"), "key").public_key()
    assert settled.condition("federations", "derm", "CertificatesValid") == ("True", "Valid")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("ca.key", b"no such thing", "ca.key cannot be read"),
        ("ca.pem", b"no such thing", "ca.pem cannot be read"),
        ("ca.pem", b"", "ca.pem is empty"),
        ("ca.key", key_to_pem(make_key()), "ca.key is not the key of the certificate in ca.pem"),
    ],
)
def test_a_damaged_authority_is_told_and_nothing_is_taken_from_the_silos(training, name, value, expected):
    names_before = training.names("statefulsets"), training.names("secrets")
    training.store.patch("secrets", "study", "derm-authority", {"data": encode_data({name: value})})
    training.start()
    training.settle(3)
    assert training.condition("federations", "derm", "CertificatesValid") == ("False", "AuthorityDamaged")
    assert training.condition("federations", "derm", "Ready") == ("False", "AuthorityDamaged")
    (ready,) = [
        each
        for each in training.store.get("federations", "study", "derm")["status"]["conditions"]
        if each["type"] == "Ready"
    ]
    assert expected in ready["message"] and "restore it from its backup" in ready["message"]
    assert (training.names("statefulsets"), training.names("secrets")) == names_before
    assert "restore" not in str(training.store.get("configmaps", "study", "derm-authority"))


def test_an_expired_authority_is_told_as_that(settled):
    settled.store.delete("secrets", "study", "derm-server-tls")
    settled.clock.advance(11 * 365 * 86_400.0)
    settled.start()
    settled.settle(2)
    assert settled.condition("federations", "derm", "CertificatesValid") == ("False", "CertificateExpired")


def test_why_a_certificate_cannot_be_written_is_told(settled):
    settled.store.delete("secrets", "study", "derm-server-tls")
    settled.start()

    def refuse(verb, kind, name):
        if (verb, name) == ("apply", "derm-server-tls"):
            raise ApiError(422, "Invalid", "the quota of Secrets is used up")

    settled.api.refuse = refuse
    for _ in range(2):
        with suppress(IncompleteError):
            settled.look()
    conditions = settled.store.get("federations", "study", "derm")["status"]["conditions"]
    (message,) = [each["message"] for each in conditions if each["type"] == "CertificatesValid"]
    assert message == "the certificates cannot be created: the quota of Secrets is used up"


def test_a_secret_of_somebody_else_is_told(world):
    world.store.create("secrets", "study", {"metadata": {"name": "derm-authority"}, "data": {}})
    with pytest.raises(ApiError, match="rename one of them"):
        world.look()
    assert world.condition("federations", "derm", "Ready") == ("False", "ReconcileFailed")


@pytest.mark.parametrize("text", ["a: [b", "\x00", "[" * 2000, "- 1", "spec: 3", "metadata: x"])
def test_a_configuration_that_somebody_spoiled_is_written_again(settled, text):
    settled.store.patch("configmaps", "study", "derm-server", {"data": {"federation.yaml": text}})
    settled.store.patch(
        "configmaps", "study", "a-silo", {"metadata": {"annotations": {"anchorage.dev/accepted-spec": text}}}
    )
    settled.look()
    assert "rounds: 20" in settled.store.get("configmaps", "study", "derm-server")["data"]["federation.yaml"]
