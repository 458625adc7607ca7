"""What a model tells of an image."""

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, StringConstraints

from anchorage.api.base import CLASS_PATTERN
from anchorage.api.mistakes import FieldPath
from anchorage.api.piece import Piece

ClassName = Annotated[str, StringConstraints(strict=True, pattern=CLASS_PATTERN, max_length=128)]
"""A class as people write it: one line of text without blanks around it."""


CLASSIFICATION = frozenset({"classification"})
"""What a piece whose images are of one class each can serve (`anchorage.api.piece.Piece.tasks`)."""


_LEAST = 2


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"found {', '.join(twice)} more than once; give every class a name of its own")
    if len(names) < _LEAST:
        raise ValueError(f"found {', '.join(names) or 'no class'}, allowed are at least {_LEAST} classes")
    return names


class Task(Piece):
    """What a model tells of an image. Every task has named classes, in the order of the model's outputs."""

    slot: ClassVar[str] = "task"

    classes: Annotated[tuple[ClassName, ...], Field(max_length=10_000), AfterValidator(_distinct)] = Field(
        description="Names of the classes, in the order of the model's outputs.", json_schema_extra={"minItems": _LEAST}
    )

    @property
    def path(self) -> FieldPath:
        """Where the task stands: beside the method."""
        return ("spec", "task")
