"""Multiplies the silos of a file; each copy takes its own part of the pool."""

from collections.abc import Sequence
from typing import Any

from anchorage.api.errors.documents import NOT_DIVISIBLE
from anchorage.api.federation import Silo
from anchorage.api.mistakes import Mistake


def divide(silo: Any, count: int) -> Mistake | None:
    """Make a silo's document (plain values) take the first of `count` parts; return the reason if that is impossible."""
    place = ("spec", "managed", "data", "partition")
    value = silo
    for part in place:
        value = value.get(part) if isinstance(value, dict) else None
    if not isinstance(value, dict) or value.get("recipe") == "File":
        recipe_text = "found nothing" if not isinstance(value, dict) else "found the recipe File"
        return Mistake(
            NOT_DIVISIBLE, place, f"{recipe_text}, but {count} silos are to be made of it; name a recipe that draws"
        )
    value |= {"parts": count, "part": 0}
    return None


def multiply(silos: Sequence[Silo], count: int) -> tuple[Silo, ...]:
    """Make `count` silos in turn from those given to `divide`: ``name-0000`` with part 0 and so on."""
    return tuple(_copy(silos[number % len(silos)], number, len(str(count - 1))) for number in range(count))


def _copy(silo: Silo, number: int, digits: int) -> Silo:
    managed = silo.spec.managed
    assert managed is not None and managed.data.partition is not None, "it was divided"
    partition = managed.data.partition.model_copy(update={"part": number})
    data = managed.data.model_copy(update={"partition": partition})
    spec = silo.spec.model_copy(update={"managed": managed.model_copy(update={"data": data})})
    metadata = silo.metadata.model_copy(update={"name": f"{silo.metadata.name}-{number:0{digits}d}"})
    return silo.model_copy(update={"spec": spec, "metadata": metadata})
