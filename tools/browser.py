"""Headless Chromium, driven over its debugging protocol: pictures of docs/mlflow.md, and the test of the documentation site."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from websocket import WebSocket, create_connection

PATIENCE_SECONDS = 180.0
NEEDED = "Chromium (Debian: apt-get install chromium)"


def find_chromium() -> str | None:
    """Return the path of Chromium or Chrome, if one is installed."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page:
    """A page of a browser, driven over its debugging protocol.

    Parameters
    ----------
    address : str
        Of the page's WebSocket.

    Attributes
    ----------
    events : list of dict
        What the browser reported of the page until the last call ended, in order: ``method`` and ``params`` each.
    """

    def __init__(self, address: str) -> None:
        self._socket: WebSocket = create_connection(address, timeout=PATIENCE_SECONDS, suppress_origin=True)
        self._sent = 0
        self.events: list[dict[str, object]] = []

    def call(self, method: str, **values: object) -> dict[str, object]:
        """Call a method of the protocol and return its result."""
        self._sent += 1
        self._socket.send(json.dumps({"id": self._sent, "method": method, "params": values}))
        while (answer := json.loads(self._socket.recv())).get("id") != self._sent:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        result: dict[str, object] = answer["result"]
        return result

    def evaluate(self, expression: str) -> object:
        """Return the value of an expression of JavaScript; of a promise, what it resolves to.

        Raises
        ------
        RuntimeError
            The expression raised an exception.
        """
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"the page raised {json.dumps(answer['exceptionDetails'])[:1000]}")
        result = answer["result"]
        assert isinstance(result, dict)
        return result.get("value")

    def close(self) -> None:
        """End the connection to the browser."""
        self._socket.close()

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def picture(self) -> bytes:
        """Return what the window shows, PNG."""
        return base64.b64decode(str(self.call("Page.captureScreenshot", format="png")["data"]))

    def wait(self, condition: str) -> None:
        """Wait until an expression of JavaScript is true."""
        self.evaluate(
            f"new Promise(done => {{ const look = () => ({condition}) ? done(1) : setTimeout(look, 100); look(); }})"
        )


@contextmanager
def browser() -> Iterator[Page]:
    """Yield a page of a browser without a display, or exit with a message where there is none."""
    program = find_chromium()
    if program is None:
        sys.exit(f"needs {NEEDED}")
    with tempfile.TemporaryDirectory(prefix="anchorage-browser-", ignore_cleanup_errors=True) as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run"]
        with child([program, *options, f"--user-data-dir={profile}", "about:blank"]):
            port = Path(profile) / "DevToolsActivePort"
            until(lambda: port.exists() and len(port.read_text().splitlines()) == 2)
            where = f"http://127.0.0.1:{port.read_text().split()[0]}/json/list"
            pages = [page for page in json.loads(urlopen(where).read()) if page["type"] == "page"]
            page = Page(pages[0]["webSocketDebuggerUrl"])
            try:
                yield page
            finally:
                page.close()


@contextmanager
def child(command: list[str]) -> Iterator[None]:
    """Run a command, and end it with all that it started."""
    quiet = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    process = subprocess.Popen(
        command, env=quiet, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        os.killpg(process.pid, 15)
        process.wait()


def until(condition: Callable[[], object]) -> None:
    """Wait until a function returns something true."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > ends:
            raise TimeoutError("it takes too long")
        time.sleep(0.2)
