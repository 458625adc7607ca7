"""Issues certificates to silos with a token and to enrolled silos."""

from anchorage.api.errors import AnchorageError, identity
from anchorage.transport.pki.authority import Authority
from anchorage.transport.pki.keys import SigningRequest, key_fingerprint, public_bytes
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
        """Sign a further certificate (PEM) for a silo whose connection has shown a valid one, over a key that enrolled as this silo.

        Raises
        ------
        AnchorageError
            The signing request does not fit, or is for another key.
        """
        if key_fingerprint(csr_pem) not in self._tokens.keys(silo):
            found = f"silo {silo} asks for another key than it enrolled with; enrol again with a new token instead"
            raise AnchorageError(identity.REQUEST_REFUSED, found)
        return self._authority.issue_silo(csr_pem, silo)
