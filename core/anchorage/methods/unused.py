"""Fields that a user set and that the chosen type of their slot does not read."""

from collections.abc import Iterator, Sequence

from pydantic.alias_generators import to_camel

from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE
from anchorage.api.method import MethodSpec, ResolvedMethod
from anchorage.api.mistakes import Mistake
from anchorage.api.slots import READ_BY


def unused_overrides(spec: MethodSpec, method: ResolvedMethod) -> Iterator[Mistake]:
    """Find the fields that a user set in vain."""
    for slot, readers in READ_BY.items():
        own = getattr(spec, slot)
        for field in () if own is None else sorted(own.model_fields_set & readers.keys()):
            switch, values = readers[field]
            state = getattr(getattr(method, slot), switch)
            if state not in values:
                path = ("spec", "method", to_camel(slot), to_camel(field))
                message = (
                    f"found a value that nothing reads: {to_camel(slot)}.{switch} is {state}, and only "
                    f"{_listed(values)} {'reads' if len(values) == 1 else 'read'} {to_camel(field)}; remove it"
                )
                yield Mistake(MEANINGLESS_OVERRIDE, path, message)


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]
