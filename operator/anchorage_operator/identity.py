"""Effects that need keys: certificate authority, certificates, invitations. Keys are stored in Secrets only."""

import hashlib
import secrets
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import FILE_UNREADABLE
from anchorage.api.errors.identity import AUTHORITY_UNUSABLE
from anchorage.api.regular_files import read_regular
from anchorage.api.status import timestamp
from anchorage.transport.files import write_once
from anchorage.transport.kube.client import ApiError, KubeClient
from anchorage.transport.kube.resources import Json, kube_object
from anchorage.transport.mlflow_login import federation_password, federation_user
from anchorage.transport.pki import (
    Authority,
    SigningRequest,
    key_fingerprint,
    key_to_pem,
    make_key,
    operator_uri,
    server_uri,
)
from anchorage.transport.pki.authority import PREVIOUS_KEY
from anchorage.transport.pki.credentials import ENDORSEMENTS, certificate_of
from anchorage.transport.pki.succession import succession_files
from anchorage_operator.cache import Key
from anchorage_operator.issuer import certificate_request, read_answer
from anchorage_operator.names import (
    ARGOCD_NO_PRUNE,
    INSTANCE_LABEL,
    authority_name,
    enrolment_name,
    server_tls_name,
    tracking_login_name,
)
from anchorage_operator.observed import AuthorityRequest, Invitation, TrackingLoginFacts
from anchorage_operator.planned import (
    CertifyAuthority,
    ChangeKey,
    DropFormerAuthority,
    IdentityEffect,
    MakeAuthority,
    MakeInvitation,
    MakeServerCertificate,
    MakeTrackingLogin,
    OwnAuthority,
    ReplaceAuthority,
    RequestAuthority,
    Sign,
)
from anchorage_operator.secret_facts import (
    PASSWORD,
    USER,
    SecretFacts,
    decode_value,
    encode_data,
    invitation_of,
    require_ours,
)

OPERATOR_VALID = timedelta(hours=24)
"""How long the certificate is valid with which the operator asks a server; it is replaced at half of that."""


class InvitationChangedError(Exception):
    """A silo's invitation changed since it was observed; reconcile again before signing."""


