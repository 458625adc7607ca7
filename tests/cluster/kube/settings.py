"""The configuration files and command lines of a cluster's components."""

import json
from dataclasses import dataclass
from pathlib import Path

from kube import network
from kube.components import Components
from kube.images import PAUSE
from kube.requirements import PLUGINS

NODE = "node1"
NEEDED_BY_API = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")


@dataclass(frozen=True)
class Settings:
    """Where a cluster keeps things, and what its components are told."""

    folder: Path
    runtime: Path
    group: str
    components: Components
    addresses: network.Addresses

    @property
    def socket(self) -> Path:
        """Return containerd's socket."""
        return self.runtime / "containerd.sock"

    def kubeconfig(self, who: str) -> Path:
        """Return the kubeconfig file of one of the certificates' holders."""
        return self.folder / f"{who}.kubeconfig"

    def write(self) -> None:
        """Write containerd's, the pod network's, the kubelet's and the name server's files."""
        (self.folder / "cni").mkdir(parents=True, exist_ok=True)
        (self.folder / "cni" / "10-pods.conflist").write_text(json.dumps(self._pod_network()))
        (self.folder / "containerd.toml").write_text(self._containerd())
        (self.folder / "kubelet.yaml").write_text(json.dumps(self._kubelet()))
        (self.folder / "resolv.conf").write_text(f"nameserver {self.addresses.node}\n")
        zone = f"kubernetes cluster.local {{\n    kubeconfig {self.kubeconfig('admin')} local\n  }}"
        (self.folder / "Corefile").write_text(f".:53 {{\n  bind {self.addresses.node}\n  {zone}\n}}\n")

    def _pod_network(self) -> dict[str, object]:
        ipam = {
            "type": "host-local",
            "dataDir": str(self.folder / "addresses"),
            "ranges": [[{"subnet": self.addresses.pods}]],
            "routes": [{"dst": f"{self.addresses.every}/0"}],
        }
        bridge = {"type": "bridge", "bridge": network.BRIDGE, "isGateway": True, "hairpinMode": True, "ipam": ipam}
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        return {"cniVersion": "0.4.0", "name": self.group, "plugins": [bridge, ports]}

    def _containerd(self) -> str:
        # restrict_oom_score_adj: without the capability to lower it, runc ends with "can't get final child's PID from pipe"
        return f"""\
version = 2
root = "{self.folder}/containerd"
state = "{self.runtime}"
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{self.folder}/cni"
"""

    def _kubelet(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": f"{self.folder}/pki/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.group}",
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "address": self.addresses.node,
            "healthzBindAddress": self.addresses.node,
            "clusterDNS": [self.addresses.node],
            "clusterDomain": "cluster.local",
            "resolvConf": f"{self.folder}/resolv.conf",
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "syncFrequency": "10s",
        }

    def commands(self) -> dict[str, list[str | Path]]:
        """Return the command line of every component, in the order in which they start."""
        parts, pki = self.components, self.folder / "pki"

        def as_client(who: str) -> list[str | Path]:
            flags = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
            return [f"--{flag}={self.kubeconfig(who)}" for flag in flags]

        return {
            "containerd": ["containerd", "--config", self.folder / "containerd.toml"],
            "etcd": [
                parts["etcd"],
                f"--data-dir={self.folder}/etcd",
                "--listen-client-urls=http://127.0.0.1:2379",
                "--advertise-client-urls=http://127.0.0.1:2379",
                "--listen-peer-urls=http://127.0.0.1:2380",
                "--unsafe-no-fsync",
            ],
            "kube-apiserver": [parts["kube-apiserver"], *self._api_server_flags(pki)],
            "kube-controller-manager": [
                parts["kube-controller-manager"],
                *as_client("controllers"),
                f"--service-account-private-key-file={pki}/sa.key",
                f"--root-ca-file={pki}/ca.crt",
                "--use-service-account-credentials",
                "--leader-elect=false",
            ],
            "kube-scheduler": [parts["kube-scheduler"], *as_client("scheduler"), "--leader-elect=false"],
            "kubelet": [
                parts["kubelet"],
                f"--config={self.folder}/kubelet.yaml",
                f"--kubeconfig={self.kubeconfig('node')}",
                f"--hostname-override={NODE}",
                f"--node-ip={self.addresses.node}",
                f"--root-dir={self.folder}/kubelet",
            ],
            "kube-proxy": [
                parts["kube-proxy"],
                f"--kubeconfig={self.kubeconfig('proxy')}",
                f"--hostname-override={NODE}",
                "--proxy-mode=iptables",
                f"--cluster-cidr={self.addresses.pods}",
                "--conntrack-max-per-core=0",
                "--conntrack-tcp-timeout-established=0",
                "--conntrack-tcp-timeout-close-wait=0",
            ],
            "coredns": [parts["coredns"], "-conf", self.folder / "Corefile"],
        }

    def _api_server_flags(self, pki: Path) -> list[str | Path]:
        return [
            "--etcd-servers=http://127.0.0.1:2379",
            "--secure-port=6443",
            f"--bind-address={self.addresses.every}",
            f"--advertise-address={self.addresses.node}",
            f"--service-cluster-ip-range={self.addresses.services}",
            f"--tls-cert-file={pki}/api.crt",
            f"--tls-private-key-file={pki}/api.key",
            f"--client-ca-file={pki}/ca.crt",
            f"--service-account-key-file={pki}/sa.pub",
            f"--service-account-signing-key-file={pki}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            f"--kubelet-client-certificate={pki}/admin.crt",
            f"--kubelet-client-key={pki}/admin.key",
            "--kubelet-preferred-address-types=InternalIP",
            "--shutdown-delay-duration=0s",
            "--feature-gates=MutatingAdmissionPolicy=true",  # beta: what a webhook would do, without one
            "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
        ]
