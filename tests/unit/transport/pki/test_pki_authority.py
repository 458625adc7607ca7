import datetime
import ipaddress
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from anchorage.api.errors import AnchorageError, identity
from anchorage.transport.pki import (
    Authority,
    Credentials,
    Registrar,
    SigningRequest,
    SiloKeys,
    Tokens,
    key_fingerprint,
    load_key,
    new_key,
    server_uri,
    silo_of,
    silo_uri,
)

NOW = 1_800_000_000.0
DAY = 86_400.0


class Time:
    def __init__(self) -> None:
        self.seconds = NOW

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def authority(tmp_path: Path, time: Time) -> Authority:
    return Authority.create(tmp_path / "authority", "derm", now=time)


@pytest.fixture
def tokens(tmp_path: Path, time: Time) -> Tokens:
    return Tokens(tmp_path / "authority" / "tokens", time)


def request(folder: Path, uri: str) -> bytes:
    folder.mkdir(exist_ok=True)
    return SigningRequest.make(new_key(folder / "tls.key"), uri)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_owner_may_read_what_is_secret(authority: Authority, tokens: Tokens, tmp_path: Path) -> None:
    tokens.create("hospital-a")
    new_key(tmp_path / "tls.key")
    assert mode(authority.folder) == mode(authority.folder / "tokens") == 0o700
    assert mode(authority.folder / "ca.key") == mode(tmp_path / "tls.key") == 0o600
    assert {mode(path) for path in (authority.folder / "tokens").iterdir()} == {0o600}


def test_an_authority_is_loaded_as_it_was_created(authority: Authority, time: Time, tmp_path: Path) -> None:
    loaded = Authority.load(authority.folder, now=time)
    pem = loaded.issue_silo(request(tmp_path / "a", silo_uri("derm", "a")), "a")
    root = x509.load_pem_x509_certificate(authority.certificate_path.read_bytes())
    x509.load_pem_x509_certificate(pem).verify_directly_issued_by(root)
    assert loaded.federation == "derm"


def test_an_authority_is_never_overwritten(authority: Authority) -> None:
    before = (authority.folder / "ca.key").read_bytes()
    with pytest.raises(AnchorageError) as caught:
        Authority.create(authority.folder, "derm")
    assert caught.value.failure is identity.AUTHORITY_UNUSABLE
    assert (authority.folder / "ca.key").read_bytes() == before


@pytest.mark.parametrize("damage", ["missing", "garbage", "other key"])
def test_a_damaged_authority_is_refused(authority: Authority, damage: str) -> None:
    if damage == "missing":
        authority.certificate_path.unlink()
    elif damage == "garbage":
        authority.certificate_path.write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    else:
        new_key(authority.folder / "ca.key")
    with pytest.raises(AnchorageError) as caught:
        Authority.load(authority.folder)
    assert caught.value.failure is identity.AUTHORITY_UNUSABLE


def test_a_silos_certificate_says_what_it_is_for(authority: Authority, tmp_path: Path) -> None:
    certificate = x509.load_pem_x509_certificate(
        authority.issue_silo(request(tmp_path / "a", silo_uri("derm", "a")), "a", valid=datetime.timedelta(days=30))
    )
    extensions = certificate.extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName)
    usage = extensions.get_extension_for_class(x509.KeyUsage).value
    assert names.critical  # the subject is empty
    assert list(names.value) == [x509.UniformResourceIdentifier("anchorage://derm/silo/a")]
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert usage.digital_signature and not usage.key_cert_sign
    assert certificate.not_valid_before_utc.timestamp() == NOW - 300
    assert certificate.not_valid_after_utc.timestamp() == NOW + 30 * DAY


def test_the_servers_certificate_carries_its_addresses(authority: Authority, tmp_path: Path) -> None:
    pem = authority.issue_server(request(tmp_path / "s", server_uri("derm")), ["localhost", "127.0.0.1", "::1"])
    extensions = x509.load_pem_x509_certificate(pem).extensions
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert list(extensions.get_extension_for_class(x509.SubjectAlternativeName).value) == [
        x509.UniformResourceIdentifier("anchorage://derm/server"),
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
    ]


