"""Makes the pictures of a run on the pages: runs examples/digits.yaml, and takes its report and its results in ``mlflow ui`` in headless Chromium.

``python tools/run_pictures.py`` needs Chromium and takes minutes; ``--run DIR`` takes the pictures of a run that is there.
"""

import argparse
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from urllib.request import urlopen

from mlflow.tracking import MlflowClient
from PIL import Image

from browser import Page, browser, child, until

ROOT = Path(__file__).parents[1]
SHOWN = ROOT / "docs" / "mlflow"
REPORT = ROOT / "docs" / "report.png"
LARGEST_BYTES = 150_000
WIDTH, REPORT_HEIGHT = 1280, 1500
"""Of the window, in pixels."""
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


def show(page: Page, address: str, condition: str, height: int) -> Image.Image:
    """Open an address, wait for a condition, and return a picture."""
    page.resize(WIDTH, height)
    page.call("Page.navigate", url="about:blank")
    page.call("Page.navigate", url=address)
    page.wait(f"document.body && ({condition})")
    page.call("Runtime.evaluate", expression=QUIET)
    page.evaluate("new Promise(done => requestIdleCallback(() => setTimeout(done, 4000)))")
    return Image.open(BytesIO(page.picture()))


def save(picture: Image.Image, file: Path) -> None:
    """Write a picture in few colours, and end where it is too large for a page."""
    picture.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE).save(file, optimize=True)
    sys.stdout.write(f"{file}: {file.stat().st_size} bytes\n")
    if file.stat().st_size > LARGEST_BYTES:
        sys.exit(f"{file} is larger than {LARGEST_BYTES} bytes")


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


def answers(address: str) -> bool:
    """Return whether a server answers."""
    try:
        with urlopen(address) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def views(run_id: str, experiment: str) -> Iterator[tuple[str, str, str, int]]:
    """Yield each picture's name, the address, what shows that it is there, and its height in pixels."""
    run, page_text = f"experiments/{experiment}/runs/{run_id}", "document.body.innerText"
    figure = "[...document.images].some(image => image.src.startsWith('blob:') && image.naturalWidth > 100)"
    drawn = "document.querySelectorAll('.js-plotly-plot .main-svg path.js-line').length > 2"
    yield "experiment", f"experiments/{experiment}?{TRAINING}", f"{page_text}.includes('FedAnchor seed')", 520
    yield (
        "run",
        f"{run}?{TRAINING}",
        f"{page_text}.includes('labels alone') && {page_text}.includes('method.pseudoLabels')",
        1300,
    )
    for name, section in (("silo-curves", "silo/silo-a"), ("model-curves", "Model metrics")):
        yield name, f"{run}/model-metrics?{TRAINING}", f"{drawn} && {SCROLLED % section}", 900
    yield "results", f"{run}/artifacts/0-results.md?{TRAINING}", f"{page_text}.includes('labels alone')", 560
    for name in ("confusion", "reliability", "roc", "embeddings"):
        yield name, f"{run}/artifacts/figures/final/{name}.png?{TRAINING}", figure, 800


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="working folder of a run of examples/digits.yaml that is over")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="anchorage-pictures-") as folder:
        run = (options.run or Path(folder) / "digits").resolve()
        if options.run is None:
            begin = [sys.executable, "-m", "fedctl.main", "run", "-f", str(ROOT / "examples" / "digits.yaml")]
            subprocess.run([*begin, "--workdir", str(run)], check=True)
        uri = f"sqlite:///{run / 'mlflow.db'}"
        client = MlflowClient(uri)
        (experiment,) = client.search_experiments(filter_string="name = 'digits'")
        (recorded,) = client.search_runs([experiment.experiment_id])
        with browser() as page:
            save(
                show(
                    page,
                    (run / "report.html").as_uri(),
                    "[...document.images].every(image => image.complete)",
                    REPORT_HEIGHT,
                ),
                REPORT,
            )
            with interface(uri) as address:
                for name, path, condition, height in views(recorded.info.run_id, experiment.experiment_id):
                    save(show(page, f"{address}/#/{path}", condition, height), SHOWN / f"{name}.png")


if __name__ == "__main__":
    main()
