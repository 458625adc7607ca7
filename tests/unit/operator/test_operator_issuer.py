"""Authorities that cert-manager's issuers certify: the key stays here, and nothing starts before there is a certificate that fits."""

import dataclasses

import pytest
from cert_manager import ROOT, Issuer, conditions
from fake_api.operator_world import DERM, SETTINGS, World

from anchorage.api.errors import cluster
from anchorage.transport.kube.client import ApiError
from anchorage.transport.pki import certificate_of, key_to_pem, make_key
from anchorage.transport.pki.authority import Authority
from anchorage_operator.secret_facts import decode_value
from anchorage_operator.settings import AuthorityIssuer

ISSUED = SETTINGS.model_copy(update={"authority_issuer": AuthorityIssuer(name="platform", kind="ClusterIssuer")})
RETRY = "`kubectl delete certificaterequest derm-authority` asks again"


@pytest.fixture
def world():
    world = World(ISSUED)
    world.federation()
    world.silo("a", part=0)
    world.settle()
    return world


def request_of(world):
    return world.store.get("certificaterequests", "study", "derm-authority")


def answer(world, status):
    world.store.patch("certificaterequests", "study", "derm-authority", {"status": status})
    world.settle()


def certificates_valid(world):
    status = world.store.get("federations", "study", "derm")["status"]
    return next(each for each in status["conditions"] if each["type"] == "CertificatesValid")


def authority(world):
    return world.store.get("secrets", "study", "derm-authority")["data"]


def test_the_issuer_is_asked_for_a_certificate_over_a_key_that_stays(world):
    asked = request_of(world)
    assert asked["spec"]["issuerRef"] == {"name": "platform", "kind": "ClusterIssuer", "group": "cert-manager.io"}
    assert asked["spec"]["isCA"] is True and asked["spec"]["usages"] == ["cert sign", "crl sign"]
    assert asked["metadata"]["ownerReferences"][0]["kind"] == "Federation"
    assert list(authority(world)) == ["ca.key"]
    assert world.condition("federations", "derm", "CertificatesValid") == ("False", "Pending")
    assert "ClusterIssuer platform has not signed the authority's key yet" in certificates_valid(world)["message"]
    assert world.condition("federations", "derm", "Ready") == ("False", "Pending")
    assert not world.names("statefulsets")


def test_nothing_is_repeated_while_the_issuer_takes_its_time(world):
    world.settle()
    world.look()
    assert world.api.writes() == []


def test_with_its_certificate_the_federation_starts(world):
    answer(world, Issuer().answer(request_of(world)))
    assert world.condition("federations", "derm", "CertificatesValid") == ("True", "Valid")
    assert world.names("statefulsets") == {"derm-server", "a-silo"}
    assert certificate_of(decode_value({"data": authority(world)}, "ca.pem"), "ca.pem").issuer == ROOT
    server = world.store.get("secrets", "study", "derm-server-tls")
    of_the_server = certificate_of(decode_value(server, "tls.crt"), "tls.crt")
    of_the_server.verify_directly_issued_by(certificate_of(decode_value(server, "ca.pem"), "ca.pem"))


def test_the_issuer_s_own_certificates_behind_it_are_not_trusted(world):
    """What else the platform's root signs must not count as this federation's."""
    issuer = Issuer()
    status = issuer.answer(request_of(world))
    other = issuer.sign(Authority.signing_request("other", key_to_pem(make_key())))
    chain = decode_value({"data": status}, "certificate") + other
    answer(world, status | {"certificate": Issuer.encoded(chain)})
    assert decode_value({"data": authority(world)}, "ca.pem").count(b"BEGIN CERTIFICATE") == 1


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ({"Denied": ("True", "policy", "no CAs\nfor\tstudies")}, "no CAs for studies"),
        ({"InvalidRequest": ("True", "x", "isCA is not allowed")}, "isCA is not allowed"),
        ({"Ready": ("False", "Failed", "the vault is sealed")}, "the vault is sealed"),
    ],
    ids=["denied", "invalid", "failed"],
)
def test_a_refusal_is_told_and_can_be_asked_again(world, expected, words):
    answer(world, conditions(**expected))
    assert world.condition("federations", "derm", "Ready") == ("False", "AuthorityNotIssued")
    assert certificates_valid(world)["message"].endswith(f"{words}; {RETRY}")
    world.store.delete("certificaterequests", "study", "derm-authority")
    world.settle()
    assert "status" not in request_of(world)
    answer(world, Issuer().answer(request_of(world)))
    assert world.condition("federations", "derm", "CertificatesValid") == ("True", "Valid")


def test_what_does_not_fit_is_not_taken(world):
    key, asked = key_to_pem(make_key()), request_of(world)
    for status in (
        Issuer().answer(asked, authority=False),
        {"certificate": Issuer.encoded(Issuer().sign(Authority.signing_request("derm", key)))},
        {"certificate": "AAAA"},
    ):
        answer(world, status)
        assert world.condition("federations", "derm", "CertificatesValid") == ("False", "AuthorityNotIssued")
        assert "cannot be used" in certificates_valid(world)["message"]
        assert certificates_valid(world)["message"].endswith(RETRY)
        assert list(authority(world)) == ["ca.key"]


@pytest.mark.parametrize(
    ("status", "failure"),
    [(403, cluster.CLUSTER_FORBIDDEN), (404, cluster.RESOURCES_NOT_INSTALLED)],
    ids=["no right", "no cert-manager"],
)
def test_a_cluster_without_cert_manager_says_what_to_do(status, failure):
    world = World(ISSUED)

    def refuse(verb, kind, name):
        if kind == "CertificateRequest":
            raise ApiError(status, "Reason", "may not get certificaterequests.cert-manager.io", failure=failure)

    world.api.refuse = refuse
    world.federation()
    world.settle()
    assert world.condition("federations", "derm", "Ready") == ("False", "AuthorityNotIssued")
    message = certificates_valid(world)["message"]
    assert "certificaterequests.cert-manager.io" in message and "authority.issuerRef.name" in message
    world.api.refuse = lambda *call: None
    world.settle()
    assert request_of(world)


def test_an_authority_that_is_there_stays_when_an_issuer_is_named():
    world = World()
    world.federation()
    world.settle()
    before = authority(world)
    world.reconciler = dataclasses.replace(world.reconciler, settings=ISSUED)
    world.settle()
    assert authority(world) == before and not world.names("certificaterequests")
    assert world.reconciler.reconcile(DERM) is not None
