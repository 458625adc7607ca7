"""A federation's certificate authority, keys that stay where they are used, signing requests, one-time tokens."""

from anchorage.pki.authority import Authority
from anchorage.pki.credentials import Credentials
from anchorage.pki.identity import server_uri, silo_of, silo_uri
from anchorage.pki.keys import SigningRequest, load_key, new_key
from anchorage.pki.registrar import Registrar
from anchorage.pki.tokens import Tokens

__all__ = [
    "Authority",
    "Credentials",
    "Registrar",
    "SigningRequest",
    "Tokens",
    "load_key",
    "new_key",
    "server_uri",
    "silo_of",
    "silo_uri",
]
