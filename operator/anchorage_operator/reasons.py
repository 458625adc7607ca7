"""Reasons of conditions: what each means and what to do. docs/conditions.md is generated from here and from the catalogue of failures."""

from dataclasses import dataclass

REASONS: dict[str, "Reason"] = {}


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason.

    Parameters
    ----------
    name : str
        One CamelCase word, as it stands in a condition.
    on : str
        Conditions that have it.
    meaning : str
        One sentence.
    remedy : str
        What to do; empty where nothing is wrong.
    """

    name: str
    on: str
    meaning: str
    remedy: str = ""


def _reason(name: str, on: str, meaning: str, remedy: str = "") -> str:
    if name in REASONS:
        raise ValueError(f"duplicate reason {name}")
    REASONS[name] = Reason(name, on, meaning, remedy)
    return name


ACCEPTED = _reason("Accepted", "Accepted", "The spec is in force.")
INVALID_SPEC = _reason(
    "InvalidSpec",
    "Accepted, Ready",
    "The spec has a mistake that the API server could not see; what ran before goes on as it was.",
    "Mend the field that the message names. `fedctl validate` finds the same mistakes in a file.",
)
IMMUTABLE_FIELD_CHANGED = _reason(
    "ImmutableFieldChanged",
    "Accepted, Ready",
    "A field was changed that is fixed once training has begun, or a volume that cannot change; the earlier spec goes on.",
    "Set the field back, or make a Federation of another name.",
)
FEDERATION_NOT_FOUND = _reason(
    "FederationNotFound",
    "Accepted, Ready of a Silo",
    "The silo belongs to a Federation that does not exist in its namespace; it waits.",
    "Create the Federation, or correct spec.federation.",
)
FEDERATION_NOT_ACCEPTED = _reason(
    "FederationNotAccepted",
    "Connected, AgentAvailable, ServerAvailable, QuorumMet",
    "The Federation's spec was never accepted, so nothing was made.",
    "See the Federation's condition Accepted.",
)
CERTIFICATES_VALID = _reason("Valid", "CertificatesValid", "The authority's and the server's certificates hold.")
CERTIFICATES_PENDING = _reason("Pending", "CertificatesValid", "The certificates are being made; this takes seconds.")
CERTIFICATE_EXPIRING = _reason(
    "CertificateExpiring",
    "CertificatesValid",
    "The authority's certificate ends within 90 days, or the server's should have been renewed and was not.",
    "Authority: plan a new federation or a new authority (docs/operations.md). Server: look at the operator's log.",
)
CERTIFICATE_EXPIRED = _reason(
    "CertificateExpired",
    "CertificatesValid; Enrolled of a Silo",
    "A certificate has ended.",
    "Server or authority: look at the operator's log. Silo: invite it again with `fedctl silo invite --replace`.",
)
AVAILABLE = _reason("Available", "ServerAvailable, AgentAvailable", "The pod runs and answers.")
STARTING = _reason(
    "Starting",
    "ServerAvailable, AgentAvailable, Enrolled, Ready",
    "The pod is being made, pulls its image, or is not ready yet.",
)
RESTARTING = _reason(
    "Restarting",
    "ServerAvailable, AgentAvailable, Ready",
    "The container ended and starts again; training resumes at the last committed round.",
)
TERMINATING = _reason("Terminating", "ServerAvailable, AgentAvailable", "The pod is on its way out.")
POD_MISSING = _reason(
    "PodMissing",
    "ServerAvailable, AgentAvailable",
    "There is no pod, though there should be one.",
    "If it lasts: `kubectl describe statefulset` tells why, often a quota or a policy of the namespace.",
)
SERVER_UNREACHABLE = _reason(
    "ServerUnreachable",
    "ServerAvailable, Connected, QuorumMet, Ready",
    "The server's pod is ready, but its control port does not answer the operator. Training is not disturbed by that.",
    "See that network policies let the operator reach port 8445, and look at the server's log.",
)
IMAGE_PULL = _reason(
    "ImagePullBackOff",
    "ServerAvailable, AgentAvailable, Ready",
    "The node cannot pull the image.",
    "Check the image's name, the registry, and imagePullSecrets.",
)
UNSCHEDULABLE = _reason(
    "Unschedulable",
    "ServerAvailable, AgentAvailable, Ready",
    "No node has room for the pod, or none that it may run on.",
    "Free or add what the message names (often nvidia.com/gpu), lower resources, or correct nodeSelector and tolerations.",
)
VOLUME_MISSING = _reason(
    "VolumeMissing",
    "ServerAvailable, AgentAvailable, Ready",
    "A volume claim that the spec names does not exist in the namespace.",
    "Create the PersistentVolumeClaim, or correct claimName.",
)
VOLUME_PENDING = _reason(
    "VolumePending",
    "ServerAvailable, AgentAvailable, Ready",
    "A volume claim has no volume yet.",
    "`kubectl describe pvc` tells why; often there is no storage class or no room.",
)
CONFIG_MISSING = _reason(
    "ConfigMissing",
    "ServerAvailable, AgentAvailable",
    "A ConfigMap that the pod needs is missing.",
    "Create it; the operator makes its own again.",
)
SECRET_MISSING = _reason(
    "SecretMissing",
    "ServerAvailable, AgentAvailable",
    "A Secret that the pod needs is missing.",
    "Create it; the operator makes its own again.",
)
CONTAINER_ERROR = _reason(
    "ContainerError",
    "ServerAvailable, AgentAvailable",
    "The node cannot start the container.",
    "The message is the node's; look at the image and the runtime class.",
)
CRASH_LOOP = _reason(
    "CrashLoop",
    "ServerAvailable, AgentAvailable, Failed, Ready",
    "The process ends again and again without naming a failure of the catalogue.",
    "`kubectl logs --previous` shows the last words.",
)
OUT_OF_MEMORY = _reason(
    "OutOfMemory",
    "ServerAvailable, AgentAvailable, Failed, Ready",
    "The container used more memory than its limit, or the node ran out.",
    "Raise resources.limits.memory, or lower batchSize.",
)
POD_FAILED = _reason(
    "PodFailed", "ServerAvailable, AgentAvailable", "The node gave the pod up.", "The message is the node's."
)
EVICTED = _reason(
    "Evicted",
    "ServerAvailable, AgentAvailable",
    "The node evicted the pod for want of memory or disk.",
    "It comes back; free the node's disk or memory.",
)
QUORUM_MET = _reason("EnoughSilos", "QuorumMet", "At least spec.protocol.minSilos silos are connected.")
WAITING_FOR_SILOS = _reason(
    "WaitingForSilos",
    "QuorumMet, Ready",
    "Fewer silos than spec.protocol.minSilos have connected since the server started; the message names those that are missing.",
    "`kubectl get silos` says of each what it waits for.",
)
SERVER_UNAVAILABLE = _reason(
    "ServerUnavailable",
    "QuorumMet, Connected",
    "Nothing is known, since the server does not run.",
    "See the condition ServerAvailable.",
)
SUSPENDED = _reason(
    "Suspended",
    "Ready, ServerAvailable, QuorumMet, AgentAvailable, Connected",
    "spec.suspend is true: no pod runs, checkpoints stay.",
    "Set spec.suspend to false; training resumes at the last committed round.",
)
HALTED = _reason(
    "Halted",
    "ServerAvailable, QuorumMet, AgentAvailable, Connected",
    "Training failed for good and its pods were ended; see the condition Failed.",
    "Change the spec (for DeadlineExceeded raise activeDeadlineSeconds); any change of the spec starts it again.",
)
WAITING = _reason("Waiting", "Ready, Succeeded, Failed", "Training has not begun.")
TRAINING = _reason("Training", "Ready, Succeeded, Failed", "Rounds are being played.")
SUCCEEDED = _reason(
    "Succeeded",
    "Ready, Connected, QuorumMet, AgentAvailable",
    "Every round is committed; the server keeps the results at hand.",
)
ALL_ROUNDS_COMMITTED = _reason("AllRoundsCommitted", "Succeeded, Failed", "Every round is committed.")
MANAGED = _reason("Managed", "Approved", "The silo's agent runs in this cluster, and whoever created it may admit it.")
APPROVED_IN_ADVANCE = _reason("ApprovedInAdvance", "Approved", "spec.admission of the Federation admits the silo.")
PENDING_APPROVAL = _reason(
    "PendingApproval",
    "Approved, Enrolled, Connected, Ready of a Silo",
    "Nobody has decided about the silo yet.",
    "`fedctl silo approve FEDERATION SILO`, or `fedctl silo deny`.",
)
DENIED = _reason(
    "Denied",
    "Enrolled, Connected, Ready of a Silo",
    "The silo was denied; the server lets it in no more.",
    "`fedctl silo approve` lets it in again.",
)
INVITED = _reason(
    "Invited",
    "Enrolled, Connected, Ready of a Silo",
    "The silo has an invitation that nobody has used yet.",
    "Install the chart silo-agent at the hospital with the invitation's values.",
)
NOT_INVITED = _reason(
    "NotInvited",
    "Enrolled, Connected, Ready of a Silo",
    "The silo has no invitation.",
    "`fedctl silo invite FEDERATION SILO`.",
)
INVITATION_EXPIRED = _reason(
    "TokenExpired",
    "Enrolled, Connected, Ready of a Silo",
    "The invitation was not used in time.",
    "`fedctl silo invite --replace` makes a new one.",
)
CERTIFICATE_SIGNED = _reason("CertificateSigned", "Enrolled", "The silo has its certificate.")
CONNECTED = _reason("Connected", "Connected, Ready of a Silo", "The agent is connected.")
NOT_CONNECTED = _reason(
    "NotConnected",
    "Connected, Ready of a Silo",
    "The agent is not connected to the server.",
    "Look at the agent's pod and its log; at a hospital, at its proxy and firewall.",
)
