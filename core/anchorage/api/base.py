"""Base class and common field types of the API's documents."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

API_VERSION = "anchorage.dev/v1alpha1"

DECIMAL_PATTERN = r"^-?[0-9]{1,9}(\.[0-9]{1,12})?$"
POSITIVE_DECIMAL_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,12})?$"
ABOVE_ZERO_PATTERN = r"^0*([1-9][0-9]*(\.[0-9]{1,12})?|0\.[0-9]*[1-9][0-9]*)$"
FRACTION_PATTERN = r"^(0(\.[0-9]{1,12})?|1(\.0{1,12})?)$"
SHARE_PATTERN = r"^(0\.[0-9]{0,11}[1-9][0-9]{0,11}|1(\.0{1,12})?)$"
CLASS_COUNTS_PATTERN = r"^[1-9][0-9,x]*$"
QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$"
TRACKING_URI_PATTERN = r"^([a-z][a-z0-9+.-]*://|file:)[^@\s]+$"
NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
NAMES_PATTERN = r"^[a-z0-9*?-]+$"
WEIGHTS_PATTERN = r"^(models:/[^/:\x00-\x1f]+(/\d+|@[\w-]+)|[A-Za-z0-9][\w.-]*)$"
SUBDOMAIN_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
RESOURCE_PATTERN = r"^[A-Za-z0-9]([-A-Za-z0-9./]*[A-Za-z0-9])?$"
LABEL_KEY_PATTERN = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE_PATTERN = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
IMAGE_PATTERN = r"^[A-Za-z0-9][-A-Za-z0-9._:/@]*$"
SECRET_KEY_PATTERN = r"^[-._A-Za-z0-9]+$"
ENV_NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_.-]*$"
MOUNT_PATH_PATTERN = r"^/[^/:\x00][^:\x00]*$"
HOST_PATTERN = r"^(\*\.)?[A-Za-z0-9]([-A-Za-z0-9.:]*[A-Za-z0-9])?$"
ADDRESS_PATTERN = r"^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9a-f:.]+\]):[1-9][0-9]{0,4}$"
PATH_PATTERN = r"^[^/\x00][^\x00]*$"
CLASS_PATTERN = r"^[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f])?$"
TITLE_PATTERN = r"^[^/:\x00-\x1f]+$"
WORD_PATTERN = r"^[A-Z][A-Za-z0-9]*$"
TIME_PATTERN = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$"
DIGEST_PATTERN = r"^[a-z0-9:-]*$"
TRAINABLE_PATTERN = r"^(All|Head|encoder\.[\w.*]+(,encoder\.[\w.*]+)*)$"
CODE_PATTERN = r"^(ANC-\d{4})?$"
KEY_PATTERN = r"^([0-9a-f]{64})?$"

Decimal = Annotated[str, StringConstraints(strict=True, pattern=DECIMAL_PATTERN, max_length=24)]
"""A decimal number as a quoted string ("0.6"): the API has no floats, so that every reader sees the same digits."""

PositiveDecimal = Annotated[str, StringConstraints(strict=True, pattern=POSITIVE_DECIMAL_PATTERN, max_length=24)]
"""A decimal that is not negative."""

AboveZero = Annotated[str, StringConstraints(strict=True, pattern=ABOVE_ZERO_PATTERN, max_length=24)]
"""A decimal above 0."""

Fraction = Annotated[str, StringConstraints(strict=True, pattern=FRACTION_PATTERN, max_length=24)]
"""A decimal from 0 to 1."""

Share = Annotated[str, StringConstraints(strict=True, pattern=SHARE_PATTERN, max_length=24)]
"""A decimal above 0, at most 1."""

Name = Annotated[str, StringConstraints(strict=True, pattern=NAME_PATTERN, min_length=1, max_length=63)]
"""A DNS label, the form of Kubernetes names."""

Devices = Annotated[int, Field(ge=1, le=16)]
"""Devices of one silo that train together."""

Release = Literal["Never", "BetweenRounds"]
"""When a silo ends the process that holds its device."""


class Document(BaseModel):
    """Base class: frozen; camelCase in documents, snake_case in Python; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, strict=True)


class Metadata(Document):
    """Metadata of a document."""

    name: Name = Field(description="Name of the object, unique among objects of its kind.")
    namespace: Name | None = Field(None, description="Kubernetes namespace. Ignored outside a cluster.")
