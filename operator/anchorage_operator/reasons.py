"""Reasons of conditions, as they appear there: one CamelCase word each.

Below each one: the conditions that can have it and what it means, then how to fix it where something is wrong. docs/conditions.md is generated
from here.
"""

ACCEPTED = "Accepted"
"""Accepted: The spec was accepted and is in use."""
INVALID_SPEC = "InvalidSpec"
"""Accepted, Ready: The spec has an error that the API server cannot detect. The previous spec stays in use, except suspend, deletionPolicy,
admission and server.

Correct the field named in the message. `fedctl validate` reports the same errors for a file.
"""
IMMUTABLE_FIELD_CHANGED = "ImmutableFieldChanged"
"""Accepted, Ready: A field was changed that cannot change once training has started. The previous spec stays in use, except a Federation's suspend,
deletionPolicy, admission and server, and a Silo's resources, storage, pod and policy.

Restore the field's previous value, or create a Federation with another name.
"""
POD_OVERRIDE_REFUSED = "PodOverrideRefused"
"""Accepted, Ready: The spec sets what the platform does not allow in a pod, or names a volume claim that is not for this federation's images. What
runs goes on without it.

Remove the field named in the message, or have the chart's podOverrides list it (docs/kubernetes.md).
"""
FEDERATION_NOT_FOUND = "FederationNotFound"
"""Accepted, Ready of a Silo: The namespace has no Federation of the name in spec.federation.

Create the Federation, or correct spec.federation.
"""
FEDERATION_NOT_ACCEPTED = "FederationNotAccepted"
"""Connected, AgentAvailable, ServerAvailable, QuorumMet: The Federation's spec was never accepted, so no objects were created for it.

See the Federation's condition Accepted.
"""
RECONCILE_FAILED = "ReconcileFailed"
"""Ready: The operator could not reconcile the federation: one of its objects, such as a Secret, cannot be read or is somebody else's, or the
operator has a defect. What runs goes on; the other conditions are those of before.

Mend what the message names; the operator tries again. Its log has the details of a defect.
"""
CERTIFICATES_VALID = "Valid"
"""CertificatesValid: The certificates of the certificate authority and the server are valid."""
CERTIFICATES_PENDING = "Pending"
"""CertificatesValid, Ready: The certificates are being created, in a few seconds or as long as cert-manager's issuer takes."""
AUTHORITY_NOT_ISSUED = "AuthorityNotIssued"
"""CertificatesValid, Ready: The issuer of the operator's settings does not certify the authority's key, or cert-manager is missing. No server is
started.

The message says which, and what to do (docs/operations.md).
"""
AUTHORITY_CHANGES = "AuthorityChanges"
"""CertificatesValid: A new certificate authority takes the place of another; both are trusted.

Nothing while silos get their certificates, within ten minutes. A silo that stays named: let its agent run, or deny it. Then `fedctl authority
finish`.
"""
CERTIFICATE_EXPIRING = "CertificateExpiring"
"""CertificatesValid: The certificate authority's certificate expires within 90 days, or the server's certificate was not renewed in time.

Authority: plan a new federation or a new authority (docs/operations.md). Server: check the operator's log.
"""
CERTIFICATE_EXPIRED = "CertificateExpired"
"""CertificatesValid, Ready; Enrolled of a Silo: A certificate has expired.

Server: check the operator's log. Authority: begin with a new one (docs/operations.md). Silo: invite it again with `fedctl silo invite --replace`.
"""
AUTHORITY_DAMAGED = "AuthorityDamaged"
"""CertificatesValid, Ready: The certificate authority's Secret cannot be read. The federation is not changed meanwhile.

Restore the Secret named in the message from its backup (docs/operations.md). Without one, delete it and restart the operator: it makes a new
authority, and every silo must enrol again.
"""
AVAILABLE = "Available"
"""ServerAvailable, AgentAvailable: The pod is running and responding."""
STARTING = "Starting"
"""ServerAvailable, AgentAvailable, Enrolled, Ready: The pod is being created, is pulling its image, or is not ready yet."""
RESTARTING = "Restarting"
"""ServerAvailable, AgentAvailable, Ready: The container exited and is being restarted; training resumes from the last committed round."""
TERMINATING = "Terminating"
"""ServerAvailable, AgentAvailable: The pod is being deleted."""
POD_MISSING = "PodMissing"
"""ServerAvailable, AgentAvailable: The pod does not exist, although it should.

If this persists, `kubectl describe statefulset` shows the cause.
"""
POD_REFUSED = "PodRefused"
"""ServerAvailable, AgentAvailable, Ready: The API server refuses the pod or its StatefulSet.

Raise the quota, create the PriorityClass or RuntimeClass, correct what the spec asks for, or have the namespace's policy changed.
"""
OBJECT_REFUSED = "ObjectRefused"
"""ServerAvailable, AgentAvailable, Ready: The API server refuses an object that the pod needs, such as its Service.

Raise the quota, correct the name or what the spec asks for, or have the namespace's policy changed.
"""
SERVER_UNREACHABLE = "ServerUnreachable"
"""ServerAvailable, Connected, QuorumMet, Ready: The server's pod is ready, but its control port does not respond to the operator. Training
continues.

Check the server's log, and that network policies let the operator reach port 8445.
"""
IMAGE_PULL = "ImagePullBackOff"
"""ServerAvailable, AgentAvailable, Ready: The node cannot pull the image.

Check the image name, the registry and imagePullSecrets.
"""
UNSCHEDULABLE = "Unschedulable"
"""ServerAvailable, AgentAvailable, Ready: No node that the pod may run on has enough free resources.

Free or add the resource named in the message (often nvidia.com/gpu), lower the requests, or correct nodeSelector and tolerations.
"""
QUEUED = "Queued"
"""ServerAvailable, AgentAvailable, Ready: The pod waits for quota in the queue of spec.queueName.

`kubectl get workloads` shows why; without Kueue in the cluster, omit spec.queueName.
"""
VOLUME_MISSING = "VolumeMissing"
"""ServerAvailable, AgentAvailable, Ready: A PersistentVolumeClaim named in the spec does not exist in the namespace.

Create it, or correct claimName.
"""
VOLUME_PENDING = "VolumePending"
"""ServerAvailable, AgentAvailable, Ready: A PersistentVolumeClaim is not bound yet.

`kubectl describe pvc` shows the cause, often a missing storage class or too little capacity.
"""
VOLUME_NOT_MOUNTED = "VolumeNotMounted"
"""ServerAvailable, AgentAvailable, Ready: The node cannot attach or mount a volume of the pod.

Multi-Attach: another node still has the volume; end the pod there (`kubectl get pods -A -o wide`), or bring that node back or delete it. Else:
correct the path, the server or the Secret that the PersistentVolume names.
"""
NODE_LOST = "NodeLost"
"""ServerAvailable, AgentAvailable, Ready: The node, off or cut off, has not confirmed for five minutes that the pod ended. Kubernetes starts no
other pod, as this one may still run.

Bring the node back. If its machine is off for good: `kubectl delete node NAME`; the pod then starts where its volume can go.
"""
CONFIG_MISSING = "ConfigMissing"
"""ServerAvailable, AgentAvailable: A ConfigMap that the pod requires does not exist.

Create it; the operator recreates its own.
"""
SECRET_MISSING = "SecretMissing"
"""ServerAvailable, AgentAvailable: A Secret that the pod requires does not exist.

Create it; the operator recreates its own.
"""
CONTAINER_ERROR = "ContainerError"
"""ServerAvailable, AgentAvailable: The node cannot start the container.

Check the image and the runtime class; the message is the node's.
"""
CRASH_LOOP = "CrashLoop"
"""ServerAvailable, AgentAvailable, Failed, Ready: The process exits repeatedly without an error of the catalogue.

`kubectl logs --previous` shows its last output.
"""
OUT_OF_MEMORY = "OutOfMemory"
"""ServerAvailable, AgentAvailable, Failed, Ready: The container exceeded its memory limit, or the node ran out of memory.

Increase resources.limits.memory, or reduce batchSize.
"""
POD_FAILED = "PodFailed"
"""ServerAvailable, AgentAvailable: The node reported the pod as failed.

The message comes from the node.
"""
EVICTED = "Evicted"
"""ServerAvailable, AgentAvailable: The node evicted the pod because it ran low on memory or disk space.

Free disk space or memory on the node; the pod is recreated.
"""
STATE_LOST = "StateLost"
"""ServerAvailable, QuorumMet, Connected, Ready: The server's volume lacks committed rounds: it is another one, or an older copy. The server waits
and admits no silo, so that nothing is trained again.

Bring back the volume (docs/operations.md), or give the rounds up with the command in the message.
"""
QUORUM_MET = "EnoughSilos"
"""QuorumMet: At least spec.protocol.minSilos silos are connected."""
WAITING_FOR_SILOS = "WaitingForSilos"
"""QuorumMet, Ready: Fewer silos than spec.protocol.minSilos have connected since the server started. The message names the missing ones.

`kubectl get silos` shows what each silo is waiting for.
"""
SERVER_UNAVAILABLE = "ServerUnavailable"
"""QuorumMet, Connected, Tracked: The state is unknown because the server is not running.

See the condition ServerAvailable.
"""
SUSPENDED = "Suspended"
"""Ready, ServerAvailable, QuorumMet, AgentAvailable, Connected: spec.suspend is true: all pods are stopped, checkpoints are kept.

Set spec.suspend to false; training resumes from the last committed round.
"""
HALTED = "Halted"
"""ServerAvailable, QuorumMet, AgentAvailable, Connected: Training failed and its pods were stopped; see the condition Failed. A small pod keeps
committed rounds and the last model at hand for `fedctl rounds` and `fedctl model pull`.

Change the spec, which restarts training. After DeadlineExceeded, raise activeDeadlineSeconds, or set rounds to the committed ones to succeed with
those.
"""
WAITING = "Waiting"
"""Ready, Succeeded, Failed: Training has not started."""
TRAINING = "Training"
"""Ready, Succeeded, Failed: Training is in progress."""
STORING_RESULTS = "StoringResults"
"""Ready, Succeeded, Failed: All rounds are committed; the server writes the models and sends the results to MLflow."""
SUCCEEDED = "Succeeded"
"""Ready, Connected, QuorumMet, AgentAvailable: All rounds are committed; the server keeps running to provide the results."""
ALL_ROUNDS_COMMITTED = "AllRoundsCommitted"
"""Succeeded, Failed: All rounds are committed and the results are stored."""
MANAGED = "Managed"
"""Approved: The silo's agent runs in this cluster; it is a member while its object exists."""
APPROVED_IN_ADVANCE = "ApprovedInAdvance"
"""Approved: spec.admission of the Federation approves the silo in advance."""
PENDING_APPROVAL = "PendingApproval"
"""Approved, Enrolled, Connected, Ready: The silo is waiting to be approved or denied.

`fedctl silo approve FEDERATION SILO`, or `fedctl silo deny`.
"""
DENIED = "Denied"
"""Enrolled, Connected, Ready: The silo was denied; the server no longer admits it.

`fedctl silo approve` admits it again.
"""
INVITED = "Invited"
"""Enrolled, Connected, Ready: The silo was invited, and its invitation has not been used yet.

Install the chart silo-agent at the hospital with the values of the invitation.
"""
NOT_INVITED = "NotInvited"
"""Enrolled, Connected, Ready: The silo was not invited.

`fedctl silo invite FEDERATION SILO`.
"""
INVITATION_EXPIRED = "TokenExpired"
"""Enrolled, Connected, Ready: The invitation expired before it was used.

`fedctl silo invite --replace` creates a new one.
"""
CERTIFICATE_SIGNED = "CertificateSigned"
"""Enrolled: The silo has its certificate."""
CONNECTED = "Connected"
"""Connected, Ready of a Silo: The agent is connected."""
NOT_CONNECTED = "NotConnected"
"""Connected, Ready of a Silo: The agent is not connected to the server.

Check the agent's pod and log; at a hospital, also the proxy and the firewall.
"""
SENDING = "Sending"
"""Tracked: Results are being sent to MLflow, during training and for a while after it."""
SENT = "Sent"
"""Tracked: MLflow has the parameters, the metrics of every round, the figures and the registered models."""
