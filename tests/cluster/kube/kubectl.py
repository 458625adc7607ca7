"""kubectl against one cluster."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kube.commands import run


class Kubectl:
    """Run kubectl, and read and write objects by it."""

    def __init__(self, program: Path | str, kubeconfig: Path, entering: Sequence[str] = ()) -> None:
        """
        Parameters
        ----------
        kubeconfig
            The file that says which cluster and which user.
        entering
            What goes before a command so that it runs in the cluster's network; empty where the cluster is reachable from here.
        """
        self.program = str(program)
        self.kubeconfig = kubeconfig
        self.entering = tuple(entering)

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables for a program (fedctl, helm) that is to find the same cluster."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def __call__(
        self, *arguments: str | Path, check: bool = True, text: str | None = None, seconds: float = 300
    ) -> str:
        """
        Run kubectl with these arguments and return what it wrote to stdout.

        Raises
        ------
        CommandFailed
            It refused, or the API server did.
        """
        command = (*self.entering, self.program, *arguments)
        return run(*command, check=check, text=text, seconds=seconds, environment=self.environment)

    def apply(self, *objects: Mapping[str, Any], namespace: str | None = None) -> str:
        """Apply objects (server-side apply is for the operator; this is what a person does)."""
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        where = ("--namespace", namespace) if namespace else ()
        return self("apply", "--filename", "-", *where, text=body)

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        """Return one object, or None where there is none."""
        where = ("--namespace", namespace) if namespace else ()
        actual = self("get", kind, name, "--output=json", "--ignore-not-found", *where)
        return dict(json.loads(actual)) if actual else None

    def objects(self, kinds: str, namespace: str | None = None, selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of these kinds (comma-separated)."""
        where = ("--namespace", namespace) if namespace else ()
        chosen = ("--selector", selector) if selector else ()
        return list(json.loads(self("get", kinds, "--output=json", *where, *chosen))["items"])
