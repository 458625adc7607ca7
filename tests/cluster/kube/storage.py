"""Local volumes (hostPath is forbidden under the restricted Pod Security Standard, and does not honour fsGroup)."""

import shutil
import uuid
from pathlib import Path
from typing import Any

from kube.kubectl import Kubectl
from kube.settings import NODE

CLASS = "standard"


def storage_class() -> dict[str, Any]:
    """Return the default storage class of the volumes that `Disks` makes."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def local_volume(name: str, path: Path, mode: str, claim: tuple[str, str] | None = None) -> dict[str, Any]:
    """
    Return a PersistentVolume whose content is a folder of the node.

    Parameters
    ----------
    mode
        Its access mode.
    claim
        Namespace and name of the only claim that may have it; without, any claim of the default class.
    """
    node = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}
    spec: dict[str, Any] = {
        "capacity": {"storage": "100Gi"},
        "accessModes": [mode],
        "persistentVolumeReclaimPolicy": "Retain",
        "local": {"path": str(path)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [node]}},
    }
    if claim is None:
        spec["storageClassName"] = CLASS
    else:
        spec |= {"storageClassName": "", "claimRef": {"namespace": claim[0], "name": claim[1]}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def bound_claim(name: str, volume: str, mode: str) -> dict[str, Any]:
    """Return the claim of this name on one certain volume."""
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": [mode], "storageClassName": "", "volumeName": volume, "resources": resources}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


class Disks:
    """A supply of empty volumes of the default class, as an administrator of a small cluster keeps it."""

    def __init__(self, kubectl: Kubectl, folder: Path, count: int = 24) -> None:
        self._kubectl = kubectl
        self._folder = folder
        self._count = count

    def replenish(self) -> None:
        """Destroy the volumes whose claim is gone, and see to it that `count` are free."""
        volumes = self._kubectl.objects("persistentvolumes")
        disks = [each for each in volumes if each["spec"].get("storageClassName") == CLASS]
        released = [each for each in disks if each.get("status", {}).get("phase") in ("Released", "Failed")]
        for volume in released:
            self._kubectl("delete", "persistentvolume", volume["metadata"]["name"], "--wait=true")
            shutil.rmtree(volume["spec"]["local"]["path"], ignore_errors=True)
        free = [each for each in disks if each.get("status", {}).get("phase") in ("Available", "Pending", None)]
        made = []
        for _ in range(self._count - len(free)):
            name = f"disk-{uuid.uuid4().hex[:10]}"
            (self._folder / name).mkdir(parents=True)
            made.append(local_volume(name, self._folder / name, "ReadWriteOnce"))
        if made:
            self._kubectl.apply(*made)
