"""A new authority in the place of a federation's in a cluster: both are trusted, everybody follows, the former one goes."""

import pytest
from cryptography import x509
from fake_api.operator_world import DERM, SETTINGS, World

from anchorage.transport.kube.resources import NEW_AUTHORITY
from anchorage.transport.pki import certificate_of, make_key
from anchorage.transport.pki.authority import PREVIOUS_KEY
from anchorage.transport.pki.credentials import ENDORSEMENTS, certificates_of, issuer_of
from anchorage.transport.pki.succession import accepted_authorities
from anchorage_operator.certificates import SHOWN_SECONDS
from anchorage_operator.secret_facts import decode_value
from anchorage_operator.settings import AuthorityIssuer

NOBODY = "two authorities are trusted; without a certificate of the new one: a, far"


@pytest.fixture
def world():
    world = World()
    world.federation()
    world.silo("a", part=0)
    world.silo("far")
    world.invite("far", "letter")
    world.settle()
    world.run_server()
    world.approve("far")
    world.settle(3)
    world.ask("a", decode_value(world.store.get("secrets", "study", "a-enrolment"), "token").decode())
    world.keys = {"far": world.ask("far", "letter")[1]}
    world.settle(4)
    assert {member.name for member in world.server.members_known} == {"a", "far"}
    return world


def annotate(world, value):
    metadata = {"annotations": {NEW_AUTHORITY: value}}
    world.api.patch("Federation", "study", "derm", {"metadata": metadata})


def authority(world):
    return world.store.get("secrets", "study", "derm-authority")


def trusted(world):
    return certificates_of(decode_value(authority(world), "ca.pem"), "ca.pem")


def shown(world) -> x509.Certificate:
    """The certificate that the server shows."""
    return certificate_of(decode_value(world.store.get("secrets", "study", "derm-server-tls"), "tls.crt"), "tls.crt")


def message(world):
    conditions = world.store.get("federations", "study", "derm")["status"]["conditions"]
    (condition,) = [each for each in conditions if each["type"] == "CertificatesValid"]
    return condition["status"], condition["message"]


def renew(world, silo, key=None):
    """Have a silo's certificate signed again and return it."""
    name, _ = world.ask(silo, key=key or make_key(), kind="Renew")
    world.settle(4)
    return certificate_of(world.answer(name)["certificate"].encode(), silo)


def test_without_being_asked_nothing_changes(world):
    before = authority(world)["data"]
    world.settle(20)
    assert authority(world)["data"] == before and PREVIOUS_KEY not in before


def test_both_are_trusted_and_the_former_one_signs_for_the_server(world):
    (old,) = trusted(world)
    annotate(world, "yes")
    world.settle(6)
    new, former = trusted(world)
    assert former == old and new != old
    assert issuer_of(shown(world), [old]) == old
    tls = world.store.get("secrets", "study", "derm-server-tls")
    authorities = accepted_authorities(
        [old], decode_value(tls, "ca.pem"), decode_value(tls, ENDORSEMENTS), "derm", world.clock.now
    )
    assert certificates_of(authorities, "taken") == [new, former], "a silo that knows the former one takes both"
    ordinary = world.store.get("configmaps", "study", "derm-authority")["data"]["ca.pem"]
    assert ordinary.encode() == decode_value(authority(world), "ca.pem")
    assert message(world) == ("True", NOBODY)
    data = authority(world)["data"]
    world.settle(20)
    assert authority(world)["data"] == data, "one new authority, not one at each look"


def test_the_server_s_pod_gets_whatever_comes_into_the_secret(world):
    pod = world.store.get("statefulsets", "study", "derm-server")["spec"]["template"]["spec"]
    (secret,) = [each["secret"] for each in pod["volumes"] if each["name"] == "tls"]
    assert secret["secretName"] == "derm-server-tls" and "items" not in secret


