"""What every document of the API has in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints
from pydantic.alias_generators import to_camel

Decimal = Annotated[str, StringConstraints(strict=True, pattern=r"^-?[0-9]{1,9}(\.[0-9]{1,12})?$", max_length=24)]
"""A decimal number as a quoted string ("0.6"): the API has no floats, so that every reader sees the same digits."""

PositiveDecimal = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9]{1,9}(\.[0-9]{1,12})?$", max_length=24)]
"""A decimal that is not negative."""

Name = Annotated[
    str, StringConstraints(strict=True, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=63)
]
"""A DNS label, as Kubernetes names are."""


class Document(BaseModel):
    """Frozen, camelCase on the outside, snake_case inside, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, strict=True)
