"""Charts, rendered by a real helm."""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

CHARTS = Path(__file__).resolve().parents[2] / "charts"
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
KUBERNETES = "1.34.0"

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""A chart with its definitions is a hundred kilobytes of YAML, which the loader in Python takes a second for."""

Values = Mapping[str, Any]

AUTHORITY = "-----BEGIN CERTIFICATE-----\nTUlJQg==\n-----END CERTIFICATE-----\n"
ENROLMENT: Values = {
    "federation": "derm",
    "silo": "hospital-a",
    "labels": "None",
    "server": "federation.example.org:8443",
    "enrolment": "federation.example.org:8444",
    "authority": AUTHORITY,
    "token": "one-time-token",
}
DATA: Values = {"format": "ImageFolder", "claimName": "images", "path": "dermoscopy"}
SITE: Values = {"enrolment": ENROLMENT, "data": DATA}
"""The least that charts/silo-agent takes."""


@dataclass(frozen=True)
class Answer:
    """What helm said."""

    ok: bool
    out: str
    error: str


class Helm:
    """The charts of this repository, through the helm at a path."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program = program
        self._folder = folder

    def run(self, *arguments: str | Path) -> Answer:
        """Run helm, with a home of its own."""
        environment = {**os.environ, "HELM_CACHE_HOME": f"{self._folder}/c", "HELM_CONFIG_HOME": f"{self._folder}/k"}
        command = [str(self._program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
        return Answer(done.returncode == 0, done.stdout, done.stderr)

    def try_template(self, chart: str | Path, values: Values, *, release: str = "rel", namespace: str = "ns") -> Answer:
        """Render a chart, or hear why not."""
        file = self._folder / "values.yaml"
        file.write_text(json.dumps(dict(values)), encoding="utf-8")  # YAML, in which every text is quoted
        place = chart if isinstance(chart, Path) else CHARTS / chart
        return self.run(
            "template", release, place, "--namespace", namespace, "--values", file, "--kube-version", KUBERNETES
        )

    def template(self, chart: str | Path, values: Values, **names: str) -> list[dict[str, Any]]:
        """Render a chart into its objects."""
        answer = self.try_template(chart, values, **names)
        assert answer.ok, answer.error
        return [document for document in yaml.load_all(answer.out, Loader=LOADER) if document]

    def notes(self, chart: str, values: Values, **names: str) -> str:
        """Render a chart's NOTES.txt, which `helm template` leaves out."""
        copy = self._folder / f"notes-{chart}"
        if not copy.exists():
            shutil.copytree(CHARTS / chart, copy)
            notes = copy / "templates" / "NOTES.txt"
            notes.rename(notes.with_name("_notes.tpl"))
            text = notes.with_name("_notes.tpl").read_text(encoding="utf-8")
            notes.with_name("_notes.tpl").write_text(
                '{{- define "notes" -}}\n' + text + "\n{{- end -}}", encoding="utf-8"
            )
            notes.with_name("notes.yaml").write_text('notes: {{ include "notes" . | toJson }}\n', encoding="utf-8")
        (release_notes,) = (
            document["notes"] for document in self.template(copy, values, **names) if "notes" in document
        )
        return str(release_notes)


def find_helm() -> Path:
    """Return helm 3: of ANCHORAGE_HELM, of the PATH, of the cache, else compiled into it; skip where that is impossible."""
    if helm_path := os.environ.get("ANCHORAGE_HELM") or shutil.which("helm"):
        return Path(helm_path)
    cache = Path(os.environ.get("ANCHORAGE_CLUSTER_CACHE") or Path.home() / ".cache" / "anchorage-cluster")
    for built in (cache / "bin" / "helm", *sorted(cache.glob("components-*/helm"))):
        if built.exists() and not built.parent.name.endswith(".unfinished"):
            return built
    if shutil.which("go") is None:
        pytest.skip("found no helm: set ANCHORAGE_HELM, put helm 3 on the PATH, or install Go to compile it")
    return _compiled(cache / "bin")


def _compiled(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "helm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "helm").exists():
            environment = {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"}
            command = ["go", "install", "-trimpath", "-ldflags", "-s -w", HELM]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500, check=False)
            if done.returncode:
                pytest.skip(f"cannot compile helm: {done.stderr.strip().splitlines()[-1]}")
    return folder / "helm"


def of_kind(objects: list[dict[str, Any]], kind: str, name: str | None = None) -> dict[str, Any]:
    """Return the one object of a kind (and name)."""
    matches = [each for each in objects if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    assert len(matches) == 1, [(each["kind"], each["metadata"]["name"]) for each in objects]
    return matches[0]


def pod_templates(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pod template of every object that has one, with the object's name."""
    for each in objects:
        if each["kind"] in ("Deployment", "StatefulSet", "DaemonSet", "Job"):
            yield f"{each['kind']}/{each['metadata']['name']}", each["spec"]["template"]


def container(objects: list[dict[str, Any]], kind: str, name: str | None = None) -> dict[str, Any]:
    """Return the one container of the one object of a kind."""
    (container,) = of_kind(objects, kind, name)["spec"]["template"]["spec"]["containers"]
    return dict(container)
