"""Names of classes at several sites: which are the same, which are unknown, and which are of several findings."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from unicodedata import combining, normalize

import typer

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import CLASSES_DIFFER, TASK_UNSUPPORTED
from anchorage.learning.data.label_kinds import SEVERAL, refuse_several, several_findings
from fedctl.output import format_count
from fedctl.site_folders import SiteFolder

PARTS = frozenset({"anchors", "train", "training", "val", "valid", "validation", "test", "testing"})
"""Folders of a downloaded data set that are no classes."""

Asked = Callable[[SiteFolder, str, Sequence[str]], str]
"""Says which class a local name of a site is, given the classes so far; another name is a class of its own."""


def agree(
    sites: Sequence[SiteFolder],
    class_names: Sequence[str],
    class_maps_by_site: Mapping[tuple[str, str], str],
    ask: Asked | None,
) -> tuple[list[str], dict[str, dict[str, str]]]:
    """Find the classes, and what each site calls them.

    Parameters
    ----------
    sites : sequence of SiteFolder
        Those whose labels are read.
    class_names : sequence of str
        The classes; empty takes the names of the site that has most.
    class_maps_by_site : mapping
        Class by role and local name.
    ask : callable or None
        Answers for a name that is spelt like no class.

    Returns
    -------
    classes : list of str
    class_maps : dict
        By role, class by local name, of names that differ.

    Raises
    ------
    AnchorageError
        CLASSES_DIFFER: names are like no class, and nobody can be asked; or they are those of parts, such as ``train`` and ``test``.
    """
    for site in sites:
        if site.names and all(name.lower() in PARTS for name in site.names):
            message = (
                f"{site.role} has the folders {', '.join(site.names)}, which are parts of a data set and no classes"
            )
            raise AnchorageError(CLASSES_DIFFER, f"{message}; name a folder below it for each section")
    most = richest(sites)
    classes = list(class_names) or list(
        dict.fromkeys(class_maps_by_site.get((most.role, name), name) for name in most.names)
    )
    if astray := sorted(set(class_maps_by_site.values()) - set(classes)):
        raise typer.BadParameter(f"--class-map leads to {', '.join(astray)}; the classes are {', '.join(classes)}")
    maps: dict[str, dict[str, str]] = {}
    open_names: list[tuple[SiteFolder, str]] = []
    for site in sites:
        for local in site.names:
            folded = {fold(name): name for name in reversed(classes)}
            meant = class_maps_by_site.get((site.role, local)) or (
                local if local in classes else folded.get(fold(local))
            )
            if meant is None and ask is not None:
                meant = ask(site, local, classes)
                classes += [] if meant in classes else [meant]
            if meant is None:
                open_names.append((site, local))
            elif meant != local:
                maps.setdefault(site.role, {})[local] = meant
    if open_names:
        raise AnchorageError(CLASSES_DIFFER, _differ(open_names, classes))
    return classes, maps


def refuse_labels_of_several(
    sites: Sequence[SiteFolder], class_names: Sequence[str], maps_by_site: Mapping[tuple[str, str], str]
) -> None:
    """Refuse labels that name several findings, unless they are classes, or mapped to one.

    Raises
    ------
    AnchorageError
        TASK_UNSUPPORTED: there are such labels, or more ones than images in columns of zeros and ones.
    """
    known = {*class_names, *(name for site in sites for name in site.names)}
    remedy = (
        "name the column of one finding with --label-column, or make combinations classes with --classes or --class-map"
    )
    for site in sites:
        place = f"{site.role} ({site.section.manifest or site.section.path})"
        open_names = [name for name in site.names if name not in class_names and (site.role, name) not in maps_by_site]
        counts = {name: site.names[name] for name in several_findings(open_names, known)}
        refuse_several(place, counts, remedy)
        ones = {name: count for name, count in site.names.items() if not class_names or name in class_names}
        if sum(ones.values()) > site.images:
            columns = ", ".join(list(ones)[:5])
            message = f"{place}: the columns {columns} hold {sum(ones.values())} ones for {format_count(site.images, 'image')}"
            way = f"name the column of one finding, such as --label-column {site.role}:{next(iter(ones))}"
            raise AnchorageError(TASK_UNSUPPORTED, f"{message}: {SEVERAL}; {way}")


def richest(sites: Sequence[SiteFolder]) -> SiteFolder:
    """Return the site whose labels have most names."""
    return max(sites, key=lambda site: len(site.names))


def fold(name: str) -> str:
    """Reduce a name to what spellings of one word share: no case, accents, punctuation, plural, British or American form.

    Nothing else is near enough: *typical* and *atypical*, *grade 1* and *grade 2* are spelt nearly alike.
    """
    plain = "".join(c for c in normalize("NFKD", name.casefold()) if c.isalnum() and not combining(c))
    return re.sub(r"(?<=[a-z]{2})s$", "", plain.replace("our", "or").replace("ae", "e").replace("oe", "e"))


def _differ(names: Sequence[tuple[SiteFolder, str]], classes: Sequence[str]) -> str:
    descriptions = ", ".join(f'"{name}" of {site.role} ({site.names[name]} images)' for site, name in names)
    options = " ".join(f"--class-map {shlex.quote(f'{site.role}:{name}=CLASS')}" for site, name in names)
    every = ",".join(dict.fromkeys([*classes, *(name for _, name in names)]))
    return (
        f"{descriptions}: spelt like none of the classes {', '.join(classes)}; say which class each is: {options} "
        f"(classMap in the file), or that it is one of its own: --classes {shlex.quote(every)}"
    )
