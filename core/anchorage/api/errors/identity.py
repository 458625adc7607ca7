"""Failures of certificates, enrolment and connections: 20xx."""

from functools import partial

from anchorage.api.errors.catalogue import failure as add

failure = partial(add, 4)

TOKEN_UNKNOWN = failure(
    "ANC-2001 TokenUnknown",
    "The enrolment token was not issued by this federation.",
    "Check that the token was copied completely and belongs to this federation, or ask the coordinating site for a new one.",
)
TOKEN_USED = failure(
    "ANC-2002 TokenUsed",
    "The enrolment token was already used with another key.",
    "Ask the coordinating site for a new token. If nobody at your site used this one, tell them: "
    "somebody else enrolled in your name.",
)
TOKEN_EXPIRED = failure(
    "ANC-2003 TokenExpired", "The enrolment token has expired.", "Ask the coordinating site for a new token."
)
TOKEN_OF_ANOTHER_SILO = failure(
    "ANC-2004 TokenOfAnotherSilo",
    "The enrolment token was issued for another silo.",
    "Use this silo's own token, or correct the silo's name in the agent's configuration.",
)
REQUEST_REFUSED = failure(
    "ANC-2005 SigningRequestRefused",
    "A certificate signing request has an invalid key, signature or name.",
    "Delete the agent's key file and start the agent again; check the names of the silo and of the federation.",
)
AUTHORITY_UNUSABLE = failure(
    "ANC-2006 AuthorityUnusable",
    "The folder of the certificate authority is missing, damaged, not writable, or belongs to another federation.",
    "Use the folder with ca.pem and ca.key of this federation, and check its permissions.",
)
CREDENTIALS_UNUSABLE = failure(
    "ANC-2007 CredentialsUnusable",
    "A key, its certificate and the authority's certificate do not belong together, or one of them cannot be read.",
    "Delete the key and the certificate and enrol again with a new token; check that ca.pem belongs to this federation.",
)
CERTIFICATE_EXPIRED = failure(
    "ANC-2008 CertificateExpired",
    "A certificate has expired or is not valid yet.",
    "Check the machine's clock. If it is right, delete the certificate and enrol again with a new token.",
)
ENROLMENT_PENDING = failure(
    "ANC-2009 EnrolmentPending",
    "The coordinating site has not decided on the request for a certificate yet.",
    "Wait; the agent repeats the request. At the coordinating site, approve the silo (`fedctl silo approve`) and check that the operator runs.",
)
NOT_APPROVED = failure(
    "ANC-2010 SiloNotApproved",
    "The coordinating site refused the silo.",
    "Ask the coordinating site for the reason. After it has approved the silo, start the agent again.",
)
TOO_MANY_REQUESTS = failure(
    "ANC-2011 TooManyRequests",
    "Too many requests for certificates are waiting at the server, or tokens that a silo of this name showed from this address were refused.",
    "Wait; the agent repeats the request. At the coordinating site, check that the operator runs, and the addresses in the server's log whose "
    "tokens were refused.",
)
AUTHORITY_IN_USE = failure(
    "ANC-2013 AuthorityInUse",
    "Silos have no certificate of the new authority yet, and would be shut out without the former one.",
    "Wait until their agents have connected for some minutes, then repeat the command; deny the silos that are not to come back.",
)
CLOCK_OFF = failure(
    "ANC-2012 ClockOff",
    "The clocks of a silo's machine and of the server differ by more than five minutes.",
    "Set the clock that is off: let the machine ask a time server (NTP). The agent tries again.",
)
