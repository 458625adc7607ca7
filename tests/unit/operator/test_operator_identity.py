"""Authorities, certificates and invitations: made once, kept in Secrets, and never signed for two keys with one token."""

import hashlib
import ssl
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from fake_api.clock import Clock
from fake_api.memory import StoreApi

from anchorage.api.errors import AnchorageError
from anchorage.transport.kube.client import ApiError
from anchorage.transport.pki import (
    Authority,
    SigningRequest,
    certificate_of,
    key_fingerprint,
    make_key,
    silo_uri,
    uris_of,
)
from anchorage_operator.cache import Key
from anchorage_operator.identity import OPERATOR_VALID, Identity, InvitationChangedError
from anchorage_operator.planned import MakeAuthority, MakeInvitation, MakeServerCertificate, OwnAuthority, Sign
from anchorage_operator.secret_facts import SecretFacts, decode_value, encode_data

DERM = Key("ns", "derm")
LABELS = {"anchorage.dev/federation": "derm"}
OWNER = {"apiVersion": "anchorage.dev/v1alpha1", "kind": "Federation", "name": "derm", "uid": "u", "controller": True}
SILO = {"apiVersion": "anchorage.dev/v1alpha1", "kind": "Silo", "name": "a", "uid": "s", "controller": True}
NOW = 1_800_000_000.0


@pytest.fixture
def clock():
    return Clock(NOW)


@pytest.fixture
def api():
    return StoreApi()


@pytest.fixture
def facts(api, clock):
    return SecretFacts(api, clock)


@pytest.fixture
def identity(api, facts, clock):
    return Identity(api, facts, clock)


@pytest.fixture
def authority(identity, api):
    identity.make_authority(DERM, MakeAuthority(None, LABELS))
    secret = api.store.get("secrets", "ns", "derm-authority")
    return Authority.from_pem("derm", decode_value(secret, "ca.key"), decode_value(secret, "ca.pem"), now=lambda: NOW)


def invite(api, silo="a", token="secret-token", expires="2030-01-01T00:00:00Z", **more):
    values = {"hash": hashlib.sha256(token.encode()).hexdigest(), "expires": expires, **more}
    body = {"metadata": {"name": f"{silo}-enrolment", "labels": LABELS}, "data": encode_data(values)}
    api.store.create("secrets", "ns", body)


def a_request(silo="a", federation="derm"):
    csr = SigningRequest.make(make_key(), silo_uri(federation, silo)).decode()
    return Sign(request="r", silo=silo, csr=csr, key=key_fingerprint(csr.encode()), owner=SILO)


def test_an_authority_is_made_once(identity, facts, api, authority):
    identity.make_authority(DERM, MakeAuthority(None, LABELS))
    secret = api.store.get("secrets", "ns", "derm-authority")
    assert decode_value(secret, "ca.pem") == authority.certificate_pem
    known = facts.authority(DERM, "u", 60.0)
    assert known.certificate.encode() == authority.certificate_pem
    assert (known.not_after, known.owned) == (authority.expires, False)


def test_who_owns_the_authority_can_be_changed_both_ways(identity, facts, authority):
    identity.own_authority(DERM, OwnAuthority(OWNER, LABELS))
    assert facts.authority(DERM, "u", 60.0).owned
    identity.own_authority(DERM, OwnAuthority(None, LABELS))
    assert not facts.authority(DERM, "u", 60.0).owned


def test_nobody_else_prunes_the_authority(identity, facts, api, authority):
    """Argo CD prunes what has no owner and the label of one of its applications."""
    older = {"metadata": {"labels": {"app.kubernetes.io/instance": "derm", "team": "skin"}}}
    api.store.patch("secrets", "ns", "derm-authority", older)
    assert not facts.authority(DERM, "u", 0.0).is_retained
    identity.own_authority(DERM, OwnAuthority(None, LABELS))
    assert facts.authority(DERM, "u", 60.0).is_retained
    metadata = api.store.get("secrets", "ns", "derm-authority")["metadata"]
    assert metadata["annotations"] == {"argocd.argoproj.io/sync-options": "Prune=false"}
    assert metadata["labels"] == {**LABELS, "team": "skin"}


