"""Makes the pictures of docs/mlflow.md: runs examples/digits.yaml, opens its results with ``mlflow ui``, and takes them in headless Chromium.

``python tools/mlflow_pictures.py`` needs Chromium and takes minutes; ``--run DIR`` takes the pictures of a run that is there.
"""

import argparse
import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from urllib.request import urlopen

from mlflow.tracking import MlflowClient
from PIL import Image
from websocket import WebSocket, create_connection

ROOT = Path(__file__).parents[1]
SHOWN = ROOT / "docs" / "mlflow"
PATIENCE_SECONDS = 180.0
LARGEST_BYTES = 150_000
WIDTH = 1280
QUIET = """
for (const button of document.querySelectorAll("button[aria-label*='Close' i], button[aria-label*='Collapse' i]")) button.click();
"""
"""Closes the panels and hints that MLflow opens on a first visit."""

TRAINING = "workflowType=machine_learning"
"""What the switch "Model training" at the top left adds to addresses."""
SCROLLED = """(() => {
  const texts = [...document.querySelectorAll("div")].map(e => [e, (e.innerText || "").trim().replace(/\\s+/g, " ")]);
  const found = texts.filter(([e, text]) => text.startsWith("%s (") && text.length < 40);
  if (found.length) found.at(-1)[0].scrollIntoView();
  return found.length;
})()"""
"""Scrolls to a section of charts, and is true when it is there."""


class Page:
    """A page of a browser, driven over its debugging protocol.

    Parameters
    ----------
    address : str
        Of the page's WebSocket.
    """

    def __init__(self, address: str) -> None:
        self._socket: WebSocket = create_connection(address, timeout=PATIENCE_SECONDS, suppress_origin=True)
        self._sent = 0

    def call(self, method: str, **values: object) -> dict[str, object]:
        """Call a method of the protocol and return its result."""
        self._sent += 1
        self._socket.send(json.dumps({"id": self._sent, "method": method, "params": values}))
        while (answer := json.loads(self._socket.recv())).get("id") != self._sent:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        found: dict[str, object] = answer["result"]
        return found

    def wait(self, condition: str) -> None:
        """Wait until an expression of JavaScript is true."""
        look = f"new Promise(done => {{ const look = () => ({condition}) ? done(1) : setTimeout(look, 100); look(); }})"
        self.call("Runtime.evaluate", expression=look, awaitPromise=True)

    def show(self, address: str, condition: str, height: int) -> bytes:
        """Open an address, wait for a condition, and return a picture, PNG."""
        size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)
        self.wait(f"document.body && ({condition})")
        self.call("Runtime.evaluate", expression=QUIET)
        settled = "new Promise(done => requestIdleCallback(() => setTimeout(done, 4000)))"
        self.call("Runtime.evaluate", expression=settled, awaitPromise=True)
        return base64.b64decode(str(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser() -> Iterator[Page]:
    """Yield a page of a browser without a display."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        sys.exit("needs Chromium (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory(prefix="anchorage-browser-", ignore_cleanup_errors=True) as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run"]
        with child([found, *options, f"--user-data-dir={profile}", "about:blank"]):
            port = Path(profile) / "DevToolsActivePort"
            until(lambda: port.exists() and len(port.read_text().splitlines()) == 2)
            where = f"http://127.0.0.1:{port.read_text().split()[0]}/json/list"
            pages = [page for page in json.loads(urlopen(where).read()) if page["type"] == "page"]
            yield Page(pages[0]["webSocketDebuggerUrl"])


@contextmanager
def interface(uri: str) -> Iterator[str]:
    """Yield the address of ``mlflow ui`` over a store."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri, "--port", str(port), "--workers", "1"]
    with child(command):
        until(lambda: answers(f"{address}/health"))
        yield address


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


def answers(address: str) -> bool:
    """Return whether a server answers."""
    try:
        with urlopen(address) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def until(condition: object) -> None:
    """Wait until a function returns something true."""
    ends = time.monotonic() + PATIENCE_SECONDS
    assert callable(condition)
    while not condition():
        if time.monotonic() > ends:
            raise TimeoutError("it takes too long")
        time.sleep(0.2)


def views(run_id: str, experiment: str) -> Iterator[tuple[str, str, str, int]]:
    """Yield each picture's name, the address, what shows that it is there, and its height in pixels."""
    run, told = f"experiments/{experiment}/runs/{run_id}", "document.body.innerText"
    figure = "[...document.images].some(image => image.src.startsWith('blob:') && image.naturalWidth > 100)"
    drawn = "document.querySelectorAll('.js-plotly-plot .main-svg path.js-line').length > 2"
    yield "experiment", f"experiments/{experiment}?{TRAINING}", f"{told}.includes('FedAnchor seed')", 520
    yield "run", f"{run}?{TRAINING}", f"{told}.includes('labels alone') && {told}.includes('method.pseudoLabels')", 1300
    for name, section in (("silo-curves", "silo/silo-a"), ("model-curves", "Model metrics")):
        yield name, f"{run}/model-metrics?{TRAINING}", f"{drawn} && {SCROLLED % section}", 900
    yield "results", f"{run}/artifacts/0-results.md?{TRAINING}", f"{told}.includes('labels alone')", 560
    for name in ("confusion", "reliability", "roc", "embeddings"):
        yield name, f"{run}/artifacts/figures/final/{name}.png?{TRAINING}", figure, 800


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="working folder of a run of examples/digits.yaml that is over")
    parser.add_argument("--out", type=Path, default=SHOWN, help="folder of the pictures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="anchorage-pictures-") as folder:
        run = (options.run or Path(folder) / "digits").resolve()
        if options.run is None:
            begin = [sys.executable, "-m", "fedctl.main", "run", "-f", str(ROOT / "examples" / "digits.yaml")]
            subprocess.run([*begin, "--workdir", str(run)], check=True)
        uri = f"sqlite:///{run / 'mlflow.db'}"
        client = MlflowClient(uri)
        (experiment,) = client.search_experiments(filter_string="name = 'digits'")
        (found,) = client.search_runs([experiment.experiment_id])
        options.out.mkdir(exist_ok=True)
        with interface(uri) as address, browser() as page:
            for name, path, condition, height in views(found.info.run_id, experiment.experiment_id):
                picture = Image.open(BytesIO(page.show(f"{address}/#/{path}", condition, height)))
                file = options.out / f"{name}.png"
                picture.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE).save(file, optimize=True)
                sys.stdout.write(f"{file}: {file.stat().st_size} bytes\n")
                if file.stat().st_size > LARGEST_BYTES:
                    sys.exit(f"{file} is larger than {LARGEST_BYTES} bytes")


if __name__ == "__main__":
    main()
