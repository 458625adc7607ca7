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
    "The kubeconfig is missing or unreadable.",
    "Set KUBECONFIG to the path of the cluster's kubeconfig; `kubectl config view` shows which file is used. For a run on this machine, name "
    "its folder with --workdir.",
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
    "Log in to the cluster again, or obtain a new kubeconfig.",
    4,
)
CLUSTER_FORBIDDEN = failure(
    "ANC-5106",
    "ClusterForbidden",
    "The user lacks a permission that the command needs.",
    "Ask the cluster's administrators for a role with the verb and the resource in the message; docs/operations.md lists the permissions of "
    "each command.",
    4,
)
RESOURCES_NOT_INSTALLED = failure(
    "ANC-5107",
    "ResourcesNotInstalled",
    "The cluster does not have the resource types Federation and Silo.",
    "Install the chart charts/anchorage with `crds.enabled=true`, or choose another cluster with --context.",
    2,
)
NO_SUCH_FEDERATION = failure(
    "ANC-5108",
    "NoSuchFederation",
    "The namespace has no federation of this name.",
    "`kubectl get federations -A` lists all federations; select the namespace with --namespace and the cluster with --context.",
    2,
)
SEVERAL_FEDERATIONS = failure(
    "ANC-5109",
    "FederationNotNamed",
    "The namespace has several federations, and none was named.",
    "Add the name of the federation to the command.",
    2,
)
POD_UNREACHABLE = failure(
    "ANC-5110",
    "PodUnreachable",
    "The pod that the command reads from is not running.",
    "`fedctl status` and `fedctl events` show why. Pods of a suspended federation start again when spec.suspend is false.",
    4,
)
CLUSTER_REFUSED = failure(
    "ANC-5111",
    "ClusterRefused",
    "The API server refused a request.",
    "The message is the API server's. After a conflict or too many requests, run the command again.",
    4,
)
NO_SUCH_SILO = failure(
    "ANC-5112",
    "NoSuchSilo",
    "The federation has no silo of this name in the namespace.",
    "`fedctl silos` lists the silos; `fedctl silo invite` creates a new one.",
    2,
)
SILO_NOT_REMOTE = failure(
    "ANC-5113",
    "SiloNotRemote",
    "The silo's agent runs in this cluster, so it needs neither invitation nor approval.",
    "A Silo with spec.managed is a member as long as its object exists; delete the object to remove it from the federation.",
    2,
)
SILO_TAKEN = failure(
    "ANC-5114",
    "SiloTaken",
    "A silo of this name already exists.",
    "Choose another name. To invite a hospital again that lost its key, use --replace; its present key is then refused.",
    2,
)
AUTHORITY_NOT_READY = failure(
    "ANC-5115",
    "AuthorityNotReady",
    "The federation has no certificate authority yet.",
    "The operator creates it for an accepted federation. Check that the operator runs "
    "(`kubectl get pods -l app.kubernetes.io/name=anchorage-operator`) and that the condition Accepted is True.",
    4,
)
ADDRESS_UNKNOWN = failure(
    "ANC-5116",
    "AddressUnknown",
    "The address at which hospitals reach the server is unknown.",
    "Set spec.server.address to host:port, or give it with --address.",
    2,
)
LOCAL_RUN = failure(
    "ANC-5117",
    "LocalRun",
    "The federation runs on this machine, and the command is for federations in a cluster.",
    "`fedctl run` invites and admits its silos itself. For a federation of the same name in a cluster, add --namespace.",
    2,
)
CHECKS_FAILED = failure(
    "ANC-5118",
    "ChecksFailed",
    "`fedctl doctor` found a problem that prevents an installation.",
    "Follow the advice in the lines with FAIL, then run `fedctl doctor` again.",
    4,
)
ENROLMENT_FILE_UNUSABLE = failure(
    "ANC-5119",
    "EnrolmentFileUnusable",
    "The file contains neither a CA certificate (PEM) nor the values of an enrolment.",
    "Name the ca.pem of the federation, or the enrolment.yaml that `fedctl silo invite` wrote.",
    2,
)