def test_the_server_s_certificate_is_over_its_names_by_the_authority(identity, facts, api, authority):
    names = ("derm-server.ns.svc", "10.0.0.7")
    identity.make_server_certificate(DERM, MakeServerCertificate(names, OWNER, LABELS))
    secret = api.store.get("secrets", "ns", "derm-server-tls")
    certificate = certificate_of(decode_value(secret, "tls.crt"), "tls.crt")
    certificate.verify_directly_issued_by(certificate_of(authority.certificate_pem, "ca.pem"))
    assert uris_of(certificate) == ["anchorage://derm/server"]
    assert secret["metadata"]["ownerReferences"] == [OWNER]
    known = facts.server_certificate(DERM, "u", 60.0)
    assert known.names == names and known.authority.encode() == authority.certificate_pem
    assert known.not_before < NOW < known.not_after


def test_without_an_authority_there_is_no_certificate(identity):
    with pytest.raises(AnchorageError, match="derm-authority"):
        identity.make_server_certificate(DERM, MakeServerCertificate(("a",), OWNER, LABELS))


def test_an_invitation_holds_a_token_and_its_hash(identity, facts, api):
    identity.make_invitation(DERM, MakeInvitation("a", NOW + 600, SILO, LABELS))
    secret = api.store.get("secrets", "ns", "a-enrolment")
    token = decode_value(secret, "token")
    known = facts.invitation("ns", "a", "s", 60.0)
    assert known.hash == hashlib.sha256(token).hexdigest() and len(token) >= 43
    assert (known.expires, known.key, known.has_token) == (NOW + 600, "", True)


def test_a_new_invitation_forgets_the_old_key(identity, facts, api):
    invite(api, key="f" * 64)
    identity.make_invitation(DERM, MakeInvitation("a", NOW + 600, SILO, LABELS))
    assert facts.invitation("ns", "a", "s", 60.0).key == ""


def test_a_signature_binds_the_token_to_the_key_first(identity, facts, api, authority):
    invite(api)
    effect = a_request()
    pem = identity.sign(DERM, effect, facts.invitation("ns", "a", "s", 60.0))
    certificate = certificate_of(pem, "silo")
    certificate.verify_directly_issued_by(certificate_of(authority.certificate_pem, "ca.pem"))
    assert uris_of(certificate) == ["anchorage://derm/silo/a"]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [one.dotted_string for one in usage] == ["1.3.6.1.5.5.7.3.2"]
    secret = api.store.get("secrets", "ns", "a-enrolment")
    assert decode_value(secret, "key").decode() == effect.key
    assert secret["metadata"]["ownerReferences"] == [SILO]
    assert identity.sign(DERM, effect, facts.invitation("ns", "a", "s", 60.0))  # the same key may ask again


def test_of_two_keys_that_race_for_a_token_one_is_signed(identity, facts, api, authority):
    invite(api)
    invitation = facts.invitation("ns", "a", "s", 60.0)
    first, second = a_request(), a_request()
    assert identity.sign(DERM, first, invitation)
    with pytest.raises(InvitationChangedError):
        identity.sign(DERM, second, invitation)
    assert facts.invitation("ns", "a", "s", 60.0).key == first.key


def test_a_race_between_two_operators_is_decided_by_the_api_server(identity, facts, api, authority):
    invite(api)
    invitation = facts.invitation("ns", "a", "s", 60.0)

    def the_other_is_quicker(verb, kind, name):
        if verb == "patch":
            api.refuse = lambda *call: None
            api.store.patch("secrets", "ns", "a-enrolment", {"data": encode_data({"key": "e" * 64})})

    api.refuse = the_other_is_quicker
    with pytest.raises(ApiError) as raised:
        identity.sign(DERM, a_request(), invitation)
    assert raised.value.status == 409
    assert facts.invitation("ns", "a", "s", 60.0).key == "e" * 64


@pytest.mark.parametrize(
    "csr", ["no request at all", "-----BEGIN CERTIFICATE REQUEST-----\nAA==\n-----END CERTIFICATE REQUEST-----\n"]
)
def test_a_request_that_is_none_uses_no_token_up(identity, facts, api, authority, csr):
    invite(api)
    with pytest.raises(AnchorageError) as raised:
        identity.sign(DERM, Sign("r", "a", csr, "", SILO), facts.invitation("ns", "a", "s", 60.0))
    assert raised.value.failure.reason == "SigningRequestRefused"
    assert facts.invitation("ns", "a", "s", 60.0).key == ""


def test_nobody_is_signed_under_another_s_name(identity, facts, api, authority):
    invite(api)
    effect = a_request(silo="b")
    with pytest.raises(AnchorageError) as raised:
        identity.sign(DERM, Sign("r", "a", effect.csr, effect.key, SILO), facts.invitation("ns", "a", "s", 60.0))
    assert raised.value.failure.reason == "SigningRequestRefused"
    assert facts.invitation("ns", "a", "s", 60.0).key == ""