def test_serial_numbers_differ(authority: Authority, tmp_path: Path) -> None:
    csr = request(tmp_path / "a", silo_uri("derm", "a"))
    serials = {x509.load_pem_x509_certificate(authority.issue_silo(csr, "a")).serial_number for _ in range(3)}
    assert len(serials) == 3


def test_no_certificate_outlives_the_authority(tmp_path: Path, time: Time) -> None:
    authority = Authority.create(tmp_path / "ca", "derm", valid=datetime.timedelta(days=10), now=time)
    csr = request(tmp_path / "a", silo_uri("derm", "a"))
    pem = authority.issue_silo(csr, "a")
    assert x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp() == NOW + 10 * DAY
    time.seconds += 11 * DAY
    with pytest.raises(AnchorageError) as caught:
        authority.issue_silo(csr, "a")
    assert caught.value.failure is identity.CERTIFICATE_EXPIRED


def foreign_requests() -> dict[str, bytes]:
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(silo_uri("derm", "a"))])
    two = x509.SubjectAlternativeName([*names, x509.UniformResourceIdentifier(silo_uri("derm", "b"))])
    p256, p384 = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP384R1())
    rsa_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    empty = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    der = bytearray(
        empty.add_extension(names, critical=True).sign(p256, hashes.SHA256()).public_bytes(serialization.Encoding.DER)
    )
    der[-1] ^= 1  # the signature's last byte
    tampered = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM)

    def pem(
        builder: x509.CertificateSigningRequestBuilder, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    ) -> bytes:
        return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    return {
        "garbage": b"hello",
        "another silo": SigningRequest.make(p256, silo_uri("derm", "b")),
        "another federation": SigningRequest.make(p256, silo_uri("lung", "a")),
        "the server": SigningRequest.make(p256, server_uri("derm")),
        "no name": pem(empty, p256),
        "two names": pem(empty.add_extension(two, critical=True), p256),
        "P-384": pem(empty.add_extension(names, critical=True), p384),
        "RSA": pem(empty.add_extension(names, critical=True), rsa_key),
        "broken signature": tampered,
    }


def test_requests_that_do_not_fit_are_refused_and_leave_the_token(
    authority: Authority, tokens: Tokens, tmp_path: Path
) -> None:
    registrar, token = registrar_of(authority, tokens), tokens.create("a")
    for what, csr in foreign_requests().items():
        with pytest.raises(AnchorageError) as caught:
            registrar.enrol(csr, token, "a")
        assert caught.value.failure is identity.REQUEST_REFUSED, what
    assert registrar.enrol(request(tmp_path / "a", silo_uri("derm", "a")), token, "a")


def test_a_token_enrols_one_key_of_one_silo(authority: Authority, tokens: Tokens, time: Time, tmp_path: Path) -> None:
    registrar, token, late = registrar_of(authority, tokens), tokens.create("a"), tokens.create("a")
    csr_a, csr_b = (request(tmp_path / name, silo_uri("derm", name)) for name in "ab")
    thief = request(tmp_path / "thief", silo_uri("derm", "a"))

    def refusal(csr: bytes, shown: str, silo: str) -> object:
        with pytest.raises(AnchorageError) as caught:
            registrar.enrol(csr, shown, silo)
        assert shown not in str(caught.value)
        return caught.value.failure

    assert refusal(csr_b, token, "b") is identity.TOKEN_OF_ANOTHER_SILO
    assert refusal(csr_a, token[:-1] + ("A" if token[-1] != "A" else "B"), "a") is identity.TOKEN_UNKNOWN
    registrar.enrol(csr_a, token, "a")
    assert refusal(thief, token, "a") is identity.TOKEN_USED
    time.seconds += 7 * DAY + 1
    assert refusal(csr_a, late, "a") is identity.TOKEN_EXPIRED


def test_the_same_key_may_fetch_its_certificate_again(authority: Authority, tokens: Tokens, tmp_path: Path) -> None:
    registrar, token = registrar_of(authority, tokens), tokens.create("a")
    csr = request(tmp_path / "a", silo_uri("derm", "a"))
    registrar.enrol(csr, token, "a")
    second_certificate = x509.load_pem_x509_certificate(registrar.enrol(csr, token, "a"))
    assert second_certificate.public_key() == load_key(tmp_path / "a" / "tls.key").public_key()


