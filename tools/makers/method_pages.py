"""One page per method, and an index: docs/methods."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic.alias_generators import to_camel

from anchorage.api.method import SLOTS, Local
from anchorage.api.piece import Piece
from anchorage.methods.advice import advice_of
from anchorage.methods.effective import leaves
from anchorage.methods.preset import Preset, slots
from anchorage.methods.registry import BUILT_IN, PRESETS
from anchorage.methods.variants import variants_of
from fedctl.published import PublishedResult, published_of

FOLDER = Path("docs/methods")
INDEX = "README.md"
REFERENCE = Path(__file__).parents[2] / "docs" / "methods-reference.md"


def pages() -> Mapping[str, str]:
    """Return every page by its file name; of the methods of this package alone, whatever else is installed."""
    return {INDEX: _index(BUILT_IN)} | {f"{preset.name}.md": _page(preset) for preset in BUILT_IN}


def files(root: Path) -> Mapping[Path, str | None]:
    """Return the pages of a checkout; a page whose method is no more must go."""
    old = {FOLDER / path.name: None for path in (root / FOLDER).glob("*.md")}
    return {**old, **{FOLDER / name: text for name, text in pages().items()}}


def _index(presets: Sequence[Preset]) -> str:
    """Return the list of all methods, those of one setting together."""
    settings: dict[str, list[str]] = {}
    for preset in presets:
        limits = ", ".join(filter(None, (_limited_tasks(preset), _limited_protocols(preset))))
        line = f"- [{preset.name}]({preset.name}.md){f' ({limits})' if limits else ''}: {preset.summary}"
        settings.setdefault(preset.setting, []).append(line)
    lists = "\n\n".join(f"## {_capitalised(setting)}\n\n" + "\n".join(lines) for setting, lines in settings.items())
    return (
        "# Methods\n\n"
        "A method's page shows what differs from [FedAvg](FedAvg.md), with links to [the federation file](../federation.md), and published results\n"
        "as fractions, accuracy where no other metric is named. See also [measured results](../quality.md), [choosing](../choosing-a-method.md)\n"
        "and [writing a method](../writing-a-method.md). `fedctl methods describe NAME` prints a federation file that runs. `make generate` makes\n"
        "these pages.\n\n"
        "Methods are listed by where the labels are. Those without brackets are for all tasks, in synchronous rounds.\n\n"
        f"{lists}\n"
    )


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


def _limited_tasks(preset: Preset) -> str:
    return "" if preset.tasks == PRESETS["FedAvg"].tasks else ", ".join(preset.tasks)


def _limited_protocols(preset: Preset) -> str:
    if preset.protocols == ("Synchronous",):
        return ""
    return "asynchronous" if preset.protocols == ("Asynchronous",) else "also asynchronous"


def _page(preset: Preset) -> str:
    return (
        "\n\n".join(
            [
                f"# {preset.name}",
                preset.summary,
                *([advice_of(preset)] if advice_of(preset) else []),
                f"- {_capitalised(preset.setting)} (`spec.labels`: {', '.join(preset.labels)}). "
                f"Tasks: {_limited_tasks(preset) or 'all'}. {_capitalised(' or '.join(preset.protocols).lower())}.\n"
                f"- The server learns: {preset.reveals_to_server}. Other silos: {preset.reveals_to_silos}.\n"
                f"- Source: {_linked(preset.source)}.",
                *_slots(preset),
                *_arrays(preset),
                *_variants(preset.name),
                *_results(published_of(preset.name)),
            ]
        )
        + "\n"
    )


def _linked(source: str) -> str:
    """Return a source with links to the sections of the methods reference."""
    return re.sub(
        r"methods reference, (N?\d+(?:\.\d+)?)",
        lambda match: f"[reference {match[1]}]({_sections()[match[1]]})",
        source,
    )


@cache
def _sections() -> Mapping[str, str]:
    """Return the places of the methods reference's sections by their numbers."""
    headings = re.findall(r"^#+ ((N?\d+(?:\.\d+)?)\.? .*)$", REFERENCE.read_text("utf-8"), re.MULTILINE)
    anchors = {number: re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading, number in headings}
    return {number: f"../{REFERENCE.name}#{anchor}" for number, anchor in anchors.items()}


def _slots(preset: Preset) -> list[str]:
    """Return what differs from plain FedAvg, slot by slot, and for the tasks that have other pieces."""
    plain = slots(preset.name)
    lines = [
        f"- `{to_camel(slot)}`: {_piece(getattr(preset.slots, slot))}"
        for slot in SLOTS
        if getattr(preset.slots, slot) != getattr(plain, slot)
    ]
    lines += _local(preset.slots.local, plain.local)
    lines += [
        f"- `{to_camel(slot)}` for {task}: {_piece(piece)}"
        for task in preset.tasks
        for slot, piece in preset.by_task.get(task, {}).items()
    ]
    return ["## Differences from FedAvg", "\n".join(lines) or "Nothing."]


def _local(local: Local, plain: Local) -> list[str]:
    """Return the fields of local training that differ, the optimiser as a piece."""
    before = dict(leaves(_local_fields(plain)))
    fields = [(path, value) for path, value in leaves(_local_fields(local)) if before.get(path) != value]
    lines = ["- `local`: " + ", ".join(f"`{path}: {value}`" for path, value in fields)] if fields else []
    if local.optimiser is not None and local.optimiser != plain.optimiser:
        lines.append(f"- `local.optimiser`: {_piece(local.optimiser)}")
    return lines


def _local_fields(local: Local) -> dict[str, Any]:
    """Return the fields of local training as a document writes them, without the optimiser."""
    return local.model_dump(mode="json", by_alias=True, exclude={"optimiser"}, exclude_none=True)


