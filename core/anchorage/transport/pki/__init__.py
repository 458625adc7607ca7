"""A federation's certificate authority, keys that stay where they are used, signing requests, one-time tokens."""

from anchorage.transport.pki.authority import Authority
from anchorage.transport.pki.credentials import Credentials, certificate_of
from anchorage.transport.pki.denials import Denials
from anchorage.transport.pki.identity import operator_uri, server_uri, silo_of, silo_uri, uris_of
from anchorage.transport.pki.keys import (
    SigningRequest,
    key_fingerprint,
    key_from_pem,
    key_to_pem,
    load_key,
    make_key,
    new_key,
)
from anchorage.transport.pki.registrar import Registrar
from anchorage.transport.pki.silo_keys import SiloKeys
from anchorage.transport.pki.tokens import Tokens

__all__ = [
    "Authority",
    "Credentials",
    "Denials",
    "Registrar",
    "SigningRequest",
    "SiloKeys",
    "Tokens",
    "certificate_of",
    "key_fingerprint",
    "key_from_pem",
    "key_to_pem",
    "load_key",
    "make_key",
    "new_key",
    "operator_uri",
    "server_uri",
    "silo_of",
    "silo_uri",
    "uris_of",
]