def test_the_operator_s_own_certificate_is_kept_and_renewed_at_half_of_its_life(identity, api, clock, authority):
    first = identity.operator_tls(DERM)
    clock.advance(OPERATOR_VALID.total_seconds() / 2 - 1)
    assert identity.operator_tls(DERM) is first
    clock.advance(2)
    assert identity.operator_tls(DERM) is not first


def test_no_key_stays_on_disk(identity, authority, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    modes = []
    load = ssl.SSLContext.load_cert_chain

    def spy(self, path, *rest):
        modes.append((stat.S_IMODE(Path(path).stat().st_mode), stat.S_IMODE(Path(path).parent.stat().st_mode)))
        return load(self, path, *rest)

    monkeypatch.setattr("ssl.SSLContext.load_cert_chain", spy)
    identity.operator_tls(DERM)
    assert modes == [(0o600, 0o700)]
    assert list(tmp_path.iterdir()) == []


def test_secrets_are_read_seldom(facts, api, clock):
    invite(api)
    for _ in range(20):
        facts.invitation("ns", "a", "s", 100.0)
        clock.advance(1.0)
    assert len(api.calls) == 1
    clock.advance(100.0)
    facts.invitation("ns", "a", "s", 100.0)
    assert len(api.calls) == 2
    facts.forget("ns", "a-enrolment")
    facts.invitation("ns", "a", "s", 100.0)
    assert len(api.calls) == 3


def test_what_belonged_to_an_earlier_object_of_the_name_is_as_good_as_gone(identity, facts):
    """Garbage collection takes a moment: who deletes and applies again at once must not be left without."""
    identity.make_authority(DERM, MakeAuthority(OWNER, LABELS))
    identity.make_invitation(DERM, MakeInvitation("a", NOW + 600, SILO, LABELS))
    assert facts.authority(DERM, "u", 60.0) and facts.invitation("ns", "a", "s", 60.0)
    assert facts.authority(DERM, "new", 60.0) is None and facts.invitation("ns", "a", "new", 60.0) is None
    identity.make_invitation(DERM, MakeInvitation("a", NOW + 600, SILO | {"uid": "new"}, LABELS))
    assert facts.invitation("ns", "a", "new", 60.0)


def test_a_damaged_secret_is_no_reason_to_fall_over(facts, api):
    api.store.create(
        "secrets", "ns", {"metadata": {"name": "derm-authority", "labels": LABELS}, "data": {"ca.pem": "%%%"}}
    )
    api.store.create("secrets", "ns", {"metadata": {"name": "derm-server-tls", "labels": LABELS}})
    api.store.create(
        "secrets",
        "ns",
        {"metadata": {"name": "a-enrolment", "labels": LABELS}, "data": encode_data({"expires": "soon"})},
    )
    assert facts.authority(DERM, "u", 60.0).damage.startswith("Secret derm-authority: ca.key cannot be read")
    assert facts.server_certificate(DERM, "u", 60.0) is None
    assert facts.invitation("ns", "a", "s", 60.0).expires == 0.0


@pytest.mark.parametrize("name", ["derm-authority", "derm-server-tls", "a-enrolment"])
def test_a_secret_of_somebody_else_is_neither_read_nor_written(api, identity, facts, name):
    theirs = {"metadata": {"name": name}, "data": encode_data({"password": "theirs", "hash": "0" * 64})}
    api.store.create("secrets", "ns", theirs)
    identity.make_authority(DERM, MakeAuthority(OWNER, LABELS))
    for act in (
        lambda: facts.authority(DERM, "u", 0.0),
        lambda: identity.make_server_certificate(DERM, MakeServerCertificate(("a",), OWNER, LABELS)),
        lambda: identity.make_invitation(DERM, MakeInvitation("a", NOW + 600, SILO, LABELS)),
        lambda: facts.invitation("ns", "a", "s", 0.0),
    ):
        with suppress(ApiError):
            act()
    secret = api.store.get("secrets", "ns", name)
    assert secret["data"] == theirs["data"] and "ownerReferences" not in secret["metadata"]
    with pytest.raises(ApiError, match=f"Secret {name} already exists and is of no federation"):
        {"derm-authority": facts.authority, "derm-server-tls": facts.server_certificate}.get(
            name, lambda *_: facts.invitation("ns", "a", "s", 0.0)
        )(DERM, "u", 0.0)
