"""Issues certificates to silos with a token and to enrolled silos."""

from anchorage.transport.pki.authority import Authority
from anchorage.transport.pki.keys import SigningRequest, key_fingerprint, public_bytes
from anchorage.transport.pki.silo_keys import SiloKeys
from anchorage.transport.pki.tokens import Tokens


class Registrar:
    """Signs certificates of authorised silos.

    Parameters
    ----------
    authority : Authority
        Signs.
    tokens : Tokens
        Says who may enrol.
    keys : SiloKeys
        Is told the keys of the silos.
    """

    def __init__(self, authority: Authority, tokens: Tokens, keys: SiloKeys) -> None:
        self._authority = authority
        self._tokens = tokens
        self._keys = keys

    def enrol(self, csr_pem: bytes, token: str, silo: str) -> bytes:
        """Sign the first certificate of a silo; a request that does not fit leaves the token unused.

        Returns
        -------
        bytes
            The certificate, PEM.

        Raises
        ------
        AnchorageError
            The token is unknown, used, expired or of another silo, the signing request does not fit, or the key cannot be kept.
        """
        self._tokens.check(token, silo)
        authority = self._authority.former()
        certificate = authority.issue_silo(csr_pem, silo)
        self._tokens.consume(token, silo, public_bytes(SigningRequest.parse(csr_pem).public_key))
        self._keys.set_key(silo, key_fingerprint(csr_pem), key_fingerprint(authority.certificate_pem))
        return certificate

    def renew(self, csr_pem: bytes, silo: str) -> bytes:
        """Sign a further certificate (PEM) for a silo whose connection has shown its key, over that or another one, which then takes its place.

        Raises
        ------
        AnchorageError
            The signing request does not fit, or another key cannot be kept.
        """
        authority = self._authority.current()
        certificate = authority.issue_silo(csr_pem, silo)
        self._keys.offer(silo, key_fingerprint(csr_pem), key_fingerprint(authority.certificate_pem))
        return certificate