def _piece(piece: Piece) -> str:
    """Return a piece as a document writes it, without options that have their defaults, as a link to all of them."""
    options = piece.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    written = yaml.safe_dump({piece.name: options}, default_flow_style=True, sort_keys=False, width=1000).strip()
    kind = type(piece)
    return f"[`{written}`](../federation.md#{kind.__name__.lower()})" if kind.model_fields else f"`{written}`"


def _arrays(preset: Preset) -> list[str]:
    """Return a list of what travels beside the model; arrays of one meaning and shape are an item."""
    items: dict[tuple[str, str, str], list[str]] = {}
    for way, arrays in (("Down", preset.down), ("Up", preset.up)):
        for array in arrays:
            items.setdefault((way, array.shape, array.meaning), []).append(f"`{array.name}`")
    lines = [f"- {way}: {', '.join(names)}, {shape}: {meaning}" for (way, shape, meaning), names in items.items()]
    return ["## Auxiliary data", "\n".join(lines)] if lines else []


def _variants(preset: str) -> list[str]:
    lines = [f"- {name}, `{variant.written}`: {variant.summary}" for name, variant in variants_of(preset).items()]
    return ["## Variants", "\n".join(lines)] if lines else []


def _results(results: Sequence[PublishedResult]) -> list[str]:
    """Return an item per table of a paper and method; a table that repeats another one's numbers is named with it."""
    cells: dict[tuple[str, str], list[PublishedResult]] = {}
    for result in results:
        cells.setdefault((result.source, result.method), []).append(result)
    sources: dict[tuple[str, str], list[str]] = {}
    for (source, method), numbers in cells.items():
        sources.setdefault((method, _numbers(numbers)), []).append(source)
    items = [f"- {', '.join(names)}: {method}{numbers}" for (method, numbers), names in sources.items()]
    return ["## Published results", "\n".join(items)] if items else []


def _numbers(results: Sequence[PublishedResult]) -> str:
    """Return the numbers of a table: what all settings share first, the network and the metrics included, then the images with each setting."""
    one_network = len({result.model for result in results}) == 1
    parts = [
        [result.model, *_setting(result)] if one_network and result.model else _setting(result) for result in results
    ]
    shared = [part for part in parts[0] if all(part in each for each in parts)]
    cells: dict[tuple[str, tuple[str, ...]], list[PublishedResult]] = {}
    for setting, result in zip(parts, results, strict=True):
        images = ", ".join(filter(None, (result.dataset, "" if one_network else result.model)))
        rest = tuple(part for part in setting if part not in shared)
        cells.setdefault((images, rest), []).append(result)
    metrics, *others = {tuple(result.metric.replace("_", " ") for result in cell) for cell in cells.values()}
    once = len(metrics) > 1 and len(cells) > 1 and not others
    groups: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for (images, rest), cell in cells.items():
        groups.setdefault(images, {})[rest] = [_figure(result, named=not once) for result in cell]
    texts = [f"{images}: {_cells(settings)}" for images, settings in groups.items()]
    nested = len(groups) > 1 and any(len(settings) > 1 for settings in groups.values())
    lines = "".join(f"\n    - {text}" for text in texts) if nested else " " + "; ".join(texts)
    common = (f" ({', '.join(shared)})" if shared else "") + (f", {', '.join(metrics)}" if once else "")
    return f"{common}:{lines}"


def _figure(result: PublishedResult, *, named: bool) -> str:
    """Return a figure, after the name of its metric unless that is accuracy or stands elsewhere."""
    metric = f"{result.metric.replace('_', ' ')} " if named and result.metric != "accuracy" else ""
    return metric + result.figure.replace(" ", "")


def _cells(settings: Mapping[tuple[str, ...], Sequence[str]]) -> str:
    """Return the figures of each setting; where settings form a grid, what a row shares is written once."""
    flat = "; ".join(", ".join(rest) + (": " if rest else "") + ", ".join(cell) for rest, cell in settings.items())
    if len({len(rest) for rest in settings}) > 1 or any(len(cell) > 1 for cell in settings.values()):
        return flat
    columns = [len(set(column)) for column in zip(*settings, strict=True)]
    longest = max(range(len(columns)), key=lambda place: (columns[place], place), default=0)
    rows: dict[str, list[tuple[str, str]]] = {}
    for rest, (figure,) in settings.items():
        if rest:
            row = ", ".join(part for place, part in enumerate(rest) if place != longest)
            rows.setdefault(row, []).append((rest[longest], figure))
    if not columns or (len(columns) > 1 and len(rows) == len(settings)):
        return flat
    if len(columns) == 1:
        return _counts(rows[""]) or flat
    return "; ".join(f"{row}: {_counts(cells) or ', '.join(map(' '.join, cells))}" for row, cells in rows.items())


def _counts(cells: Sequence[tuple[str, str]]) -> str:
    """Return figures by counts of one unit, such as 250 anchors and 500 anchors, with the unit once; empty where settings are others."""
    counts, units = zip(*(setting.partition(" ")[::2] for setting, _ in cells), strict=True)
    if len(cells) == 1 or len(set(units)) > 1 or not all(count.isdecimal() for count in counts):
        return ""
    return f"{', '.join(counts)} {units[0]}: {', '.join(figure for _, figure in cells)}"


def _setting(result: PublishedResult) -> list[str]:
    """Return the parts of a setting; a time is one of the paper's machines."""
    of_paper = result.reached_at and f"at {result.reached_at}"
    parts = re.split(r"; |, (?=\d+ rounds\b)", result.setting)
    return [f"{part} of its machines" if part == of_paper else part for part in parts]
