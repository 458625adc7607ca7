"""A plan for people: tables and sentences that fit 80 columns."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from fedctl.output import amount, counted, duration, plain_table

KINDS = {"first": "first round", "scored": "scored rounds", "other": "other rounds"}


def draw(document: Mapping[str, Any]) -> RenderableType:
    """Draw the document of `fedctl.plan.plan_document`."""
    return Group(*_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    said = f"{document['method']} on {document['network']}, {counted(document['rounds'], 'round')}, {counted(document['silos'], 'silo')}"
    yield Text(f"{document['federation']}: {said}", style="bold")
    yield Text()
    yield from _bytes(document)
    if document["time"] is not None:
        yield from _time(document)
    yield from _room(document)
    yield from _leaving(document)
    notes = list(document["notes"])
    if unknown := document["imagesUnknown"]:
        shown = ", ".join(unknown[:5]) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")
        notes.insert(
            0, f"Images of {shown} are not read here; each is taken to have images, and its time is not known."
        )
    for note in notes:
        yield Text(f"note: {note}")


def _bytes(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    sizes, several = document["bytes"], len({part["method"] for part in document["bytes"]["rounds"]}) > 1
    table = plain_table("bytes", "count", "silos", "up", "down", "per silo up", "per silo down", right=_NUMBERS)
    alike: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for part in sizes["rounds"]:
        alike.setdefault((part["method"], part["silos"], part["up"], part["down"]), []).append(part)
    for parts in alike.values():
        kinds = [KINDS[part["kind"]] for part in parts]
        kind = "each round" if len(kinds) > 1 else kinds[0]
        ways = (amount(parts[0][name]) for name in ("up", "down", "upPerSilo", "downPerSilo"))
        count = sum(part["count"] for part in parts)
        of = f"{parts[0]['method']}, {kind}" if several else kind
        table.add_row(of, str(count), f"{parts[0]['silos']:.3g}", *ways)
    table.add_row("in all", str(document["rounds"]), "", amount(sizes["up"]), amount(sizes["down"]), "", "")
    yield table
    yield Text()


_NUMBERS = ("count", "silos", "up", "down", "per silo up", "per silo down")


def _time(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    times = document["time"]
    table = plain_table("time on this machine", "", right=("",))
    table.add_row("a round of the slowest silo", duration(times["slowestSiloSecondsPerRound"]))
    table.add_row("a round of the server", duration(times["serverSecondsPerRound"]))
    table.add_row("the server before round 1", duration(times["secondsBeforeRound1"]))
    at_once = times["silosAtOnce"]
    table.add_row(f"all rounds, {counted(at_once, 'silo')} at a time (fedctl run)", duration(times["onThisMachine"]))
    table.add_row("all rounds, one silo after another", duration(times["oneAfterAnother"]))
    table.add_row("all rounds, every silo on such a machine", duration(times["machineForEverySilo"]))
    yield table
    yield Text("Of a trial of a few steps, for an idle machine; without transfers and start-up.")
    yield Text()


def _room(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    disk, memory = document["disk"], document["memory"]
    table = plain_table("role", "memory", "disk", "of which", right=("memory", "disk"))
    for role, parts in disk.items():
        taken = memory[role] if memory is not None else None
        shares = {name: nbytes for name, nbytes in parts.items() if name != "all" and nbytes}
        listed = ", ".join(f"{_NAMES[name]} {amount(nbytes)}" for name, nbytes in shares.items())
        table.add_row(role, amount(taken) if taken else "?", amount(parts["all"]), listed)
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
        yield Text(f"What leaves {', '.join(silos)}:", style="bold")
        for sentence in sentences:
            yield Padding(Text(f"- {sentence}"), (0, 0, 0, 2), expand=False)
    yield Text("Images and labels stay, unless an array above holds them.")
    yield Text(f"The server learns {document['learnt']['server']}.")
    yield Text(f"Other silos learn {document['learnt']['silos']}.")
