"""Failures of certificates, enrolment and connections: 20xx."""

from functools import partial

from anchorage.api.errors.catalogue import failure as add

failure = partial(add, 4)

TOKEN_UNKNOWN = failure(
    "ANC-2001 TokenUnknown",
    "The enrolment token was not issued by this federation.",
    "Copy it again, completely, or ask the coordinating site for a new one.",
)
TOKEN_USED = failure(
    "ANC-2002 TokenUsed",
    "The enrolment token was already used with another key.",
    "Ask the coordinating site for a new one. If nobody at your site used it, tell them: somebody enrolled in your name.",
)
TOKEN_EXPIRED = failure(
    "ANC-2003 TokenExpired", "The enrolment token has expired.", "Ask the coordinating site for a new one."
)
TOKEN_OF_ANOTHER_SILO = failure(
    "ANC-2004 TokenOfAnotherSilo",
    "The enrolment token was issued for another silo.",
    "Use this silo's token, or correct the name in the agent's configuration.",
)
REQUEST_REFUSED = failure(
    "ANC-2005 SigningRequestRefused",
    "A certificate signing request has an invalid key, signature or name.",
    "Check the names of silo and federation, delete the agent's key and start the agent again.",
)
AUTHORITY_UNUSABLE = failure(
    "ANC-2006 AuthorityUnusable",
    "The certificate authority's folder is missing, damaged, not writable, or another federation's.",
    "Use the folder with ca.pem and ca.key of this federation, and check its permissions.",
)
CREDENTIALS_UNUSABLE = failure(
    "ANC-2007 CredentialsUnusable",
    "A key, its certificate and the authority's do not belong together, or one cannot be read.",
    "Delete key and certificate and enrol again with a new token; check that ca.pem is this federation's.",
)
CERTIFICATE_EXPIRED = failure(
    "ANC-2008 CertificateExpired",
    "A certificate has expired or is not valid yet.",
    "Set the machine's clock, or delete the certificate and enrol again with a new token.",
)
ENROLMENT_PENDING = failure(
    "ANC-2009 EnrolmentPending",
    "The coordinating site has not decided on the certificate request.",
    "Wait; the agent asks again. At the coordinating site, run `fedctl silo approve`, and check that the operator runs.",
)
NOT_APPROVED = failure(
    "ANC-2010 SiloNotApproved",
    "The coordinating site refused the silo.",
    "Ask it for the reason. After its approval, start the agent again.",
)
TOO_MANY_REQUESTS = failure(
    "ANC-2011 TooManyRequests",
    "Too many certificate requests are waiting, or tokens for this silo's name from this address were refused.",
    "Wait; the agent asks again. At the coordinating site, check that the operator runs, and in the server's log whose tokens were refused.",
)
AUTHORITY_IN_USE = failure(
    "ANC-2013 AuthorityInUse",
    "Silos without a certificate of the new authority would be shut out.",
    "Wait until their agents have been connected for some minutes, or deny them; then repeat the command.",
)
CLOCK_OFF = failure(
    "ANC-2012 ClockOff",
    "The clocks of silo and server differ by more than five minutes.",
    "Set the wrong clock (NTP); the agent tries again.",
)
