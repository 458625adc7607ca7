"""One page per method, and an index: docs/methods."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from pydantic.alias_generators import to_camel

from anchorage.api.piece import AuxiliaryArray, Piece
from anchorage.methods.advice import advice_of
from anchorage.methods.effective import leaves, written_slots
from anchorage.methods.preset import Preset, slots
from anchorage.methods.registry import BUILT_IN
from anchorage.methods.variants import variants_of
from fedctl.published import PublishedResult, published_of

FOLDER = Path("docs/methods")
INDEX = "README.md"


def pages() -> Mapping[str, str]:
    """Return every page by its file name; of the methods of this package alone, whatever else is installed."""
    return {INDEX: _index(BUILT_IN)} | {f"{preset.name}.md": _page(preset) for preset in BUILT_IN}


def files(root: Path) -> Mapping[Path, str | None]:
    """Return the pages of a checkout; a page whose method is no more must go."""
    old = {FOLDER / path.name: None for path in (root / FOLDER).glob("*.md")}
    return {**old, **{FOLDER / name: text for name, text in pages().items()}}


def _index(presets: Sequence[Preset]) -> str:
    rows = [
        f"| [{preset.name}]({preset.name}.md) | {preset.setting} | {', '.join(preset.tasks)} | {', '.join(preset.protocols)} | {preset.summary} |"
        for preset in presets
    ]
    table = "\n".join(
        ["| method | labels | tasks | protocols | what it does |", "| --- | --- | --- | --- | --- |", *rows]
    )
    return (
        "# Methods\n\n"
        "Written by `make generate` from the methods' declarations. `fedctl methods describe NAME` prints it with a federation file, whose fields\n"
        "are in [the reference](../federation.md); [a guide](../writing-a-method.md) shows how a package adds a method of its own.\n\n"
        f"{table}\n"
    )


def _page(preset: Preset) -> str:
    plain = dict(leaves(written_slots(slots(preset.name))))
    fields = [(path, value) for path, value in leaves(written_slots(preset.slots)) if plain.get(path) != value]
    rows = [f"| `{path}` | {value} |" for path, value in fields]
    table = "\n".join(["| field of `spec.method` | value |", "| --- | --- |", *rows])
    return (
        "\n\n".join(
            [
                f"# {preset.name}",
                preset.summary,
                *([advice_of(preset)] if advice_of(preset) else []),
                f"- Labels: {preset.setting}; a silo's `spec.labels` may be {', '.join(preset.labels)}.\n"
                f"- Protocols: {', '.join(preset.protocols)}.\n"
                f"- The server learns: {preset.reveals_to_server}.\n"
                f"- Other silos learn: {preset.reveals_to_silos}.\n"
                f"- Source: {preset.source}.\n"
                f"- A federation file that plays as it is: `fedctl methods describe {preset.name}`.",
                "## What differs from plain FedAvg",
                table if rows else "Nothing: it is plain FedAvg.",
                *_tasks(preset),
                *_channels("What travels down beside the model", preset.down),
                *_channels("What travels up beside the model", preset.up),
                *_variants(preset.name),
                *_results(published_of(preset.name)),
            ]
        )
        + "\n"
    )


def _tasks(preset: Preset) -> list[str]:
    """Say which tasks a preset serves, and what of it differs there."""
    told = f"It serves the tasks {', '.join(preset.tasks)}; beside another one a plan refuses it."
    rows = [
        f"| {task} | `{to_camel(slot)}` | `{_written(piece)}` |"
        for task in preset.tasks
        for slot, piece in preset.by_task.get(task, {}).items()
    ]
    table = "\n".join(["| task | field of `spec.method` | value |", "| --- | --- | --- |", *rows])
    return [
        "## Tasks",
        told,
        *(["What stands there in place of pieces of one class per image:", table] if rows else []),
    ]


def _written(piece: Piece) -> str:
    """Return a piece as a document writes it, without options that have their defaults."""
    options = piece.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return yaml.safe_dump({piece.name: options}, default_flow_style=True, sort_keys=False, width=1000).strip()


def _channels(title: str, channels: Sequence[AuxiliaryArray]) -> list[str]:
    rows = [f"| `{channel.name}` | {channel.shape} | {channel.meaning} |" for channel in channels]
    table = "\n".join(["| name | shape | meaning |", "| --- | --- | --- |", *rows])
    return [f"## {title}", table] if rows else []


def _variants(preset: str) -> list[str]:
    rows = [f"| {name} | `{variant.written}` | {variant.summary} |" for name, variant in variants_of(preset).items()]
    table = "\n".join(["| variant | `spec.method` | what differs |", "| --- | --- | --- |", *rows])
    return ["## Variants", table] if rows else []


def _results(results: Sequence[PublishedResult]) -> list[str]:
    """Return a row per table of a paper, method and images: settings, each with its figures."""
    cells: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for r in results:
        key = (r.source, r.method, ", ".join(filter(None, (r.dataset, r.model))))
        cells.setdefault(key, {}).setdefault(r.setting, []).append(f"{r.metric.replace('_', ' ')} {r}")
    rows = [
        f"| {' | '.join(key)} | {'<br>'.join(f'{setting}: ' + ', '.join(figures) for setting, figures in settings.items())} |"
        for key, settings in cells.items()
    ]
    table = "\n".join(["| source | method | images, model | published |", "| --- | --- | --- | --- |", *rows])
    return ["## Published results", table] if rows else []
