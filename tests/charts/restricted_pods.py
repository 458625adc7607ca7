"""The restricted Pod Security Standard of Kubernetes 1.34, as far as a pod template can break it."""

from collections.abc import Iterator, Mapping
from typing import Any

ALLOWED_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SECCOMP = ("RuntimeDefault", "Localhost")


def violations(template: Mapping[str, Any]) -> list[str]:
    """Return what the standard would refuse, and a root file system that can be written."""
    spec = template["spec"]
    return [*_of_pod(spec), *(violation for each in _containers(spec) for violation in _of_container(each, spec))]


def _containers(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for key in ("containers", "initContainers", "ephemeralContainers") for each in spec.get(key, ())]


def _of_pod(spec: Mapping[str, Any]) -> Iterator[str]:
    for name in ("hostNetwork", "hostPID", "hostIPC", "hostUsers"):
        if spec.get(name):
            yield name
    for volume in spec.get("volumes", ()):
        if not set(volume) - {"name"} <= ALLOWED_VOLUMES:
            yield f"volume {volume}"
    if spec.get("securityContext", {}).get("sysctls"):
        yield "sysctls"


def _of_container(container: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    name = container["name"]
    security_context = container.get("securityContext", {})
    both = {**spec.get("securityContext", {}), **security_context}
    if security_context.get("privileged") or security_context.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: privileges"
    if security_context.get("capabilities") != {"drop": ["ALL"]}:
        yield f"{name}: capabilities"
    if both.get("runAsNonRoot") is not True or both.get("runAsUser") == 0:
        yield f"{name}: root"
    if both.get("seccompProfile", {}).get("type") not in SECCOMP:
        yield f"{name}: seccomp"
    if security_context.get("procMount", "Default") != "Default" or "seLinuxOptions" in security_context:
        yield f"{name}: procMount or SELinux"
    if any("hostPort" in port for port in container.get("ports", ())):
        yield f"{name}: hostPort"
    if any("host" in probe.get("httpGet", {}) for key, probe in container.items() if key.endswith("Probe")):
        yield f"{name}: host of a probe"
    if security_context.get("readOnlyRootFilesystem") is not True:
        yield f"{name}: root file system"
