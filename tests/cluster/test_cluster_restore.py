"""All that the coordinating site had of a federation is lost and restored from a backup, as docs/operations.md says."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster_documents import STUDY
from cluster_hospital import HOSPITAL, TwoSites, at_work, digests_in, undisturbed
from cluster_namespace import Namespace
from kube import Cable
from kube.commands import run
from kube.storage import bound_claim, local_volume

VOLUME = f"state-{STUDY}-server-0"
ROUNDS_SINCE = 2
"""Rounds that are played after the backup, and lost."""


def backup(sites: TwoSites, folder: Path) -> list[Mapping[str, Any]]:
    """Copy the server's volume into a folder; return documents and Secrets, without what the API server wrote into them."""
    with sites.coordinator.silent("anchorage_server"):
        run("cp", "--archive", sites.here.server_state(STUDY), folder)
    secrets = sites.here.objects("secrets", f"anchorage.dev/federation={STUDY}")
    secrets_kept = [each for each in secrets if each["metadata"]["name"] != f"{STUDY}-server-tls"]
    for secret in secrets_kept:
        secret["metadata"] = {key: secret["metadata"][key] for key in ("name", "labels")}
    documents = [
        {"apiVersion": each["apiVersion"], "kind": each["kind"], "metadata": {"name": each["metadata"]["name"]}, "spec": each["spec"]}
        for each in sites.here.objects("federations,silos")
    ]  # fmt: skip
    return [*secrets_kept, *documents]


def lose(namespace: Namespace) -> None:
    """Delete the federation with all that belongs to it, its Secrets and its volume's claim, too."""
    namespace.kubectl("delete", "federation,silo", "--all", "--wait=true", seconds=600)
    namespace.kubectl("delete", "secret", "--selector", f"anchorage.dev/federation={STUDY}")
    namespace.eventually("the server's pod is gone", lambda: namespace.get("pod", f"{STUDY}-server-0") is None)
    namespace.kubectl("delete", "persistentvolumeclaim", VOLUME, "--ignore-not-found", "--wait=true")


def test_restore(started: Namespace, hospital: Namespace, cable: Cable, tmp_path: Path) -> None:
    sites = at_work(started, hospital, cable)
    key = approve(started)
    assert started.site.cluster is not None
    folder = started.site.cluster.folder / f"backup-{started.name}"
    backup_files = backup(sites, folder)
    saved = digests_in(folder)
    started.wait_for_round(STUDY, len(saved) - 1 + ROUNDS_SINCE)
    lose(started)

    started.site.kubectl.apply(
        local_volume(f"restored-{started.name}", folder, "ReadWriteOnce", claim=(started.name, VOLUME))
    )
    started.apply(bound_claim(VOLUME, f"restored-{started.name}", "ReadWriteOnce"), *backup_files)
    started.wait_for_condition("silo", HOSPITAL, "Approved", "Unknown", "PendingApproval")
    assert approve(started) == key
    started.wait_for_round(STUDY, len(saved) - 1 + ROUNDS_SINCE)
    started.patch("federation", STUDY, {"spec": {"suspend": True}})
    played = digests_in(started.server_state(STUDY))
    assert played == undisturbed(tmp_path, len(played) - 1)


def approve(namespace: Namespace) -> str:
    """Approve the hospital, and return the key that is shown."""
    shown = namespace.fedctl("silo", "approve", STUDY, HOSPITAL, "--output", "json")
    return str(json.loads(shown)["key"])
