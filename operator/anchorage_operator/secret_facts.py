"""Public content of Secrets. The operator may not list or watch Secrets; it reads them by name and caches them."""

from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from threading import Lock

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from anchorage.api.errors import AnchorageError
from anchorage.transport.kube.client import ApiError, KubeClient
from anchorage.transport.kube.resources import Json
from anchorage.transport.pki import certificate_of, key_fingerprint
from anchorage.transport.pki.authority import PREVIOUS_KEY
from anchorage.transport.pki.credentials import certificates_of
from anchorage.transport.pki.keys import key_from_pem
from anchorage.transport.retry import RANDOM
from anchorage_operator.cache import Key
from anchorage_operator.drift import digest
from anchorage_operator.names import (
    ARGOCD_NO_PRUNE,
    FEDERATION_LABEL,
    INSTANCE_LABEL,
    authority_name,
    enrolment_name,
    server_tls_name,
    tracking_login_name,
)
from anchorage_operator.observed import AuthorityFacts, CertificateFacts, Invitation, TrackingLoginFacts

Facts = AuthorityFacts | CertificateFacts | Invitation | TrackingLoginFacts

USER, PASSWORD, TOKEN = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"
"""Keys of a Secret with credentials for MLflow, and the environment variables from which MLflow takes them."""


@dataclass(frozen=True, slots=True)
class _Known:
    uid: str
    """Of the Federation or Silo that it was read for."""
    facts: Facts | None
    """None where there is no such Secret."""
    read: float
    """When it was read, spread backwards so that not all are read again together."""


