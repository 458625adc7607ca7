"""Failures of the command line on a cluster: 51xx."""

from anchorage.api.errors.catalogue import failure

KUBERNETES_CLIENT_MISSING = failure(
    2,
    "ANC-5101 KubernetesClientMissing",
    "fedctl was installed without the Kubernetes client.",
    "Install it: `pip install 'anchorage[kubernetes]'`.",
)
KUBECONFIG_UNUSABLE = failure(
    2,
    "ANC-5102 KubeconfigUnusable",
    "The kubeconfig is missing or unreadable.",
    "Set KUBECONFIG to its path, or name a run on this machine with --workdir.",
)
CONTEXT_UNKNOWN = failure(
    2,
    "ANC-5103 ContextUnknown",
    "The kubeconfig has no context of this name.",
    "`kubectl config get-contexts` lists them; name one with --context.",
)
CLUSTER_UNREACHABLE = failure(
    4,
    "ANC-5104 ClusterUnreachable",
    "The cluster's API server does not answer.",
    "Check the network, the VPN and the context with `kubectl version`.",
)
CLUSTER_UNAUTHENTICATED = failure(
    4,
    "ANC-5105 ClusterUnauthenticated",
    "The cluster does not accept the kubeconfig's credentials.",
    "Log in again, or obtain a new kubeconfig.",
)
CLUSTER_FORBIDDEN = failure(
    4,
    "ANC-5106 ClusterForbidden",
    "The user lacks a permission that the command needs.",
    "Ask the cluster's administrators for the permission in the message (docs/cli.md).",
)
RESOURCES_NOT_INSTALLED = failure(
    2,
    "ANC-5107 ResourcesNotInstalled",
    "The cluster lacks the resource types Federation and Silo.",
    "Install charts/anchorage with `crds.enabled=true`, or choose another cluster with --context.",
)
NO_SUCH_FEDERATION = failure(
    2,
    "ANC-5108 NoSuchFederation",
    "The namespace has no federation of this name.",
    "`kubectl get federations -A` lists all; choose with --namespace and --context.",
)
SEVERAL_FEDERATIONS = failure(
    2,
    "ANC-5109 FederationNotNamed",
    "The namespace has several federations, and none was named.",
    "Add the federation's name to the command.",
)
POD_UNREACHABLE = failure(
    4,
    "ANC-5110 PodUnreachable",
    "The pod that the command reads from is not running.",
    "`fedctl status` and `fedctl events` show why, such as spec.suspend.",
)
CLUSTER_REFUSED = failure(
    4,
    "ANC-5111 ClusterRefused",
    "The API server refused a request.",
    "Read its message. After a conflict or too many requests, run the command again.",
)
NO_SUCH_SILO = failure(
    2,
    "ANC-5112 NoSuchSilo",
    "The federation has no silo of this name in the namespace.",
    "`fedctl silos` lists them; `fedctl silo invite` creates a new one.",
)
SILO_NOT_REMOTE = failure(
    2,
    "ANC-5113 SiloNotRemote",
    "The silo's agent runs in this cluster and needs neither invitation nor approval.",
    "It is a member while its Silo exists; delete that to remove it.",
)
SILO_TAKEN = failure(
    2,
    "ANC-5114 SiloTaken",
    "A silo of this name already exists.",
    "Choose another name, or use --replace for a hospital that lost its key, which is then refused.",
)
AUTHORITY_NOT_READY = failure(
    4,
    "ANC-5115 AuthorityNotReady",
    "The federation has no certificate authority yet.",
    "Check that the condition Accepted is True, and that the operator runs: `kubectl get pods -l app.kubernetes.io/name=anchorage-operator`.",
)
ADDRESS_UNKNOWN = failure(
    2,
    "ANC-5116 AddressUnknown",
    "The address at which hospitals reach the server is unknown.",
    "Set spec.server.address to host:port, or give it with --address.",
)
LOCAL_RUN = failure(
    2,
    "ANC-5117 LocalRun",
    "The command is for federations in a cluster.",
    "`fedctl run` admits its silos itself. For a federation in a cluster, add --namespace.",
)
CHECKS_FAILED = failure(
    4,
    "ANC-5118 ChecksFailed",
    "`fedctl doctor` found a problem that prevents an installation.",
    "Follow the lines with FAIL, then run it again.",
)
ENROLMENT_FILE_UNUSABLE = failure(
    2,
    "ANC-5119 EnrolmentFileUnusable",
    "The file contains neither a CA certificate (PEM) nor the values of an enrolment.",
    "Name the federation's ca.pem, or the enrolment.yaml that `fedctl silo invite` wrote.",
)