@dataclass(eq=False)
class Identity:
    """Creates and uses the key material of all federations."""

    api: KubeClient
    """Reads and writes the Secrets."""
    facts: SecretFacts
    """Told which Secrets to read again."""
    now: Callable[[], float] = time.time
    """Seconds since the epoch."""
    login_key: Path | None = None
    """File with the key from which passwords of the chart's MLflow are derived; None where that asks for none."""
    _contexts: dict[Key, tuple[ssl.SSLContext, float]] = field(default_factory=dict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def carry_out(self, key: Key, effect: IdentityEffect) -> None:
        """Carry out an effect that needs keys.

        Raises
        ------
        ApiError
            A Secret cannot be read or written, or is somebody else's.
        AnchorageError
            The authority is unusable.
        """
        match effect:
            case MakeAuthority():
                self.make_authority(key, effect)
            case RequestAuthority():
                self.request_authority(key, effect)
            case CertifyAuthority():
                self.certify_authority(key, effect)
            case OwnAuthority():
                self.own_authority(key, effect)
            case ReplaceAuthority():
                self.replace_authority(key, effect)
            case DropFormerAuthority():
                self.drop_former_authority(key)
            case MakeServerCertificate():
                self.make_server_certificate(key, effect)
            case MakeTrackingLogin():
                self.make_tracking_login(key, effect)
            case MakeInvitation():
                self.make_invitation(key, effect)
            case ChangeKey():
                self.change_key(key, effect)

    def make_authority(self, key: Key, effect: MakeAuthority) -> None:
        """Carry out `MakeAuthority`; keeps an authority that was created meanwhile.

        Raises
        ------
        ApiError
            The Secret cannot be written.
        """
        made = Authority.make(key.federation, now=self.now)
        secret = _secret(key.namespace, authority_name(key.federation), effect.labels, effect.owner)
        secret["metadata"]["annotations"] = ARGOCD_NO_PRUNE
        certificate = {"ca.pem": made.certificate_pem} if effect.certified else {}
        secret["data"] = encode_data({"ca.key": made.key_pem, **certificate})
        try:
            self.api.create(secret)
        except ApiError as error:
            if error.status != 409:
                raise
        self.forget(key)

    def authority_request(self, key: Key) -> AuthorityRequest:
        """Return what became of the request for the authority's certificate.

        Raises
        ------
        ApiError
            The authority's Secret or the request cannot be read.
        """
        return read_answer(self.api, key, self._authority_key(key))

    def request_authority(self, key: Key, effect: RequestAuthority) -> None:
        """Carry out `RequestAuthority`.

        Raises
        ------
        ApiError
            The request cannot be written.
        AnchorageError
            The authority's key is unusable.
        """
        private = self._authority_key(key)
        self.api.create(certificate_request(key, effect.issuer, private, effect.owner, effect.labels))

    def certify_authority(self, key: Key, effect: CertifyAuthority) -> None:
        """Carry out `CertifyAuthority`.

        Raises
        ------
        ApiError
            The Secret cannot be written.
        """
        data = encode_data({"ca.pem": effect.certificate})
        self.api.patch("Secret", key.namespace, authority_name(key.federation), {"data": data})
        self.forget(key)

    def own_authority(self, key: Key, effect: OwnAuthority) -> None:
        """Carry out `OwnAuthority`.

        Raises
        ------
        ApiError
            The Secret cannot be written.
        """
        owners = None if effect.owner is None else [effect.owner]
        name = authority_name(key.federation)
        labels = {**effect.labels, INSTANCE_LABEL: None}
        metadata = {"ownerReferences": owners, "labels": labels, "annotations": ARGOCD_NO_PRUNE}
        self.api.patch("Secret", key.namespace, name, {"metadata": metadata})
        self.facts.forget(key.namespace, name)

    def replace_authority(self, key: Key, effect: ReplaceAuthority) -> None:
        """Carry out `ReplaceAuthority`; raises as `carry_out`."""
        secret = self._authority_secret(key)
        files = succession_files(self._signer(key, secret), self.now)
        self._change_authority(key, secret, encode_data({**files, "origin": effect.origin}))

    def drop_former_authority(self, key: Key) -> None:
        """Carry out `DropFormerAuthority`; raises as `carry_out`."""
        secret = self._authority_secret(key)
        only = encode_data({"ca.pem": self._signer(key, secret).certificate_pem})
        self._change_authority(key, secret, {**only, PREVIOUS_KEY: None, ENDORSEMENTS: None})

    def _change_authority(self, key: Key, secret: Json, data: Json) -> None:
        """Write the authority's Secret, unless somebody else did since it was read."""
        metadata = {"resourceVersion": secret["metadata"]["resourceVersion"]}
        self.api.patch("Secret", key.namespace, authority_name(key.federation), {"metadata": metadata, "data": data})
        self.forget(key)

    def make_server_certificate(self, key: Key, effect: MakeServerCertificate) -> None:
        """Carry out `MakeServerCertificate`; raises as `carry_out`."""
        held = self._authority_secret(key)
        authority, private = self._signer(key, held, former=effect.former), make_key()
        self._own_secret(key.namespace, server_tls_name(key.federation))
        request = SigningRequest.make(private, server_uri(key.federation))
        secret = _secret(key.namespace, server_tls_name(key.federation), effect.labels, effect.owner)
        endorsements = decode_value(held, ENDORSEMENTS)
        secret["data"] = encode_data(
            {
                "tls.key": key_to_pem(private),
                "tls.crt": authority.issue_server(request, effect.names),
                "ca.pem": self._trusted_certificates(key, held),
                "issuer": key_fingerprint(authority.certificate_pem),
                **({ENDORSEMENTS: endorsements} if endorsements else {}),
            }
        )
        self.api.apply(secret)
        self.facts.forget(key.namespace, server_tls_name(key.federation))

    def has_tracking_login(self, key: Key, uid: str, oldest: float) -> bool:
        """Return whether the Secret holds the federation's user and password at the chart's MLflow; parameters as of `SecretFacts.authority`.

        Raises
        ------
        ApiError
            The Secret cannot be read, or is somebody else's.
        """
        if self.login_key is None:
            return False
        try:
            wanted = self._tracking_login(key, self.login_key)
        except AnchorageError:  # told where the Secret is to be written
            return False
        return self.facts.tracking_login(key, uid, oldest) == wanted

    def make_tracking_login(self, key: Key, effect: MakeTrackingLogin) -> None:
        """Carry out `MakeTrackingLogin`.

        Raises
        ------
        ApiError
            The Secret cannot be written, or is somebody else's.
        AnchorageError
            The key cannot be read.
        """
        if self.login_key is None:
            return
        login, name = self._tracking_login(key, self.login_key), tracking_login_name(key.federation)
        self._own_secret(key.namespace, name)
        secret = _secret(key.namespace, name, effect.labels, effect.owner)
        self.api.apply(secret | {"data": encode_data({USER: login.user, PASSWORD: login.password})})
        self.facts.forget(key.namespace, name)

    def _tracking_login(self, key: Key, file: Path) -> TrackingLoginFacts:
        try:
            secret = read_regular(file).strip()
        except OSError as error:
            raise AnchorageError(FILE_UNREADABLE, f"the key of MLflow's log-in: {error.strerror}") from error
        if not secret:
            raise AnchorageError(FILE_UNREADABLE, "the key of MLflow's log-in is empty")
        user = federation_user(key.namespace, key.federation)
        return TrackingLoginFacts(user, federation_password(secret, user))

    def make_invitation(self, key: Key, effect: MakeInvitation) -> None:
        """Carry out `MakeInvitation`.

        Raises
        ------
        ApiError
            The Secret cannot be written, or is somebody else's.
        """
        token = secrets.token_urlsafe(32)
        values = {
            "token": token,
            "hash": hashlib.sha256(token.encode()).hexdigest(),
            "expires": timestamp(effect.expires),
        }
        name = enrolment_name(effect.silo)
        secret = _secret(key.namespace, name, effect.labels, effect.owner) | {"data": encode_data(values)}
        try:
            self.api.create(secret)
        except ApiError as error:
            if error.status != 409:
                raise
            self._own_secret(key.namespace, name)
            unused = {**secret["data"], **dict.fromkeys(("key", "nextKey", "notAfter", "issuer"))}
            self.api.patch("Secret", key.namespace, name, {**secret, "data": unused})
        self.facts.forget(key.namespace, name)

    def sign(self, key: Key, effect: Sign, expected: Invitation | None) -> bytes:
        """Carry out `Sign` and return the certificate (PEM), which the caller sends to the server.

        Of two keys that race for one token, the API server lets one be written; the other finds the invitation changed.

        Parameters
        ----------
        key : Key
            The federation.
        effect : Sign
            What to sign.
        expected : Invitation or None
            The invitation that the decision to sign was made on.

        Raises
        ------
        ApiError
            A Secret cannot be read or written, or is somebody else's.
        InvitationChangedError
            The invitation is another one now.
        AnchorageError
            The request does not fit, or the authority is unusable.
        """
        name = enrolment_name(effect.silo)
        secret = self._own_secret(key.namespace, name)
        self.facts.forget(key.namespace, name)
        if secret is None or invitation_of(secret) != expected:
            raise InvitationChangedError
        authority = self._signer(key, self._authority_secret(key), former=not effect.renews)
        certificate = authority.issue_silo(effect.csr.encode(), effect.silo)
        end = certificate_of(certificate, "the certificate").not_valid_after_utc.timestamp()
        metadata = {"resourceVersion": secret["metadata"]["resourceVersion"], "ownerReferences": [effect.owner]}
        changed = expected is not None and bool(expected.key) and effect.key != expected.key
        keys = {"nextKey" if changed else "key": effect.key}
        signed = {"notAfter": timestamp(end), "issuer": key_fingerprint(authority.certificate_pem)}
        body = {"metadata": metadata, "data": encode_data({**keys, **signed})}
        self.api.patch("Secret", key.namespace, name, body)
        return certificate

    def change_key(self, key: Key, effect: ChangeKey) -> None:
        """Carry out `ChangeKey`; an invitation that is another one now stays as it is.

        Raises
        ------
        ApiError
            The Secret cannot be read or written, or is somebody else's.
        """
        name = enrolment_name(effect.silo)
        secret = self._own_secret(key.namespace, name)
        self.facts.forget(key.namespace, name)
        if secret is None or invitation_of(secret).next_key != effect.key:
            return
        data = {**encode_data({"key": effect.key}), "nextKey": None}
        metadata = {"resourceVersion": secret["metadata"]["resourceVersion"]}
        self.api.patch("Secret", key.namespace, name, {"metadata": metadata, "data": data})

    def operator_tls(self, key: Key) -> ssl.SSLContext:
        """Return the TLS settings for connections to a federation's server.

        Raises
        ------
        ApiError
            The authority's Secret cannot be read.
        AnchorageError
            The authority is unusable.
        """
        with self._lock:
            context, renew = self._contexts.get(key, (None, 0.0))
        if context and self.now() < renew:
            return context
        secret, private = self._authority_secret(key), make_key()
        request = SigningRequest.make(private, operator_uri(key.federation))
        certificate = self._signer(key, secret, former=True).issue_operator(request, valid=OPERATOR_VALID)
        context = _context(self._trusted_certificates(key, secret), certificate, key_to_pem(private))
        with self._lock:
            self._contexts[key] = context, self.now() + OPERATOR_VALID.total_seconds() / 2
        return context

    def forget(self, key: Key) -> None:
        """Discard cached Secrets and the operator's certificate of a federation."""
        with self._lock:
            self._contexts.pop(key, None)
        self.facts.forget(key.namespace, authority_name(key.federation))
        self.facts.forget(key.namespace, server_tls_name(key.federation))

    def _own_secret(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a Secret, None where there is none; refuses somebody else's, which is neither read nor written."""
        secret = self.api.get("Secret", namespace, name)
        if secret is not None:
            require_ours(secret)
        return secret

    def _authority_key(self, key: Key) -> bytes:
        return decode_value(self._authority_secret(key), "ca.key")

    def _authority_secret(self, key: Key) -> dict[str, Any]:
        name = authority_name(key.federation)
        secret = self._own_secret(key.namespace, name)
        if secret is None:
            self.forget(key)
            raise AnchorageError(AUTHORITY_UNUSABLE, f"the Secret {name} in namespace {key.namespace} is missing")
        return secret

    def _signer(self, key: Key, secret: Json, *, former: bool = False) -> Authority:
        """Return the authority, or the former one where there are two."""
        key_name = PREVIOUS_KEY if former and decode_value(secret, PREVIOUS_KEY) else "ca.key"
        return Authority.from_pem(
            key.federation, decode_value(secret, key_name), decode_value(secret, "ca.pem"), now=self.now
        )

    def _trusted_certificates(self, key: Key, secret: Json) -> bytes:
        """Return the certificates (PEM) of the authority, or of both, the new one first."""
        new, former = self._signer(key, secret).certificate_pem, self._signer(key, secret, former=True).certificate_pem
        return new if new == former else new + former


def _secret(namespace: str, name: str, labels: Json, owner: Json | None) -> dict[str, Any]:
    owners = {} if owner is None else {"ownerReferences": [owner]}
    metadata = {"name": name, "namespace": namespace, "labels": labels, **owners}
    return kube_object("Secret", metadata, type="Opaque")


def _context(authority: bytes, certificate: bytes, key: bytes) -> ssl.SSLContext:
    """Return a client's TLS settings. Python reads keys from files only, so the key is written to a private folder for a moment."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=authority.decode())
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an authority that an issuer certified is trusted without it
    with TemporaryDirectory(prefix="anchorage-") as folder:
        chain = Path(folder) / "operator.pem"
        write_once(chain, key + certificate)
        context.load_cert_chain(chain)
    return context
