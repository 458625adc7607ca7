"""Every page stands once in the navigation of the documentation site, and pages that messages, definitions and charts name are there."""

import re
from pathlib import Path
from typing import Any

import yaml

from anchorage.api.errors import CATALOGUE

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SHIPPED = ("core", "cli", "server", "operator", "silo_agent", "charts", "crds", "images", "examples")
PAGE = re.compile(r"\bdocs/(?P<page>[\w/-]+\.md)(?:#(?P<anchor>[\w-]+)|, (?P<heading>[A-Z][\w ]+)\))?")


class Names(yaml.SafeLoader):
    """Reads mkdocs.yml, in which tags name Python functions."""


Names.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def leaves(item: Any) -> list[str]:
    if isinstance(item, str):
        return [item]
    return [leaf for part in (item.values() if isinstance(item, dict) else item) for leaf in leaves(part)]


def headings(page: Path) -> set[str]:
    return set(re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE))


def slug(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_every_page_stands_once_in_the_navigation() -> None:
    hooks = (ROOT / "tools" / "docs_site" / "hooks.py").read_text()
    outside = re.findall(r'^    "([\w/.-]+\.md)": "([\w/-]+\.md)",$', hooks, re.MULTILINE)
    assert len(outside) > 5 and [source for source, _ in outside if not (ROOT / source).is_file()] == []
    listed = leaves(yaml.load((ROOT / "mkdocs.yml").read_text(), Names)["nav"])  # noqa: S506
    folders = [item for item in listed if item.endswith("/")]
    expanded = [str(page.relative_to(DOCS)) for folder in folders for page in (DOCS / folder).glob("*.md")]
    pages = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")] + [place for _, place in outside]
    assert sorted([item for item in listed if item not in folders] + expanded) == sorted(pages)


def test_pages_and_headings_that_the_product_names_are_there() -> None:
    named = [
        (str(file.relative_to(ROOT)), match)
        for folder in SHIPPED
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".py", ".yaml", ".yml", ".tpl", ".txt", ".json", ".proto", ".md", "")
        and file.is_file()
        and "__pycache__" not in file.parts
        for match in PAGE.finditer(file.read_text("utf-8", errors="replace"))
    ]
    assert len(named) > 100
    broken = []
    for file, match in named:
        page = DOCS / match["page"]
        if (
            not page.is_file()
            or (match["heading"] and match["heading"] not in headings(page))
            or (match["anchor"] and match["anchor"] not in {slug(heading) for heading in headings(page)})
        ):
            broken.append(f"{file}: {match[0]}")
    assert broken == []


def test_every_error_has_its_anchor() -> None:
    anchors = {slug(heading) for heading in headings(DOCS / "errors.md")}
    assert [code for code in CATALOGUE if code.lower() not in anchors] == []
