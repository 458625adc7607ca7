"""Failures of the command line on a cluster: 51xx."""

from anchorage.api.errors.catalogue import failure

KUBERNETES_CLIENT_MISSING = failure(
    "ANC-5101",
    "KubernetesClientMissing",
    "fedctl was installed without the Kubernetes client.",
    "Install it: `pip install 'anchorage[kubernetes]'`.",
    2,
)
KUBECONFIG_UNUSABLE = failure(
    "ANC-5102",
    "KubeconfigUnusable",
    "There is no kubeconfig, or it cannot be read.",
    "Set KUBECONFIG to the cluster's kubeconfig; `kubectl config view` shows what is read. For a run on this machine name its "
    "folder with --workdir.",
    2,
)
CONTEXT_UNKNOWN = failure(
    "ANC-5103",
    "ContextUnknown",
    "The kubeconfig has no context of this name.",
    "`kubectl config get-contexts` lists them; name one with --context.",
    2,
)
CLUSTER_UNREACHABLE = failure(
    "ANC-5104",
    "ClusterUnreachable",
    "The cluster's API server does not answer.",
    "Check the network, the VPN and the context (`kubectl version` asks the same server); run the command again.",
    4,
)
CLUSTER_UNAUTHENTICATED = failure(
    "ANC-5105",
    "ClusterUnauthenticated",
    "The cluster does not accept the kubeconfig's credentials.",
    "Log in to the cluster again, or get a new kubeconfig.",
    4,
)
CLUSTER_FORBIDDEN = failure(
    "ANC-5106",
    "ClusterForbidden",
    "The cluster does not allow this user what the command needs.",
    "Ask whoever runs the cluster for a role with the verb and the resource that the message names; docs/operations.md lists what "
    "each command needs.",
    4,
)
RESOURCES_NOT_INSTALLED = failure(
    "ANC-5107",
    "ResourcesNotInstalled",
    "The cluster does not know Federation and Silo.",
    "Install the chart charts/anchorage with `crds.enabled=true`, or choose another cluster with --context.",
    2,
)
NO_SUCH_FEDERATION = failure(
    "ANC-5108",
    "NoSuchFederation",
    "The namespace has no federation of this name.",
    "`kubectl get federations -A` lists all; name the namespace with --namespace and the cluster with --context.",
    2,
)
SEVERAL_FEDERATIONS = failure(
    "ANC-5109",
    "FederationNotNamed",
    "The namespace has several federations, and none was named.",
    "Name the federation that is meant.",
    2,
)
POD_UNREACHABLE = failure(
    "ANC-5110",
    "PodUnreachable",
    "The pod that the command reads from does not run.",
    "`fedctl status` and `fedctl events` say why; a suspended federation's pods come back when spec.suspend is false.",
    4,
)
CLUSTER_REFUSED = failure(
    "ANC-5111",
    "ClusterRefused",
    "The API server refused a request.",
    "The message is the server's own; run the command again if it speaks of a conflict or of too many requests.",
    4,
)
NO_SUCH_SILO = failure(
    "ANC-5112",
    "NoSuchSilo",
    "The federation has no silo of this name here.",
    "`fedctl silos` lists them; `fedctl silo invite` makes a new one.",
    2,
)
SILO_NOT_REMOTE = failure(
    "ANC-5113",
    "SiloNotRemote",
    "The silo's agent runs in this cluster, so nobody invites or approves it.",
    "A Silo with spec.managed is a member as long as its object exists; remove the object to take it out.",
    2,
)
SILO_TAKEN = failure(
    "ANC-5114",
    "SiloTaken",
    "The name of the silo is in use already.",
    "Choose another name. To give a hospital that lost its key a new invitation, use --replace: its present key is then refused.",
    2,
)
AUTHORITY_NOT_READY = failure(
    "ANC-5115",
    "AuthorityNotReady",
    "The federation has no certificate authority yet.",
    "The operator makes it with the federation: see that the operator runs (`kubectl get pods -l app.kubernetes.io/name=anchorage-operator`) "
    "and that the condition Accepted is True.",
    4,
)
ADDRESS_UNKNOWN = failure(
    "ANC-5116",
    "AddressUnknown",
    "Nobody knows under which address hospitals reach the server.",
    "Set spec.server.address to host:port, or name it with --address.",
    2,
)
LOCAL_RUN = failure(
    "ANC-5117",
    "LocalRun",
    "The federation runs on this machine, where this command means nothing.",
    "The local runner invites and admits its silos itself. For a federation of the same name in a cluster, add --namespace.",
    2,
)
CHECKS_FAILED = failure(
    "ANC-5118",
    "ChecksFailed",
    "`fedctl doctor` found something that must be mended before an install.",
    "Do what the lines with FAIL say, and run it again.",
    4,
)
ENROLMENT_FILE_UNUSABLE = failure(
    "ANC-5119",
    "EnrolmentFileUnusable",
    "The file holds neither a certificate authority (PEM) nor the values of an enrolment.",
    "Name the ca.pem of the federation, or the enrolment.yaml that `fedctl silo invite` wrote.",
    2,
)