def test_no_agent_is_made_anew_or_restarted(world):
    before = world.store.get("statefulsets", "study", "a-silo")
    annotate(world, "yes")
    world.settle(6)
    renew(world, "a"), renew(world, "far")
    annotate(world, None)
    world.settle(4)
    world.clock.advance(SHOWN_SECONDS)
    world.settle(6)
    assert len(trusted(world)) == 1
    after = world.store.get("statefulsets", "study", "a-silo")
    assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])


def test_who_enrols_gets_a_certificate_of_the_former_one_and_who_renews_of_the_new_one(world):
    annotate(world, "yes")
    world.settle(6)
    new, former = trusted(world)
    world.silo("late")
    world.invite("late", "another letter")
    world.approve("late")
    world.settle(3)
    name, key = world.ask("late", "another letter")
    world.settle(4)
    first = certificate_of(world.answer(name)["certificate"].encode(), "late")
    assert issuer_of(first, [new, former]) == former
    assert issuer_of(renew(world, "late", key), [new, former]) == new


def test_the_former_one_stays_while_an_approved_silo_needs_it(world):
    annotate(world, "yes")
    world.settle(6)
    renew(world, "a")
    annotate(world, None)
    world.settle(6)
    world.clock.advance(SHOWN_SECONDS)
    world.settle(6)
    assert len(trusted(world)) == 2
    assert message(world) == ("True", NOBODY.replace("a, far", "far"))
    world.approve("far", "False")
    world.settle(6)
    world.clock.advance(SHOWN_SECONDS)
    world.settle(6)
    assert len(trusted(world)) == 1, "a denied silo needs none"


def test_the_former_one_goes_when_the_server_shows_a_certificate_of_the_new_one(world):
    annotate(world, "yes")
    world.settle(6)
    new, former = trusted(world)
    renew(world, "a"), renew(world, "far")
    world.settle(4)
    assert message(world)[1].endswith("so go on with fedctl authority finish derm")
    assert issuer_of(shown(world), [former]) == former
    annotate(world, None)
    world.settle(2)
    assert issuer_of(shown(world), [new]) == new
    assert trusted(world) == [new, former], "the server may still show the certificate before"
    world.clock.advance(SHOWN_SECONDS)
    world.settle(6)
    assert trusted(world) == [new]
    assert not {PREVIOUS_KEY, ENDORSEMENTS} & authority(world)["data"].keys()
    tls = world.store.get("secrets", "study", "derm-server-tls")
    assert certificates_of(decode_value(tls, "ca.pem"), "ca.pem") == [new] and ENDORSEMENTS not in tls["data"]
    assert issuer_of(shown(world), [new]) == new


def test_it_can_be_done_again_and_after_a_restart_of_the_operator(world):
    bundles = []
    for _ in range(2):
        annotate(world, "yes")
        world.settle(6)
        world.start()
        renew(world, "a"), renew(world, "far")
        annotate(world, None)
        world.settle(4)
        world.start()
        world.clock.advance(SHOWN_SECONDS)
        world.settle(6)
        bundles += trusted(world)
    assert len(set(bundles)) == 2
    assert world.store.get("statefulsets", "study", "a-silo") is not None
    assert {member.name for member in world.server.members_known} == {"a", "far"}


def test_the_operator_reaches_the_server_all_the_while(world):
    annotate(world, "yes")
    world.settle(6)
    new, former = trusted(world)
    known = world.identity.operator_tls(DERM).get_ca_certs(binary_form=True)
    assert {x509.load_der_x509_certificate(each) for each in known} == {new, former}


def test_an_authority_of_an_issuer_stays(world):
    issuer = AuthorityIssuer(name="hospital-ca")
    other = World(SETTINGS.model_copy(update={"authority_issuer": issuer}))
    other.store, other.api = world.store, world.api
    other.server = world.server
    other.start()
    annotate(other, "yes")
    other.settle(6)
    assert len(trusted(other)) == 1
    assert "cert-manager" in message(other)[1]
