"""The authority's certificate from cert-manager: one CertificateRequest, and what becomes of it. The key stays in the authority's Secret."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from cryptography import x509

from anchorage.api.errors import AnchorageError, identity
from anchorage.transport.kube.client import ApiError, KubeClient
from anchorage.transport.kube.resources import RESOURCES, Json, kube_object
from anchorage.transport.pki import Authority, certificate_of
from anchorage.transport.pki.authority import AUTHORITY_VALID
from anchorage_operator.cache import Key
from anchorage_operator.names import authority_name
from anchorage_operator.observed import AuthorityRequest
from anchorage_operator.secret_facts import decode_value
from anchorage_operator.settings import AuthorityIssuer

KIND = "CertificateRequest"
LONGEST_WORDS = 400
"""Characters of a condition's message that are shown."""
_UNHEARD = (403, 404)
"""HTTP statuses of an API server without cert-manager, and of one whose roles keep the operator from it."""


def certificate_request(
    key: Key, issuer: AuthorityIssuer, private_pem: bytes, owner: Json, labels: Json
) -> dict[str, Any]:
    """Return the request that the issuer sign an authority's key.

    Parameters
    ----------
    key : Key
        The federation.
    issuer : AuthorityIssuer
        Who is to sign.
    private_pem : bytes
        The authority's key; the request has its public half alone.
    owner, labels : Json
        Owner reference (the Federation) and labels of the request.

    Raises
    ------
    AnchorageError
        The key is none.
    """
    metadata = {"name": authority_name(key.federation), "namespace": key.namespace, "labels": labels}
    signing = Authority.signing_request(key.federation, private_pem)
    spec = {
        "request": b64encode(signing).decode(),
        "isCA": True,
        "usages": ["cert sign", "crl sign"],
        "duration": f"{AUTHORITY_VALID.total_seconds() / 3600:.0f}h0m0s",
        "issuerRef": issuer.model_dump(),
    }
    return kube_object(KIND, metadata | {"ownerReferences": [owner]}, spec=spec)


def read_answer(api: KubeClient, key: Key, private_pem: bytes) -> AuthorityRequest:
    """Return what became of the request for the certificate of an authority's key.

    Raises
    ------
    ApiError
        The API server did not answer.
    """
    name = authority_name(key.federation)
    try:
        request = api.get(KIND, key.namespace, name)
    except ApiError as error:
        if error.status not in _UNHEARD:
            raise
        why = f"{RESOURCES[KIND].full_name} is not known here" if error.status == 404 else error.message[:LONGEST_WORDS]
        remedy = "install cert-manager, upgrade the chart, or leave its value authority.issuerRef.name empty"
        return AuthorityRequest(refused=f"cert-manager cannot be asked: {why}; {remedy}")
    if request is None:
        return AuthorityRequest(asked=False)
    status = request.get("status") or {}
    retry_hint = f"; `kubectl delete certificaterequest {name}` asks again"
    if status.get("certificate"):
        signed = decode_value({"data": status}, "certificate")
        try:
            return AuthorityRequest(certificate=_check_certificate(key.federation, private_pem, signed))
        except AnchorageError as error:
            return AuthorityRequest(refused=f"what the issuer signed cannot be used: {error.message}{retry_hint}")
    conditions: Mapping[str, Json] = {each["type"]: each for each in status.get("conditions", ())}
    ready, issuer = conditions.get("Ready", {}), "{kind} {name}".format(**request["spec"]["issuerRef"])
    denials = [conditions.get(kind, {}) for kind in ("Denied", "InvalidRequest")]
    denials = [each for each in denials if each.get("status") == "True"]
    denials += [ready] if ready.get("reason") in ("Denied", "Failed") else []
    if denials:
        return AuthorityRequest(refused=f"{issuer} does not sign the authority's key: {_words(denials[0])}{retry_hint}")
    return AuthorityRequest(waits=f"{issuer} has not signed the authority's key yet: {_words(ready)}")


def _check_certificate(federation: str, private_pem: bytes, signed: bytes) -> str:
    """Return the first certificate (PEM) of what was signed, which the issuer's own may follow, if it makes the key this federation's authority."""
    authority = Authority.from_pem(federation, private_pem, signed)
    extensions = certificate_of(authority.certificate_pem, "it").extensions
    try:
        signs = extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        signs = False
    if not signs:
        raise AnchorageError(identity.AUTHORITY_UNUSABLE, "it is no certificate authority's (CA:TRUE)")
    return authority.certificate_pem.decode()


def _words(condition: Json) -> str:
    """Return what a condition says, on one line."""
    return " ".join(str(condition.get("message") or condition.get("reason") or "no word of it").split())[:LONGEST_WORDS]
