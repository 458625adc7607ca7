"""An API server behind a Unix socket: many questions without starting a kubectl for each."""

import json
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kube.kubectl import Kubectl

ANSWER_SECONDS = 60.0


class Proxy(HTTPConnection):
    """A connection to `kubectl proxy`, which knows the way into the cluster's network and who asks."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_SECONDS)
        self._path = path

    @classmethod
    @contextmanager
    def started(cls, kubectl: Kubectl) -> Iterator["Proxy"]:
        """Start the proxy; end it when the block ends."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "api"
            command = [*kubectl.entering, kubectl.program, "proxy", f"--unix-socket={path}"]
            process = subprocess.Popen(command, env=dict(kubectl.environment), stdout=subprocess.PIPE)
            try:
                assert process.stdout is not None
                process.stdout.readline()  # that it serves now; the end of the file where it does not
                with closing(cls(path)) as proxy:
                    yield proxy
            finally:
                process.terminate()
                process.communicate()

    def connect(self) -> None:
        """Connect to the socket; `request` calls this."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post an object to a path, and return the object, or the Status that refuses it, that the API server answers."""
        self.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return dict(json.loads(self.getresponse().read()))
