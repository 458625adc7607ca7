"""Failures of chunks and updates in transit: 21xx."""

from functools import partial

from anchorage.api.errors.catalogue import failure as add

failure = partial(add, 4)

CHUNK_MISMATCH = failure(
    "ANC-2101 ChunkMismatch",
    "Received bytes of a model do not match their digest.",
    "Nothing, unless it recurs: then look for a proxy or network card that corrupts data.",
)

MALFORMED_MESSAGE = failure(
    "ANC-2150 MalformedMessage",
    "A message does not have the form that this version expects.",
    "Use the same version of Anchorage at server and agents.",
)
MESSAGE_TOO_LARGE = failure(
    "ANC-2151 MessageTooLarge",
    "A message is larger than the other side accepts.",
    "Use the same version on both sides, or a method with less auxiliary data.",
)
UNKNOWN_TASK = failure(
    "ANC-2152 UnknownTask",
    "A message is about a task that the silo does not have.",
    "Nothing: the task was replaced or dismissed.",
)
UNEXPECTED_UPDATE = failure(
    "ANC-2153 UnexpectedUpdate",
    "The offered update differs from its announcement.",
    "Update the agent to the server's version. The update was not used.",
)
MODEL_NOT_OFFERED = failure(
    "ANC-2154 ModelNotOffered",
    "A silo requested a model that belongs to none of its open tasks.",
    "Nothing: the task was replaced or dismissed.",
)
SILO_NOT_ADMITTED = failure(
    "ANC-2155 SiloNotAdmitted",
    "The silo is not, or no longer, a member of the federation.",
    "Add it to the federation, or enrol it under its correct name.",
)
SESSION_REPLACED = failure(
    "ANC-2156 SessionReplaced",
    "Another connection with the same silo's certificate replaced this one.",
    "Run only one agent per silo.",
)
NO_SILO_IDENTITY = failure(
    "ANC-2157 NoSiloIdentity",
    "The certificate names no silo of this federation.",
    "Enrol the agent with a token of this federation.",
)
SERVER_NOT_TRUSTED = failure(
    "ANC-2158 ServerNotTrusted",
    "The server's certificate is from another authority, expired, or for another name.",
    "Check the server's address and the authority file; renew the server's certificate.",
)
SERVER_UNREACHABLE = failure(
    "ANC-2159 ServerUnreachable",
    "The server does not answer.",
    "Check the address and the network, and that the server runs.",
)
CANNOT_LISTEN = failure(
    "ANC-2160 CannotListen",
    "The server cannot listen on its address.",
    "Choose a free port, or free this one.",
)
STALE_SESSION = failure(
    "ANC-2161 StaleSession", "A call refers to a session that has ended.", "Nothing: the agent opens a new session."
)
OUT_OF_BOUNDS = failure(
    "ANC-2163 OutOfBounds",
    "A silo sent what cannot be right, such as more images than it has.",
    "Check its agent's version, and who runs it. The round goes on without it.",
)
AGENT_TOO_OLD = failure(
    "ANC-2164 AgentTooOld",
    "The agent is more than one minor release older than the server.",
    "Upgrade the agent to the server's release, or the one before or after.",
)
SERVER_TOO_OLD = failure(
    "ANC-2165 ServerTooOld",
    "The server is more than one minor release older than the agent.",
    "Ask the coordinating site to upgrade the server, or install an older agent.",
)
PROXY_REFUSED = failure(
    "ANC-2162 ProxyRefused",
    "The HTTP proxy refuses the agent's connection to the server.",
    "Let the proxy allow CONNECT to server and enrolment without a password, or correct `proxy` in the agent's configuration.",
)
