"""The documentation site builds strictly, and a browser shows its pages without errors, requests to other hosts, or obstacles to accessibility."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from os import environ
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from browser import NEEDED, Page, browser, find_chromium
from docs_site.npm_files import AXE, SITE_FILES

ROOT = Path(__file__).parents[2]
MISSING = [
    *(f"the Python package {name}" for name in ("mkdocs", "material", "mkdocstrings") if find_spec(name) is None),
    *(str(file.path) for file in SITE_FILES if not file.path.exists()),
]
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(MISSING), reason=f"make docs installs what is missing: {', '.join(MISSING)}"),
]

SHOWN = (
    "index",
    "kubernetes",
    "data",
    "operations",
    "design/trust",
    "design/round-protocol",
    "cli",
    "errors",
    "charts/anchorage",
    "methods/FedAnchor",
    "python-api",
    "quality",
)
VIEWS = ((390, "light"), (1280, "dark"))
"""Widths in pixels, of a phone and a desktop, and colour schemes."""

READY = "document.readyState == 'complete' && !document.querySelector('pre.mermaid')"
BLOCKS = ("ul", "ol", "li", "table", "tr", "td", "pre", "blockquote", "h2", "h3")
"""Elements of a page; a list or a table that one of two Markdown readers takes for a paragraph has other numbers of them."""


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line in the log for each."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    environment = environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return out


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def page() -> Iterator[Page]:
    if find_chromium() is None:
        pytest.skip(f"needs {NEEDED}")
    with browser() as page:
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        yield page


def version_of(site: Path) -> str:
    (version,) = json.loads((site / "versions.json").read_text())
    return str(version["version"])


def opened(page: Page, address: str) -> list[str]:
    """Open a page, and return its errors and its requests that leave the site."""
    page.call("Page.navigate", url="about:blank")
    page.events.clear()
    page.call("Page.navigate", url=address)
    page.wait(f"location.href != 'about:blank' && {READY}")
    problems = []
    for event in page.events:
        method, params = event["method"], event["params"]
        assert isinstance(params, dict)
        if method == "Runtime.exceptionThrown":
            problems.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            problems.append(f"{params['entry']['text']} {params['entry'].get('url')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] == "error":
            problems.append(json.dumps(params["args"]))
        elif method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith((address[: address.index("/", 8)], "file:", "data:", "blob:")):
                problems.append(f"request to {url}")
    return problems


def test_links_that_leave_the_docs_lead_to_their_page_or_are_marked() -> None:
    call = """if True:
        import json, sys
        sys.path.insert(0, "tools/docs_site")
        import hooks
        print(json.dumps([hooks.rewrite_links(*call) for call in json.load(sys.stdin)]))"""
    fence = "```\n[x](../../Makefile)\n```"
    values = "[values](../../charts/anchorage/README.md#values)"
    text = f"{values} and [`Makefile`](../../Makefile), not `[x](../../Makefile)`\n{fence}\n| `a\\|b` |"
    calls = [
        [text, "design/trust.md", None],
        [text, "design/trust.md", "https://forge.example/anchorage"],
        ["[data](../../docs/data.md#x)", "charts/anchorage.md", None],
    ]
    command = [sys.executable, "-c", call]
    done = subprocess.run(command, cwd=ROOT, input=json.dumps(calls), capture_output=True, text=True, check=True)
    marked, linked, back = json.loads(done.stdout)
    code = f"not `[x](../../Makefile)`\n{fence}\n| `a|b` |"
    values = "[values](../charts/anchorage.md#values)"
    mark = '<span class="repository-file" title="Makefile in the repository">`Makefile`</span>'
    assert marked == f"{values} and {mark}, {code}"
    assert linked == f"{values} and [`Makefile`](https://forge.example/anchorage/blob/HEAD/Makefile), {code}"
    assert back == "[data](../data.md#x)"


def test_lists_and_tables_are_those_that_a_code_forge_shows(site: Path) -> None:
    forge = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    differences = {}
    for source in (ROOT / "docs").rglob("*.md"):
        path = source.relative_to(ROOT / "docs").with_suffix(".html").as_posix().replace("README", "index")
        html = (site / version_of(site) / path).read_text()
        article = re.search(r"<article.*?</article>", html, re.DOTALL)
        assert article is not None
        if source.name == "python-api.md":
            assert article[0].count("<h3") > 15, "the page has the slots' base classes"
            continue
        expected = forge.render(source.read_text())
        numbers = {
            tag: (len(re.findall(f"<{tag}[ >]", expected)), len(re.findall(f"<{tag}[ >]", article[0])))
            for tag in BLOCKS
        }
        if unequal := {tag: pair for tag, pair in numbers.items() if pair[0] != pair[1]}:
            differences[path] = unequal
    assert differences == {}


@pytest.mark.skipif("ANCHORAGE_BROWSE_DOCS" not in environ, reason="takes minutes; make docs-check opens the pages")
@pytest.mark.skipif(not AXE.path.exists(), reason=f"make docs installs what is missing: {AXE.path}")
def test_a_browser_shows_the_pages(site: Path, address: str, page: Page) -> None:
    problems: dict[str, list[str]] = {}
    for width, scheme in VIEWS:
        page.resize(width, 900)
        page.call("Page.navigate", url="about:blank")
        page.wait("location.href == 'about:blank'")  # a page that is open would store the scheme once more
        page.call("Storage.clearDataForOrigin", origin=address, storageTypes="all")
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        for name in SHOWN:
            errors = opened(page, f"{address}/{version_of(site)}/{name}.html")
            if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                errors.append("the page scrolls sideways")
            assert page.evaluate("document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[scheme]
            page.evaluate(f"{AXE.path.read_text()}; 0")
            violations = page.evaluate(
                "axe.run({resultTypes: ['violations']}).then(result => JSON.stringify(result.violations))"
            )
            errors += [
                f"{violation['impact']}: {violation['help']}: {violation['nodes'][0]['html'][:200]}"
                for violation in json.loads(str(violations))
                if violation["impact"] in ("serious", "critical")
            ]
            if errors:
                problems[f"{name} {width} {scheme}"] = errors
    assert problems == {}


def test_search_and_diagrams_need_no_server(site: Path, page: Page) -> None:
    problems = opened(page, (site / version_of(site) / "design" / "trust.html").as_uri())
    assert [problem for problem in problems if "versions.json" not in problem] == [], "only the version menu needs one"
    page.evaluate("document.querySelector('[data-md-component=search-query]').focus()")
    page.call("Input.insertText", text="enrolment")
    page.wait("document.querySelectorAll('.md-search-result__item').length > 3")
