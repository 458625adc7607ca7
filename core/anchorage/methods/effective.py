"""The fields of a method that its slots' types read; the others mean nothing to it."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.alias_generators import to_camel

from anchorage.api.method import ResolvedMethod
from anchorage.api.slots import READ_BY


def effective_slots(method: ResolvedMethod) -> Mapping[str, Any]:
    """Return the slots by their names in the API, without fields that nothing reads and without empty ones; JSON values."""
    slots = {}
    for name, values in method.model_dump(mode="json", exclude={"name"}, exclude_none=True).items():
        kept = {field: value for field, value in values.items() if _is_read(name, field, values)}
        slots[to_camel(name)] = {to_camel(field): _camel(value) for field, value in kept.items() if value != {}}
    return slots


def leaves(slots: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every field with its dotted path."""
    for name, value in slots.items():
        place = f"{path}.{name}" if path else name
        if isinstance(value, Mapping):
            yield from leaves(value, place)
        else:
            yield place, value


def _is_read(slot: str, field: str, values: Mapping[str, Any]) -> bool:
    reader = READ_BY.get(slot, {}).get(field)
    return reader is None or values[reader[0]] in reader[1]


def _camel(value: Any) -> Any:
    return {to_camel(field): _camel(inner) for field, inner in value.items()} if isinstance(value, Mapping) else value
