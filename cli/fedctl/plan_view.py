"""A plan for people: tables and sentences that fit 80 columns."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from anchorage.api.text import list_some
from fedctl.output import amount, duration, format_count, plain_table

KINDS = {"first": "first round", "scored": "scored rounds", "other": "other rounds"}


def draw(document: Mapping[str, Any]) -> RenderableType:
    """Draw the document of `fedctl.plan.plan_document`."""
    return Group(*_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    heading = f"{document['method']} on {document['network']}, {format_count(document['rounds'], 'round')}, {format_count(document['silos'], 'silo')}"
    yield Text(f"{document['federation']}: {heading}", style="bold")
    yield Text()
    yield from _bytes(document)
    if document["time"] is not None:
        yield from _time(document)
    if document["link"] is not None:
        yield from _link(document)
    yield from _room(document)
    yield from _leaving(document)
    notes = list(document["notes"])
    if unknown := document["imagesUnknown"]:
        notes.insert(
            0,
            f"Images of {list_some(unknown)} are not read here; each is taken to have images, and its time is not known.",
        )
    for note in notes:
        yield Text(f"note: {note}")


def _bytes(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    sizes = document["bytes"]
    table = plain_table("bytes", "count", "silos", "up", "down", "per silo up", "per silo down", right=_NUMBERS)
    for of, count, part in _alike(sizes["rounds"], "silos", "up", "down"):
        ways = (amount(part[name]) for name in ("up", "down", "upPerSilo", "downPerSilo"))
        table.add_row(of, str(count), f"{part['silos']:.3g}", *ways)
    table.add_row("in all", str(document["rounds"]), "", amount(sizes["up"]), amount(sizes["down"]), "", "")
    yield table
    yield Text()


def _alike(rows: Sequence[Mapping[str, Any]], *figures: str) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """Yield names, counts and the first of the kinds of rounds that have the same figures."""
    several = len({row["method"] for row in rows}) > 1
    alike: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        alike.setdefault((row["method"], *(row[name] for name in figures)), []).append(row)
    for group in alike.values():
        kind = "each round" if len(group) > 1 else KINDS[group[0]["kind"]]
        of = f"{group[0]['method']}, {kind}" if several else kind
        yield of, sum(row["count"] for row in group), group[0]


_NUMBERS = ("count", "silos", "up", "down", "per silo up", "per silo down")


def _time(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    times = document["time"]
    table = plain_table("time on this machine", "", right=("",))
    table.add_row("a round of the slowest silo", duration(times["slowestSiloSecondsPerRound"]))
    table.add_row("a round of the server", duration(times["serverSecondsPerRound"]))
    table.add_row("the server before round 1", duration(times["secondsBeforeRound1"]))
    at_once = times["silosAtOnce"]
    table.add_row(
        f"all rounds, {format_count(at_once, 'silo')} at a time (fedctl run)", duration(times["onThisMachine"])
    )
    table.add_row("all rounds, one silo after another", duration(times["oneAfterAnother"]))
    table.add_row("all rounds, every silo on such a machine", duration(times["machineForEverySilo"]))
    yield table
    yield Text("Of a trial of a few steps, for an idle machine; without transfers and start-up.")
    yield Text()


def _link(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    link = document["link"]
    encodings = ", ".join(dict.fromkeys(link["encoding"].values()))
    models = f", models {link['modelEncoding']}" if link["modelEncoding"] else ""
    head = f"on a line of {link['megabitsPerSecond']:g} Mbit/s, {encodings}{models}"
    table = plain_table(head, "count", "model down", "update up", right=("count", "model down", "update up"))
    for of, count, row in _alike(link["rounds"], "downSeconds", "upSeconds"):
        table.add_row(of, str(count), duration(row["downSeconds"]), duration(row["upSeconds"]))
    yield table
    yield Text(f"All transfers one after another: {duration(link['seconds'])}. {_deadline(link)}")
    yield Text("Every silo is taken to have such a line, each way, and the server one for all of them.")
    yield Text()


def _deadline(link: Mapping[str, Any]) -> str:
    """Say whether silos make the deadline."""
    allowed = f"roundDeadlineSeconds allows {duration(link['deadlineSeconds'])}"
    needed = f"{'transfers and training' if link['withTraining'] else 'transfers alone'} take {duration(link['longestSeconds'])}"
    if link["inTime"] is None:
        return f"{allowed}: {needed}; how long training takes is not known here."
    if link["inTime"]:
        return f"{allowed}: {needed}, in time."
    return f"{allowed}: {needed}, too long; take an encoding with fewer bits, or a later deadline."


def _room(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    disk, memory = document["disk"], document["memory"]
    table = plain_table("role", "memory", "disk", "of which", right=("memory", "disk"))
    for role, parts in disk.items():
        memory_bytes = memory[role] if memory is not None else None
        shares = {name: nbytes for name, nbytes in parts.items() if name != "all" and nbytes}
        of_which = ", ".join(f"{_NAMES[name]} {amount(nbytes)}" for name, nbytes in shares.items())
        table.add_row(role, amount(memory_bytes) if memory_bytes else "?", amount(parts["all"]), of_which)
    yield table
    yield Text()


_NAMES = {
    "checkpoints": "checkpoints",
    "spool": "updates",
    "models": "models",
    "auxiliaryData": "auxiliary data",
    "received": "models",
    "update": "update",
    "kept": "kept between rounds",
}


def _leaving(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    alike: dict[tuple[str, ...], list[str]] = {}
    for silo, sentences in document["leaves"].items():
        alike.setdefault(tuple(sentences), []).append(silo)
    for sentences, silos in alike.items():
        yield Text(f"What leaves {list_some(silos)}:", style="bold")
        for sentence in sentences:
            yield Padding(Text(f"- {sentence}"), (0, 0, 0, 2), expand=False)
    yield Text("Images and labels stay, unless an array above holds them.")
    yield Text(f"The server learns {document['learnt']['server']}.")
    yield Text(f"Other silos learn {document['learnt']['silos']}.")
