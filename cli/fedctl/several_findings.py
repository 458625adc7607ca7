"""What `fedctl init` makes of sites whose images have several findings each: the task, and how each site's table is read."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorage.api.data import SiloData
from anchorage.learning.data.folders import file_of
from anchorage.learning.data.label_kinds import several_findings
from anchorage.learning.data.table_columns import group_column, split_column
from anchorage.learning.data.tables import read_table
from anchorage.pieces.task.multi_label import MultiLabel
from fedctl.site_folders import SiteFolder

_CELLS = frozenset({"1", "1.0", "0", "0.0", "-1", "-1.0", ""})
_NO_FINDINGS = re.compile(r"(no[ _-]?findings?|none|normal|healthy)", re.IGNORECASE)
_FACT = re.compile(
    r"sex|gender|female|male|age|fold|split|train|test|valid|frontal|lateral|view|support", re.IGNORECASE
)
"""Columns of zeros and ones that tell something else of an image."""


def recognise(sites: Sequence[SiteFolder], root: Path) -> tuple[MultiLabel, Mapping[str, Mapping[str, Any]]] | None:
    """Return the task of sites of which one has images with several findings, and, by role, the fields that their sections need.

    Parameters
    ----------
    sites : sequence of SiteFolder
        Those whose labels are read.
    root : Path
        The data root.

    Returns
    -------
    tuple or None
        None: no site has such images.
    """
    labels: dict[str, str] = {}
    fields: dict[str, Mapping[str, Any]] = {}
    for site in sites:
        recognised_columns = _columns_of(site.section, root) or _listed_in(site.names)
        if recognised_columns is not None:
            names, fields[site.role] = recognised_columns
            labels |= {name.casefold(): name for name in names if name.casefold() not in labels}
    return (MultiLabel(labels=tuple(labels.values())), fields) if labels else None


def _columns_of(section: SiloData, root: Path) -> tuple[list[str], Mapping[str, Any]] | None:
    """Return the columns of findings of a table: of zeros and ones, where a row has several ones, or a cell is uncertain."""
    if section.format != "CsvManifest" or section.label_column is not None:
        return None
    table = read_table(file_of(section, root, section.manifest or ""))
    image = table.image_column(section.image_column)
    others = {image, group_column(table, None, {image}), split_column(table, {image})}
    columns = [
        name
        for name, cells in table.columns.items()
        if name not in others and any(cells) and set(cells) <= _CELLS and not _FACT.search(name)
    ]
    ones = Counter(row for name in columns for row, cell in enumerate(table.columns[name]) if cell in ("1", "1.0"))
    uncertain = any(cell.startswith("-1") for name in columns for cell in table.columns[name])
    several = uncertain or any(count > 1 for count in ones.values())
    return (columns, {"label_columns": tuple(columns)}) if len(columns) > 1 and several else None


def _listed_in(names: Mapping[str, int]) -> tuple[list[str], Mapping[str, Any]] | None:
    """Return the findings that labels list, such as ``effusion|mass``, with the separator and the words for none of them."""
    several = several_findings(names, names)
    if not several:
        return None
    separator = next(mark for mark in "|;," if mark in several[0])
    words = list(dict.fromkeys(word.strip() for name in names for word in name.split(separator) if word.strip()))
    none = tuple(word for word in words if _NO_FINDINGS.fullmatch(word))
    fields = {"label_separator": separator} if separator != "|" else {}
    options = {"no_finding": none} if any(word.casefold() != "no finding" for word in none) else {}
    return [word for word in words if word not in none], {**fields, **options}
