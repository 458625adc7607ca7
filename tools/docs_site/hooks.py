"""Hooks of MkDocs for the documentation site (mkdocs.yml): pages and links outside docs/, scripts from npm, and versions."""

import json
import posixpath
import re
import sys
import tomllib
from html import escape
from pathlib import Path
from typing import Literal

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from docs_site.npm_files import IFRAME_WORKER, MERMAID, SITE_FILES

ROOT = Path(__file__).resolve().parents[2]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
LOG = get_plugin_logger("site")

OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "charts/anchorage/README.md": "charts/anchorage.md",
    "charts/silo-agent/README.md": "charts/silo-agent.md",
    "examples/chest-findings/README.md": "examples/chest-findings.md",
    "examples/hippocampus/README.md": "examples/hippocampus.md",
    "examples/isic18/README.md": "examples/isic18.md",
    "examples/lesion-masks/README.md": "examples/lesion-masks.md",
}
"""Pages of the site that lie outside docs/: path in the repository, path in the site."""

DIAGRAM = r'<div class="diagram" role="group" aria-label="Diagram" tabindex="0">\g<0></div>'

CODE_OR_LINK = re.compile(
    r"^[ ]*(?P<fence>```+|~~~+).*?^[ ]*(?P=fence)"
    r"|(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)"
    r"|(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)",
    re.MULTILINE | re.DOTALL,
)


def on_startup(command: Literal["build", "gh-deploy", "serve"], dirty: bool) -> None:
    """Remember whether the site is built or shown while its pages are being written."""
    global _served
    _served = command == "serve"


_served = False


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Build into a folder per version, list whole folders in the navigation, and take the worker of the search from the site."""
    if not _served:
        config.site_dir = str(Path(config.site_dir) / VERSION)
        config.extra["version"] = {"provider": "mike"}
    config.extra["polyfills"] = [f"assets/{IFRAME_WORKER.path.name}"]
    config.nav = expand(config.nav or [], Path(config.docs_dir))
    return config


def expand(nav: list[object], docs: Path) -> list[object]:
    """Return a navigation in which a path that ends with a slash is the list of the pages in that folder, README.md first."""
    return [_expanded(item, docs) for item in nav]


def _expanded(item: object, docs: Path) -> object:
    if isinstance(item, dict):
        return {title: _expanded(value, docs) for title, value in item.items()}
    if isinstance(item, list):
        return expand(item, docs)
    if isinstance(item, str) and item.endswith("/"):
        pages = sorted((docs / item).glob("*.md"), key=lambda page: (page.name != "README.md", page.name.lower()))
        return [str(page.relative_to(docs)) for page in pages]
    return item


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take in the pages outside docs/ and the scripts."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for script in SITE_FILES:
        if script.path.exists():
            files.append(File.generated(config, f"assets/{script.path.name}", abs_src_path=str(script.path)))
        else:
            LOG.warning("%s is missing; `make docs` fetches it", script.path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to the page's place in the site, and mark those to files that only the repository has."""
    return rewrite_links(markdown, page.file.src_uri, config.repo_url)


def rewrite_links(markdown: str, page: str, repository: str | None) -> str:
    """Return a page's text with links as the site needs them.

    Parameters
    ----------
    markdown : str
        The page's text; what stands in it as code is left alone.
    page : str
        The page's path in the site.
    repository : str or None
        Address of the repository. Without it, a link to a file outside the site becomes its text with the path as a hint.
    """
    source = {place: path for path, place in OUTSIDE.items()}.get(page, f"docs/{page}")

    def rewritten(match: re.Match[str]) -> str:
        target = match["target"]
        if match["ticks"] and markdown[markdown.rfind("\n", 0, match.start()) + 1 :].lstrip().startswith("|"):
            return match[0].replace(
                "\\|", "|"
            )  # code in a table, where GitHub wants the backslash and Python-Markdown shows it
        if target is None or re.match(r"[a-z]+:|/", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        place = OUTSIDE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if place is not None:
            there = posixpath.relpath(place, posixpath.dirname(page) or ".")
        elif not (ROOT / path).exists():
            return match[0]  # which MkDocs reports
        elif repository:
            there = f"{repository.rstrip('/')}/blob/HEAD/{path}"
        else:
            return f'<span class="repository-file" title="{escape(path)} in the repository">{match["text"]}</span>'
        return f"{match['image']}[{match['text']}]({there}{match['anchor'] or ''})"

    return CODE_OR_LINK.sub(rewritten, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the search for screen readers, let wide diagrams scroll, and load their script, which is large, in pages that have one."""
    output = output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"', 1
    )
    if 'class="mermaid"' not in output:
        return output
    script = get_relative_url(f"assets/{MERMAID.path.name}", page.url)
    output = re.sub(r'<pre class="mermaid">.*?</pre>', DIAGRAM, output, flags=re.DOTALL)
    return output.replace("</head>", f'<script src="{script}"></script></head>', 1)


def on_post_build(config: MkDocsConfig) -> None:
    """Write which versions the folder of the site holds, newest first, and lead its front page to the newest."""
    if _served:
        return
    site = Path(config.site_dir).parent
    versions = sorted((page.parent.name for page in site.glob("*/index.html")), key=_numbers, reverse=True)
    listed = [{"version": version, "title": version, "aliases": []} for version in versions]
    (site / "versions.json").write_text(json.dumps(listed))
    (site / "index.html").write_text(
        f'<!doctype html><html lang="en"><title>{config.site_name}</title>'
        f'<meta http-equiv="refresh" content="0; url={versions[0]}/index.html"><a href="{versions[0]}/index.html">{versions[0]}</a></html>\n'
    )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
