"""Failures of certificates, enrolment and connections: 20xx."""

from anchorage.api.errors.catalogue import failure

TOKEN_UNKNOWN = failure(
    "ANC-2001",
    "TokenUnknown",
    "The enrolment token is not one that this federation issued.",
    "Check that the token was copied whole and belongs to this federation, or ask the coordinating site for a new one.",
    4,
)
TOKEN_USED = failure(
    "ANC-2002",
    "TokenUsed",
    "The enrolment token was used before, with another key.",
    "Ask the coordinating site for a new token. If nobody at your site used this one, tell them: "
    "somebody else enrolled in your name.",
    4,
)
TOKEN_EXPIRED = failure(
    "ANC-2003",
    "TokenExpired",
    "The enrolment token is older than it may be.",
    "Ask the coordinating site for a new token.",
    4,
)
TOKEN_OF_ANOTHER_SILO = failure(
    "ANC-2004",
    "TokenOfAnotherSilo",
    "The enrolment token was issued for a silo of another name.",
    "Use this silo's own token, or correct the silo's name in the agent's configuration.",
    4,
)
REQUEST_REFUSED = failure(
    "ANC-2005",
    "SigningRequestRefused",
    "A certificate signing request does not fit: its key, its signature, or the name it asks for.",
    "Let the agent make its own key and request (remove its key file and start it again), and check the silo's and the "
    "federation's names.",
    4,
)
AUTHORITY_UNUSABLE = failure(
    "ANC-2006",
    "AuthorityUnusable",
    "The folder of the federation's certificate authority is missing, damaged, of another one, or not writable.",
    "Point to the folder that holds ca.pem and ca.key of this federation, and check its permissions.",
    4,
)
CREDENTIALS_UNUSABLE = failure(
    "ANC-2007",
    "CredentialsUnusable",
    "A key, its certificate and the authority's certificate do not belong together, or one of them cannot be read.",
    "Remove the key and the certificate and enrol again with a new token; check that ca.pem is this federation's.",
    4,
)
CERTIFICATE_EXPIRED = failure(
    "ANC-2008",
    "CertificateExpired",
    "A certificate is not valid now.",
    "Check the machine's clock; if it is right, remove the certificate and enrol again with a new token.",
    4,
)
ENROLMENT_PENDING = failure(
    "ANC-2009",
    "EnrolmentPending",
    "The coordinating site has not answered the request for a certificate yet.",
    "Wait: the agent asks again by itself. At the coordinating site, approve the silo (`fedctl silo approve`) and see that the operator runs.",
    4,
)
NOT_APPROVED = failure(
    "ANC-2010",
    "SiloNotApproved",
    "The coordinating site refused the silo.",
    "Ask the coordinating site; when it has changed its mind, start the agent again.",
    4,
)
TOO_MANY_REQUESTS = failure(
    "ANC-2011",
    "TooManyRequests",
    "More requests for certificates wait than the server keeps.",
    "Wait: the agent asks again by itself. At the coordinating site, see that the operator runs and who asks.",
    4,
)
