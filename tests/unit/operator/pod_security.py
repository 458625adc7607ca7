"""The restricted Pod Security Standard, as the API server's admission checks it (Kubernetes 1.34), for pod templates."""

from collections.abc import Iterator, Mapping
from typing import Any

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
PROFILES = {"RuntimeDefault", "Localhost"}


def violations(template: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the standard forbids in a pod template."""
    spec = template["spec"]
    pod = spec.get("securityContext", {})
    for field in ("hostNetwork", "hostPID", "hostIPC", "hostUsers"):
        if spec.get(field):
            yield field
    for volume in spec.get("volumes", ()):
        yield from (f"volume {volume['name']}: {kind}" for kind in volume.keys() - {"name"} - VOLUMES)
    if pod.get("sysctls"):
        yield "sysctls"
    for container in [*spec.get("initContainers", ()), *spec["containers"]]:
        security_context = container.get("securityContext", {})
        name = container["name"]
        if security_context.get("privileged"):
            yield f"{name}: privileged"
        if security_context.get("allowPrivilegeEscalation") is not False:
            yield f"{name}: allowPrivilegeEscalation"
        if security_context.get("capabilities", {}).get("drop") != ["ALL"] or set(
            security_context["capabilities"].get("add", ())
        ) - {"NET_BIND_SERVICE"}:
            yield f"{name}: capabilities"
        if not security_context.get("runAsNonRoot", pod.get("runAsNonRoot")):
            yield f"{name}: runAsNonRoot"
        if security_context.get("runAsUser", pod.get("runAsUser")) == 0:
            yield f"{name}: runAsUser"
        if security_context.get("seccompProfile", pod.get("seccompProfile", {})).get("type") not in PROFILES:
            yield f"{name}: seccompProfile"
        if security_context.get("procMount", "Default") != "Default":
            yield f"{name}: procMount"
        yield from (f"{name}: hostPort" for port in container.get("ports", ()) if port.get("hostPort"))
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if container.get(probe, {}).get("httpGet", {}).get("host"):
                yield f"{name}: {probe} host"
