"""Failures of chunks and updates in transit: 21xx."""

from anchorage.api.errors.catalogue import failure

CHUNK_MISMATCH = failure(
    "ANC-2101",
    "ChunkMismatch",
    "Bytes of a model arrived that are not the announced ones.",
    "Nothing for one chunk: it is sent again. If it happens often, look for a proxy or a network card that changes data.",
    4,
)

MALFORMED_MESSAGE = failure(
    "ANC-2150",
    "MalformedMessage",
    "A message does not have the form that this version expects.",
    "Bring the server and the agents to the same version.",
    4,
)
MESSAGE_TOO_LARGE = failure(
    "ANC-2151",
    "MessageTooLarge",
    "A message is larger than the other side accepts.",
    "Send less auxiliary data beside the model, or bring both sides to the same version.",
    4,
)
UNKNOWN_TASK = failure(
    "ANC-2152",
    "UnknownTask",
    "A silo spoke of a task that it does not have, or may not upload yet.",
    "Nothing: the task was replaced or dismissed meanwhile, and what was sent for it does not count.",
    4,
)
UNEXPECTED_UPDATE = failure(
    "ANC-2153",
    "UnexpectedUpdate",
    "The bytes on offer are not the announced ones: another layout, length or digest.",
    "Bring the silo's agent to the server's version; the update was not used.",
    4,
)
MODEL_NOT_OFFERED = failure(
    "ANC-2154",
    "ModelNotOffered",
    "A silo asked for a model that belongs to none of its open tasks.",
    "Nothing: the task was replaced or dismissed meanwhile.",
    4,
)
SILO_NOT_ADMITTED = failure(
    "ANC-2155",
    "SiloNotAdmitted",
    "The silo is no member of the federation, or its membership was revoked.",
    "Add the silo to the federation's documents, or enrol it again under its right name.",
    4,
)
SESSION_REPLACED = failure(
    "ANC-2156",
    "SessionReplaced",
    "Another connection with the same silo's certificate took over.",
    "See that only one agent runs per silo.",
    4,
)
NO_SILO_IDENTITY = failure(
    "ANC-2157",
    "NoSiloIdentity",
    "The certificate names no silo of this federation.",
    "Enrol the agent with a token of this federation.",
    4,
)
SERVER_NOT_TRUSTED = failure(
    "ANC-2158",
    "ServerNotTrusted",
    "The server's certificate is not of the silo's authority, has expired, or is for another name.",
    "Check the server's address and the authority file; renew the server's certificate.",
    4,
)
SERVER_UNREACHABLE = failure(
    "ANC-2159",
    "ServerUnreachable",
    "The server does not answer.",
    "Check the address and the network; see whether the server runs.",
    4,
)
CANNOT_LISTEN = failure(
    "ANC-2160",
    "CannotListen",
    "The server cannot listen on its address.",
    "Choose a free port, or end the process that holds it.",
    4,
)
STALE_SESSION = failure(
    "ANC-2161",
    "StaleSession",
    "A call names a session that is over.",
    "Nothing: the agent opens a new session by itself.",
    4,
)
PROXY_REFUSED = failure(
    "ANC-2162",
    "ProxyRefused",
    "The HTTP proxy does not let the agent through to the server.",
    "Have the proxy allow CONNECT to the server's and the enrolment's host and port without a password, or correct proxy in the "
    "agent's configuration.",
    4,
)
