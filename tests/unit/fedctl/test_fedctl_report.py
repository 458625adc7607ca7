"""`fedctl report`: the page parses, holds everything that it shows, shows foreign text as text, and reads well in a browser."""

import base64
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest
from finished_run import assessment, make_run
from typer.testing import CliRunner

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.errors.tracking import TRACKING_UNREACHABLE
from anchorage.api.model_card import CARD
from anchorage.engine.embedding_plane import EmbeddingPlane
from anchorage.engine.interfaces import RoundRecord, SiloRecord
from anchorage.engine.store.records import record_to_json
from anchorage.engine.tracking import Outbox, Sent
from anchorage.methods.model_card import write_card
from fedctl import report_figures
from fedctl.local_run import report_at_end
from fedctl.local_source import LocalSource
from fedctl.main import app
from fedctl.report import complete_card, send_card, write_report
from fedctl.report_figures import Picture
from fedctl.sites_alone import AloneScores

HOSTILE = "<script>alert(1)</script> ![x](http://example.org/x.png) $\\frac"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page(HTMLParser):
    """The elements and addresses of a page; refuses what is closed out of order."""

    VOID = ("meta", "img", "br", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.headings: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        assert not [name for name in values if name.startswith("on")]
        self.addresses += [str(values[name]) for name in ("src", "href", "action", "data", "srcset") if name in values]
        if tag == "img":
            self.images.append(values)
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("h1", "h2"):
            self.headings.append(data)


def pictures(page: Page) -> dict[str, ElementTree.Element]:
    figures = {}
    for image in page.images:
        kind, _, content = str(image["src"]).partition(",")
        assert kind == "data:image/svg+xml;base64"
        figures[str(image["alt"]).split(".")[0]] = ElementTree.fromstring(base64.b64decode(content))
    return figures


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a page's pictures empty: drawing them takes most of a page's time."""
    import_module("fedctl.embedding_figures")  # imported under the patch, it would keep the empty pictures
    monkeypatch.setattr(report_figures, "render_picture", lambda title, says, draw, size=None: Picture(title, says, ""))


def test_the_page_of_a_finished_run_has_everything_within_itself(tmp_path: Path) -> None:
    run = make_run(tmp_path, names=["naevus", "melanoma"])
    complete_card(run, AloneScores({"accuracy": 0.6543, "loss": float("nan")}, {"silo-1": {"accuracy": 0.25}}))
    text = write_report(LocalSource(run), run.report).read_text()
    page = Page(text)
    drawn = pictures(page)
    assert list(drawn) == [
        "Scores of the model",
        "Losses",
        "Weight of each silo's update",
        "Accepted pseudo-labels at each silo",
        "Accuracy at each silo",
        "Confusion matrix, test images",
        "Reliability, test images",
        "ROC of each class against the rest, test images",
    ]
    assert all(picture.tag.endswith("svg") for picture in drawn.values())
    assert all(address.startswith("data:") for address in page.addresses)
    assert "http" not in re.sub(r"base64,[^']+|http-equiv", "", text) and not {"script", "link", "iframe"} & set(
        page.tags
    )
    assert page.headings[0] == "digits" and "Model card: digits" in page.headings
    assert page.tags.count("h1") == 1
    for figure in ("0.7123", "0.6543", "2 update", "2.5 kB", "melanoma", "Annex IV"):
        assert figure in text, figure
    card = LocalSource(run).card()
    assert card is not None and card.labels_alone == {"accuracy": 0.6543}
    assert card.sites_alone == {"silo-1": {"accuracy": 0.25}}
    first_screen = text.split("<h2>")[0]
    assert (
        "0.712 on 90 test images: 46.2 points above silo-1 alone (0.250) and 5.8 points above the labels"
        in first_screen
    )


@pytest.mark.usefixtures("undrawn")
def test_the_first_screen_has_problems_and_notes_on_the_last_rounds(tmp_path: Path) -> None:
    run = make_run(tmp_path, names=["a", "b"], accepted=100)
    first, notes, *_ = write_report(LocalSource(run), run.report).read_text().split("<h2>")
    complete_card(run, AloneScores({"accuracy": 0.8}))
    below = write_report(LocalSource(run), run.report).read_text().split("<h2>")[0]
    sentence = "The federation is 8.8 points below the labels alone"
    assert sentence not in first and sentence in below
    assert "<code>docs/reading-a-result.md#below-the-labels-alone</code>" in below
    assert notes.startswith("Notes on the last rounds</h2>") and "every silo accepts all its pseudo-labels" in notes


def test_embeddings_and_right_pseudo_labels_are_drawn_where_records_have_them(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    plane = EmbeddingPlane("encoder", "TSNE", ((3, 3, 0.5, 1.0), (9, 9, 1.5, 2.0), (0, 5, 2.5, 0.0)))
    history = []
    for number in range(3):
        part = SiloRecord("a", "Counted", 1.0, {}, {"pseudo_label_accuracy": 0.25 * number})
        history.append(RoundRecord(number, "d", 1.0, {}, (part,), embeddings=plane if number != 1 else None))
    run.journal.write_text("".join(json.dumps(record_to_json(record)) + "\n" for record in history))
    page = Page(write_report(LocalSource(run), run.report).read_text())
    alternatives = [str(image["alt"]) for image in page.images]
    assert alternatives[1:] == [
        "Right ones among the accepted pseudo-labels at each silo. At the end: a 0.5.",
        "t-SNE of encoder, round 0. 2 of 3 images are predicted rightly.",
        "t-SNE of encoder, round 2. 2 of 3 images are predicted rightly.",
    ]
    assert "Embeddings of validation images" in page.headings
    assert len(pictures(page)) == 4


def test_mlflow_takes_the_completed_card_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, messages = make_run(tmp_path, names=["naevus", "melanoma"]), list[str]()
    complete_card(run, AloneScores())
    assert not run.outbox.exists() and send_card(run, "sqlite:///x", messages.append) is None
    Outbox(run.outbox).close()
    assert send_card(run, "sqlite:///x", messages.append) is None and not messages
    down = AnchorageError(TRACKING_UNREACHABLE, "down")

    class Down:
        def __init__(self, outbox: Path, uri: str) -> None:
            assert (outbox, uri) == (run.outbox, "sqlite:///x")

        def finish(self) -> Sent:
            return Sent("", "", "", "", down)

    monkeypatch.setattr("fedctl.report.Sender", Down)
    for _ in range(2):
        complete_card(run, AloneScores({"accuracy": 0.5}))
        assert send_card(run, "sqlite:///x", messages.append) is down
    assert [(event["kind"], event["models"]) for event in Outbox(run.outbox).events()] == [("card", str(run.model))]
    assert messages == ["sending the completed model card to MLflow"] * 2


@pytest.mark.usefixtures("undrawn")
def test_a_supervised_bound_stands_in_the_card(tmp_path: Path) -> None:
    run, bound = (make_run(tmp_path / name, names=["naevus", "melanoma"]) for name in ("run", "bound"))
    simulated = tmp_path / "simulated" / "models" / "1"
    card = LocalSource(bound).card()
    assert card is not None and card.final.assessment is not None
    higher = card.final.assessment.model_copy(update={"metrics": {"accuracy": 0.9876}})
    silos = tuple(silo.model_copy(update={"labels": "All"}) for silo in card.silos)
    supervised = {"silos": silos, "final": card.final.model_copy(update={"assessment": higher})}

    def told(folder: Path) -> str:
        result = CliRunner().invoke(app, ["report", str(run.root), "--bound", str(folder)])
        return str(result.exception or run.report.read_text())

    assert "is no supervised bound: that has labels: All at every silo" in told(bound.root)
    assert "has no model card of a finished run of seed 1" in told(tmp_path)
    other = card.final.model_copy(update={"assessment": assessment(["naevus", "other"])})
    write_card(bound.model, card.model_copy(update={**supervised, "final": other}))
    assert "was not scored on the images of this run" in told(bound.root)
    simulated.mkdir(parents=True)
    write_card(simulated, card.model_copy(update=supervised))
    page = told(tmp_path / "simulated")
    assert "0.9876" in page and "supervised bound" in page
    completed = LocalSource(run).card()
    assert completed is not None and completed.supervised_bound == {"accuracy": 0.9876}
    bare = make_run(tmp_path / "unfinished")
    result = CliRunner().invoke(app, ["report", str(bare.root), "--bound", str(bound.root)])
    assert "is not over" in str(result.exception)


def test_foreign_names_are_shown_as_text(tmp_path: Path) -> None:
    run = make_run(tmp_path, names=[HOSTILE, "b"])
    page = Page(write_report(LocalSource(run), run.report).read_text())
    assert "script" not in page.tags and "a" not in page.tags
    assert all(address.startswith("data:") for address in page.addresses)
    assert len(pictures(page)) == 8


def test_equal_runs_give_equal_pages(tmp_path: Path) -> None:
    run = make_run(tmp_path, names=["a", "b"])
    first, second = (write_report(LocalSource(run), tmp_path / f"{n}.html").read_bytes() for n in (1, 2))
    assert first == second


def test_a_run_under_way_has_a_page_without_a_card(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    page = Page(text := write_report(LocalSource(run), run.report).read_text())
    assert "3 of 15 rounds are committed" in text and "Model card" not in " ".join(page.headings)
    assert len(page.images) == 5


def test_a_run_without_rounds_has_a_page(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.journal.unlink()
    text = write_report(LocalSource(run), run.report).read_text()
    assert "0 of 15 rounds are committed" in text and "<img" not in text


def test_many_rounds_silos_and_classes_stay_a_small_page(tmp_path: Path) -> None:
    run = make_run(tmp_path, rounds=1200, silos=40, names=[f"class {n}" for n in range(60)])
    page = Page(text := write_report(LocalSource(run), run.report).read_text())
    assert len(page.images) == 8 and len(text) < 2_000_000
    assert "and 30 more" in str(page.images[2]["alt"])


@pytest.mark.usefixtures("undrawn")
def test_the_command_finds_a_run_by_folder_and_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / ".anchorage" / "digits", names=["a", "b"])
    by_name = CliRunner().invoke(app, ["report", "digits", "-o", "json"])
    assert by_name.exit_code == 0
    document = json.loads(by_name.output)
    assert Path(document["path"]).stat().st_size == document["bytes"] and document["path"].endswith(
        "digits/report.html"
    )
    by_folder = CliRunner().invoke(app, ["report", ".anchorage/digits", "--out", "pages/one.html"])
    assert by_folder.exit_code == 0 and Path("pages/one.html").exists() and "open it" in by_folder.output


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert isinstance(refused.exception, AnchorageError) and refused.exception.failure is commands.NO_RUN_HERE


@pytest.mark.usefixtures("undrawn")
def test_a_damaged_card_and_an_unwritable_page_are_named_and_end_no_run(tmp_path: Path) -> None:
    run = make_run(tmp_path, names=["a", "b"])
    (tmp_path / "taken").write_text("")
    with pytest.raises(AnchorageError, match="ANC-5002|cannot be written"):
        write_report(LocalSource(run), tmp_path / "taken" / "report.html")
    assert report_at_end(run) == str(run.report)
    (run.model / CARD).write_text('{"format": "other"}')
    with pytest.raises(AnchorageError) as raised:
        LocalSource(run).card()
    assert raised.value.failure is commands.NO_RESULTS
    assert report_at_end(run).startswith("none, ANC-5009")


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "fedctl.report_figures", raising=False)
    monkeypatch.delattr("fedctl.report_figures", raising=False)
    with pytest.raises(AnchorageError, match=r"anchorage\[server\]") as raised:
        write_report(LocalSource(run), run.report)
    assert raised.value.failure is commands.PACKAGE_MISSING


MEASURE = """<!doctype html><iframe src="report.html" style="border:0;width:{width}px;height:800px"></iframe><pre></pre><script>
addEventListener("load", () => {{
  const page = document.querySelector("iframe").contentDocument, all = [...page.images];
  document.querySelector("pre").textContent = JSON.stringify({{
    width: page.documentElement.scrollWidth,
    room: page.documentElement.clientWidth,
    drawn: all.filter(image => image.complete && image.naturalWidth > 0 && image.clientWidth > 0).length,
    narrowest: Math.min(...all.map(image => image.clientWidth)),
    text: parseFloat(page.defaultView.getComputedStyle(page.querySelector("td")).fontSize),
  }});
}});
</script>"""


@pytest.mark.integration
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt-get install chromium)")
@pytest.mark.parametrize("width", [360, 1440])
def test_a_browser_shows_the_page(tmp_path: Path, width: int) -> None:
    run = make_run(tmp_path, names=["naevus", "melanoma", "a class with a rather long name"])
    write_report(LocalSource(run), run.report)
    (tmp_path / "measure.html").write_text(MEASURE.format(width=width))
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
        "--enable-logging=stderr",
    ]
    options += [f"--user-data-dir={tmp_path / 'browser'}", "--window-size=1600,900", "--virtual-time-budget=10000"]
    page = (tmp_path / "measure.html").as_uri()
    done = subprocess.run(
        [str(CHROMIUM), *options, "--dump-dom", page], capture_output=True, text=True, timeout=120, check=True
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    document = json.loads(re.search(r"<pre>(.*?)</pre>", done.stdout)[1])  # type: ignore[index]
    assert width - 20 <= document["width"] == document["room"], "nothing but tables scrolls sideways"
    assert document["drawn"] == 8 and document["narrowest"] >= 300 and document["text"] >= 16