def test_the_tokens_folder_does_not_hold_the_token(authority: Authority, tokens: Tokens) -> None:
    token = tokens.create("a")
    folder = authority.folder / "tokens"
    assert all(token not in path.name and token.encode() not in path.read_bytes() for path in folder.iterdir())


def registrar_of(authority: Authority, tokens: Tokens) -> Registrar:
    return Registrar(authority, tokens, SiloKeys(authority.folder))


def enrolled(authority: Authority, tokens: Tokens, folder: Path, silo: str) -> Credentials:
    csr = request(folder, silo_uri("derm", silo))
    credentials = Credentials(folder / "tls.key", folder / "tls.pem", authority.certificate_path)
    credentials.save_certificate(registrar_of(authority, tokens).enrol(csr, tokens.create(silo), silo))
    return credentials


def test_a_silo_renews_the_key_that_it_enrolled_with(
    authority: Authority, tokens: Tokens, time: Time, tmp_path: Path
) -> None:
    credentials = enrolled(authority, tokens, tmp_path / "a", "a")
    first = credentials.expires()
    time.seconds += 300 * DAY
    registrar = registrar_of(authority, tokens)
    csr = SigningRequest.make(load_key(credentials.key), silo_uri("derm", "a"))
    credentials.save_certificate(registrar.renew(csr, "a"))
    credentials.check(silo_uri("derm", "a"), time)
    assert credentials.expires() - first == 300 * DAY


def test_another_key_takes_the_place_of_a_silos_when_it_is_shown(
    authority: Authority, tokens: Tokens, tmp_path: Path
) -> None:
    credentials = enrolled(authority, tokens, tmp_path / "a", "a")
    keys, first = SiloKeys(authority.folder), key_fingerprint(credentials.certificate.read_bytes())
    request = SigningRequest.make(new_key(tmp_path / "next.key"), silo_uri("derm", "a"))
    assert keys.admits("a", first) and not keys.admits("a", key_fingerprint(request))
    registrar_of(authority, tokens).renew(request, "a")
    assert keys.admits("a", first), "its answer may have been lost"
    assert SiloKeys(authority.folder).admits("a", key_fingerprint(request))
    assert not keys.admits("a", first) and keys.admits("a", key_fingerprint(request))
    renewed = enrolled(authority, tokens, tmp_path / "again", "a")
    assert keys.admits("a", key_fingerprint(renewed.certificate.read_bytes()))
    assert not keys.admits("a", key_fingerprint(request))
    assert keys.admits("b", first), "a silo of an earlier version has none on record"


def test_damaged_keys_admit_nobody(authority: Authority, tokens: Tokens, tmp_path: Path) -> None:
    enrolled(authority, tokens, tmp_path / "a", "a")
    (authority.folder / "keys" / "a").write_text("{")
    with pytest.raises(AnchorageError) as caught:
        SiloKeys(authority.folder).admits("a", "")
    assert caught.value.failure is identity.AUTHORITY_UNUSABLE