class SecretFacts:
    """Reads Secrets and caches their public content.

    Parameters
    ----------
    api : KubeClient
        Reads them.
    clock : callable
        Seconds on a scale that never goes back.
    """

    def __init__(self, api: KubeClient, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._known: dict[tuple[str, str], _Known] = {}
        self._lock = Lock()

    def authority(self, key: Key, uid: str, oldest: float) -> AuthorityFacts | None:
        """Return the content of a federation's authority Secret, at most `oldest` seconds old; None if it does not exist.

        A Secret that belongs to an earlier Federation or Silo of the name is about to be collected, and as good as gone.

        Parameters
        ----------
        key : Key
            The federation.
        uid : str
            The Federation's.
        oldest : float
            Seconds.

        Raises
        ------
        ApiError
            The Secret cannot be read, or is somebody else's.
        """
        facts = self._facts(key.namespace, authority_name(key.federation), uid, _authority_facts, oldest)
        return facts if isinstance(facts, AuthorityFacts) else None

    def server_certificate(self, key: Key, uid: str, oldest: float) -> CertificateFacts | None:
        """Return the content of the server's certificate Secret. Parameters and failures as in `authority`."""
        facts = self._facts(key.namespace, server_tls_name(key.federation), uid, _certificate_facts, oldest)
        return facts if isinstance(facts, CertificateFacts) else None

    def tracking_login(self, key: Key, uid: str, oldest: float) -> TrackingLoginFacts | None:
        """Return the content of the Secret with the server's user at MLflow. Parameters and failures as in `authority`."""
        name = tracking_login_name(key.federation)
        facts = self._facts(key.namespace, name, uid, _tracking_login_facts, oldest)
        return facts if isinstance(facts, TrackingLoginFacts) else None

    def invitation(self, namespace: str, silo: str, uid: str, oldest: float) -> Invitation | None:
        """Return the content of a silo's enrolment Secret; `uid` is the Silo's. Failures as in `authority`."""
        facts = self._facts(namespace, enrolment_name(silo), uid, invitation_of, oldest)
        return facts if isinstance(facts, Invitation) else None

    def forget(self, namespace: str, name: str) -> None:
        """Discard a cached Secret."""
        with self._lock:
            self._known.pop((namespace, name), None)

    def clear(self) -> None:
        """Discard all cached Secrets."""
        with self._lock:
            self._known.clear()

    def _facts(
        self, namespace: str, name: str, uid: str, parse: Callable[[Json], Facts | None], oldest: float
    ) -> Facts | None:
        now = self._clock()
        with self._lock:
            known = self._known.get((namespace, name))
        if known and known.uid == uid and now - known.read < oldest:
            return known.facts
        secret = self._api.get("Secret", namespace, name)
        if secret is not None:
            require_ours(secret)
        facts = None if secret is None or _of_another(secret, uid) else parse(secret)
        with self._lock:
            self._known[namespace, name] = _Known(uid, facts, now - oldest * 0.3 * RANDOM.random())
        return facts


def require_ours(secret: Json) -> None:
    """Refuse a Secret of somebody else's: a Federation's name must not reach what others keep under a name like it.

    Raises
    ------
    ApiError
        It has no label of a federation, which the operator and `fedctl silo invite` set.
    """
    metadata = secret["metadata"]
    if FEDERATION_LABEL not in metadata.get("labels", {}):
        message = f"Secret {metadata['name']} already exists and is of no federation; rename one of them"
        raise ApiError(403, "NameTaken", message)


def encode_data(values: Mapping[str, bytes | str]) -> dict[str, str]:
    """Encode values as the ``data`` of a Secret."""
    plain = {name: value.encode() if isinstance(value, str) else value for name, value in values.items()}
    return {name: b64encode(value).decode() for name, value in plain.items()}


def decode_value(secret: Json, name: str) -> bytes:
    """Decode one value of a Secret; empty if it is missing or invalid."""
    try:
        return b64decode((secret.get("data") or {}).get(name, ""), validate=True)
    except BadBase64:
        return b""


def invitation_of(secret: Json) -> Invitation:
    """Return the content of a silo's enrolment Secret; an invalid time counts as expired."""
    return Invitation(
        hash=_word(secret, "hash"),
        expires=_moment(secret, "expires"),
        key=_word(secret, "key"),
        next_key=_word(secret, "nextKey"),
        has_token=bool(decode_value(secret, "token")),
        not_after=_moment(secret, "notAfter"),
        issuer=_word(secret, "issuer"),
    )


def _tracking_login_facts(secret: Json) -> TrackingLoginFacts:
    return TrackingLoginFacts(_word(secret, USER), _word(secret, PASSWORD))


def _of_another(secret: Json, uid: str) -> bool:
    owners = [owner["uid"] for owner in secret["metadata"].get("ownerReferences", ()) if owner.get("controller")]
    return bool(owners) and uid not in owners


def _word(secret: Json, name: str) -> str:
    return decode_value(secret, name).decode(errors="replace").strip()


def _moment(secret: Json, name: str) -> float:
    try:
        return datetime.fromisoformat(_word(secret, name)).timestamp()
    except ValueError:
        return 0.0


def _authority_facts(secret: Json) -> AuthorityFacts:
    pem = decode_value(secret, "ca.pem")
    metadata, text = secret["metadata"], pem.decode(errors="replace")
    owned = any(owner["kind"] == "Federation" for owner in metadata.get("ownerReferences", ()))
    is_retained = (
        INSTANCE_LABEL not in metadata.get("labels", {})
        and metadata.get("annotations", {}).items() >= ARGOCD_NO_PRUNE.items()
    )
    try:
        private = key_from_pem(decode_value(secret, "ca.key"), "ca.key")
        held = certificates_of(pem, "ca.pem") if pem else []
    except AnchorageError as error:
        return AuthorityFacts("", 0.0, owned, is_retained, damage=damage_of(metadata["name"], error.message))
    keys = [key_fingerprint(each.public_bytes(serialization.Encoding.PEM)) for each in held]
    if held and all(private.public_key() != each.public_key() for each in held):
        damage = "ca.key is not the key of the certificate in ca.pem"
        return AuthorityFacts("", 0.0, owned, is_retained, damage=damage_of(metadata["name"], damage))
    former = keys[1] if len(keys) > 1 and decode_value(secret, PREVIOUS_KEY) else ""
    not_after = held[0].not_valid_after_utc.timestamp() if held else 0.0
    origin = _word(secret, "origin") or digest(text)
    return AuthorityFacts(
        text, not_after, owned, is_retained, key=keys[0] if keys else "", former_key=former, origin=origin
    )


def damage_of(name: str, defect: str) -> str:
    """Say what of an authority's Secret cannot be used, and what to do."""
    return f"Secret {name}: {defect}; restore it from its backup, or delete it to begin with a new authority"


def _certificate_facts(secret: Json) -> CertificateFacts | None:
    """Return None for a key and a certificate that no server could use: they are as good as none."""
    try:
        certificate = certificate_of(decode_value(secret, "tls.crt"), "tls.crt")
        private = key_from_pem(decode_value(secret, "tls.key"), "tls.key")
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (AnchorageError, x509.ExtensionNotFound):
        return None
    if certificate.public_key() != private.public_key():
        return None
    return CertificateFacts(
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
        (*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))),
        decode_value(secret, "ca.pem").decode(errors="replace"),
        _word(secret, "issuer"),
    )
