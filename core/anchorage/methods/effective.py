"""A resolved method as documents write it."""

from collections.abc import Iterator, Mapping
from typing import Any

from anchorage.api.method import ResolvedMethod


def written_slots(method: ResolvedMethod) -> Mapping[str, Any]:
    """Return the slots by their names in the API, without empty values; JSON values."""
    written = method.model_dump(mode="json", by_alias=True, exclude={"name"}, exclude_none=True)
    return {
        slot: {name: value for name, value in options.items() if value != {} or slot != "local"}
        for slot, options in written.items()
    }


def leaves(slots: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every field with its dotted path; an alternative without options is one, its value the empty text."""
    for name, value in slots.items():
        place = f"{path}.{name}" if path else name
        if isinstance(value, Mapping) and value:
            yield from leaves(value, place)
        else:
            yield place, "" if value == {} else value
