"""``fedctl methods``: lists and describes the methods for training a federation."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import UNKNOWN_METHOD
from anchorage.api.piece import AuxiliaryArray
from anchorage.methods import PRESETS, Preset
from anchorage.methods.advice import advice_of
from anchorage.methods.effective import leaves, written_slots
from anchorage.methods.resolution import unknown_method
from anchorage.methods.snippet import snippet
from anchorage.methods.variants import variants_of
from fedctl.output import Format, emit, people, plain_table
from fedctl.pieces import document, draw_pieces, pieces_called
from fedctl.published import PublishedResult, published_of

NARROW = 160
"""A table of methods wants a terminal of so many columns; below, each method has lines of its own."""


def list_methods(output: Format) -> None:
    """Print a row per method, or a few lines on a terminal that is too narrow for rows."""
    if not output.for_people:
        emit([_document(preset) for preset in PRESETS.values()], output)
        return
    wide, console = output is Format.WIDE, people()
    if console.width < NARROW and not wide:
        console.print(Group(*map(_lines, PRESETS.values())))
        return
    columns = ["method", "labels", "protocols", "beside the model", "the server learns", "other silos learn"]
    table = plain_table(*columns, *(["what it does", "source"] if wide else []))
    for name, preset in PRESETS.items():
        cells = [name, preset.setting, ", ".join(preset.protocols), _auxiliary_words(preset)]
        cells += [preset.reveals_to_server, preset.reveals_to_silos]
        table.add_row(*cells, *([preset.summary, preset.source] if wide else []))
    console.print(table)


def _lines(preset: Preset) -> RenderableType:
    lines = [f"{preset.setting}; {' or '.join(preset.protocols)}"]
    lines += [f"beside the model: {_auxiliary_words(preset)}"] if preset.down or preset.up else []
    lines += [f"the server learns {preset.reveals_to_server}", f"other silos learn {preset.reveals_to_silos}"]
    return Group(Text(preset.name, style="bold"), *(Padding(Text(line), (0, 0, 0, 2)) for line in lines))


def describe_method(name: str, output: Format) -> None:
    """Print one method, or the pieces of that name, in full.

    Raises
    ------
    AnchorageError
        There is neither.
    """
    if name not in PRESETS and (pieces := pieces_called(name)):
        if output.for_people:
            people().print(draw_pieces(pieces))
        else:
            emit([document(piece) for piece in pieces], output)
        return
    if name not in PRESETS:
        raise AnchorageError(UNKNOWN_METHOD, unknown_method(name))
    if output.for_people:
        people().print(_description(PRESETS[name]))
    else:
        emit(_document(PRESETS[name]), output)


def _document(preset: Preset) -> dict[str, Any]:
    return {
        "name": preset.name,
        "summary": preset.summary,
        "setting": preset.setting,
        "labels": list(preset.labels),
        "tasks": list(preset.tasks),
        "protocols": list(preset.protocols),
        "advice": advice_of(preset),
        "slots": written_slots(preset.slots),
        "auxiliaryData": {"down": _channels(preset.down), "up": _channels(preset.up)},
        "reveals": {"toServer": preset.reveals_to_server, "toSilos": preset.reveals_to_silos},
        "variants": {name: asdict(variant) for name, variant in variants_of(preset.name).items()},
        "source": preset.source,
        "published": [_published_values(result) for result in published_of(preset.name)],
        "snippet": snippet(preset),
    }


def _published_values(result: PublishedResult) -> dict[str, Any]:
    std = float(result.std) if result.std else None
    columns = {"source": result.source, "dataset": result.dataset, "setting": result.setting, "model": result.model}
    return {**columns, "method": result.method, "metric": result.metric, "value": float(result.value), "std": std}


def _auxiliary_words(preset: Preset) -> str:
    ways = [f"↓ {channel.name}" for channel in preset.down] + [f"↑ {channel.name}" for channel in preset.up]
    return ", ".join(ways) or "nothing"


def _channels(channels: Sequence[AuxiliaryArray]) -> list[dict[str, str]]:
    return [{"name": channel.name, "shape": channel.shape, "meaning": channel.meaning} for channel in channels]


def _description(preset: Preset) -> RenderableType:
    facts = Table.grid(padding=(0, 2))
    facts.add_row("setting", preset.setting)
    facts.add_row("silos' labels", ", ".join(preset.labels))
    facts.add_row("tasks", ", ".join(preset.tasks))
    facts.add_row("protocols", ", ".join(preset.protocols))
    facts.add_row("server learns", preset.reveals_to_server)
    facts.add_row("silos learn", preset.reveals_to_silos)
    facts.add_row("source", preset.source)
    results = published_of(preset.name)
    facts.add_row("published", ", ".join(dict.fromkeys(r.source for r in results)) or "no results")
    slots = plain_table("field", "value")
    for field, value in leaves(written_slots(preset.slots)):
        slots.add_row(field, str(value))
    lines: list[RenderableType] = [Text(preset.name, style="bold"), Text(preset.summary)]
    lines += [Text(), Text(advice_of(preset)), Text()] if advice_of(preset) else []
    lines += [facts, Text(), Text("spec.method, slot by slot:"), slots]
    for way, channels in (("to the silos", preset.down), ("to the server", preset.up)):
        if channels:
            table = plain_table(f"beside the model, {way}", "shape", "meaning")
            for channel in channels:
                table.add_row(channel.name, Text(channel.shape), channel.meaning)
            lines += [Text(), table]
    if variants := variants_of(preset.name):
        table = plain_table("variant", "spec.method", "what differs")
        for name, variant in variants.items():
            table.add_row(name, Text(variant.written), variant.summary)
        lines += [Text(), table]
    lines += [Text(), *_results(results)] if results else []
    lines += [
        Text(),
        Text("a file to start from:"),
        Text(),
        Text(snippet(preset).rstrip(), overflow="ignore", no_wrap=True),
    ]
    return Group(*lines)


def _results(results: Sequence[PublishedResult]) -> list[RenderableType]:
    """Draw what papers report, a table each."""
    lines: list[RenderableType] = []
    for source in dict.fromkeys(result.source for result in results):
        table = plain_table(source, "method", "setting", "published")
        for result in results:
            if result.source == source:
                data = ", ".join(filter(None, (result.dataset, result.model)))
                table.add_row(data, result.method, result.setting, f"{result.metric.replace('_', ' ')} {result}")
        lines.append(table)
    return lines
