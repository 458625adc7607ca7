"""Issues certificates to silos with a token and to enrolled silos."""

from anchorage.transport.pki.authority import Authority
from anchorage.transport.pki.keys import SigningRequest, public_bytes
from anchorage.transport.pki.tokens import Tokens


class Registrar:
    """Signs certificates of authorised silos.

    Parameters
    ----------
    authority : Authority
        Signs.
    tokens : Tokens
        Says who may enrol.
    """

    def __init__(self, authority: Authority, tokens: Tokens) -> None:
        self._authority = authority
        self._tokens = tokens

    def enrol(self, csr_pem: bytes, token: str, silo: str) -> bytes:
        """Sign the first certificate of a silo; a request that does not fit leaves the token unused.

        Returns
        -------
        bytes
            The certificate, PEM.

        Raises
        ------
        AnchorageError
            The token is unknown, used, expired or of another silo, or the signing request does not fit.
        """
        self._tokens.check(token, silo)
        certificate = self._authority.issue_silo(csr_pem, silo)
        self._tokens.consume(token, silo, public_bytes(SigningRequest.parse(csr_pem).public_key))
        return certificate

    def renew(self, csr_pem: bytes, silo: str) -> bytes:
        """Sign a further certificate (PEM) for a silo whose connection has shown a valid one; the key may be a new one.

        Raises
        ------
        AnchorageError
            The signing request does not fit.
        """
        return self._authority.issue_silo(csr_pem, silo)