def test_a_key_is_changed_without_a_moment_at_which_nothing_fits(
    authority: Authority, tokens: Tokens, time: Time, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = enrolled(authority, tokens, tmp_path / "a", "a")
    other = Credentials(tmp_path / "next.key", tmp_path / "next.pem", authority.certificate_path)
    other.save_certificate(authority.issue_silo(SigningRequest.make(new_key(other.key), silo_uri("derm", "a")), "a"))
    before, after = load_key(credentials.key).public_key(), load_key(other.key).public_key()

    def crash(path: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(OSError, match="No space"):
            credentials.change_key(other)
    credentials.check(silo_uri("derm", "a"), time)
    assert credentials.read()[1].public_key() == before
    credentials.save_certificate(other.certificate.read_bytes() + credentials.certificate.read_bytes())
    credentials.check(silo_uri("derm", "a"), time)
    assert credentials.read()[1].public_key() == before, "as a crash between both files leaves it"
    credentials.change_key(other)
    credentials.check(silo_uri("derm", "a"), time)
    key, certificate, _ = credentials.read()
    assert key.public_key() == certificate.public_key() == after
    assert not other.key.exists()


def test_credentials_that_do_not_belong_together_are_refused(
    authority: Authority, tokens: Tokens, time: Time, tmp_path: Path
) -> None:
    good = enrolled(authority, tokens, tmp_path / "a", "a")
    other = Authority.create(tmp_path / "other", "derm", now=time)
    good.check(silo_uri("derm", "a"), time)
    wrong = [
        Credentials(good.key, good.certificate, other.certificate_path),
        Credentials(other.folder / "ca.key", good.certificate, good.authority),
        Credentials(good.key, tmp_path / "missing.pem", good.authority),
        Credentials(good.certificate, good.certificate, good.authority),
    ]
    for credentials in wrong:
        with pytest.raises(AnchorageError) as caught:
            credentials.check(silo_uri("derm", "a"), time)
        assert caught.value.failure is identity.CREDENTIALS_UNUSABLE
    with pytest.raises(AnchorageError) as caught:
        good.check(silo_uri("derm", "b"), time)
    assert caught.value.failure is identity.CREDENTIALS_UNUSABLE


@pytest.mark.parametrize("days", [-1, 366])
def test_a_certificate_is_refused_before_and_after_its_time(
    authority: Authority, tokens: Tokens, time: Time, tmp_path: Path, days: int
) -> None:
    credentials = enrolled(authority, tokens, tmp_path / "a", "a")
    time.seconds += days * DAY
    with pytest.raises(AnchorageError) as caught:
        credentials.check(silo_uri("derm", "a"), time)
    assert caught.value.failure is identity.CERTIFICATE_EXPIRED


@pytest.mark.parametrize(
    ("uris", "silo"),
    [
        (["anchorage://derm/silo/a"], "a"),
        (["anchorage://derm/silo/"], None),
        (["anchorage://derm/silo/a/b"], None),
        (["anchorage://lung/silo/a"], None),
        (["anchorage://derm/server"], None),
        (["anchorage://derm/silo/a", "anchorage://derm/silo/b"], None),
        ([], None),
    ],
)
def test_the_silo_of_a_connection(uris: list[str], silo: str | None) -> None:
    assert silo_of(uris, "derm") == silo


def test_no_request_and_no_certificate_holds_a_private_key(
    authority: Authority, tokens: Tokens, tmp_path: Path
) -> None:
    credentials = enrolled(authority, tokens, tmp_path / "a", "a")
    secret = load_key(credentials.key).private_numbers().private_value.to_bytes(32, "big")
    csr = SigningRequest.make(load_key(credentials.key), silo_uri("derm", "a"))
    for pem in (x509.load_pem_x509_csr(csr), x509.load_pem_x509_certificate(credentials.certificate.read_bytes())):
        assert secret not in pem.public_bytes(serialization.Encoding.DER)


@pytest.mark.filterwarnings("ignore:Parsed a serial number which wasn't positive:UserWarning")
@pytest.mark.parametrize("which", ["key", "certificate", "authority"])
def test_files_of_which_a_byte_is_damaged_are_named(
    authority: Authority, tmp_path: Path, time: Time, which: str
) -> None:
    """Whichever byte: refused in one line, or, where the bit says nothing, as good as before."""
    folder = tmp_path / "silo"
    pem = authority.issue_silo(request(folder, silo_uri("derm", "a")), "a")
    credentials = Credentials(folder / "tls.key", folder / "tls.pem", tmp_path / "ca.pem")
    credentials.save_certificate(pem)
    credentials.authority.write_bytes(authority.certificate_path.read_bytes())
    path: Path = getattr(credentials, which)
    content, refused = path.read_bytes(), 0
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        try:
            credentials.check(silo_uri("derm", "a"), time)
        except AnchorageError as error:
            assert error.failure in (identity.CREDENTIALS_UNUSABLE, identity.CERTIFICATE_EXPIRED)
            refused += 1
    assert refused > len(content) / 2


def test_a_request_of_which_a_byte_is_damaged_is_refused(tmp_path: Path) -> None:
    """Strangers send requests: whichever byte, the answer is one line."""
    full_request = request(tmp_path / "silo", silo_uri("derm", "a"))
    refused = 0
    for at in range(len(full_request)):
        damaged = full_request[:at] + bytes([full_request[at] ^ 1 << at % 8]) + full_request[at + 1 :]
        try:
            SigningRequest.parse(damaged)
        except AnchorageError as error:
            assert error.failure is identity.REQUEST_REFUSED
            refused += 1
    assert refused > len(full_request) / 2
