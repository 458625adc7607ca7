"""Base class and common field types of the API's documents."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

API_VERSION = "anchorage.dev/v1alpha1"

FORMS: dict[str, str] = {}
"""What texts of the API's patterns are, in words, for messages and the reference."""


def _form(pattern: str, words: str) -> str:
    FORMS[pattern] = words
    return pattern


DECIMAL_PATTERN = _form(r"^-?[0-9]{1,9}(\.[0-9]{1,12})?$", 'a quoted decimal number such as "0.6"')
POSITIVE_DECIMAL_PATTERN = _form(
    r"^[0-9]{1,9}(\.[0-9]{1,12})?$", 'a quoted decimal number that is not negative, such as "0.6"'
)
ABOVE_ZERO_PATTERN = _form(
    r"^0*([1-9][0-9]*(\.[0-9]{1,12})?|0\.[0-9]*[1-9][0-9]*)$", 'a quoted decimal number above 0, such as "0.6"'
)
FRACTION_PATTERN = _form(r"^(0(\.[0-9]{1,12})?|1(\.0{1,12})?)$", 'a quoted decimal number from 0 to 1, such as "0.6"')
SHARE_PATTERN = _form(
    r"^(0\.[0-9]{0,11}[1-9][0-9]{0,11}|1(\.0{1,12})?)$", 'a quoted decimal number above 0, at most 1, such as "0.6"'
)
MASK_VALUE_PATTERN = _form(r"^(0|[1-9][0-9]*)$", 'a quoted value of pixels such as "255"')
CLASS_COUNTS_PATTERN = _form(
    r"^[1-9][0-9,x]*$", 'quoted numbers of classes such as "5", or "8x1,7x1,5x8" by number of parts'
)
QUANTITY_PATTERN = _form(r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$", "an amount such as 500m or 20Gi")
TRACKING_URI_PATTERN = _form(
    r"^([a-z][a-z0-9+.-]*://|file:)[^@\s]+$",
    "a URI such as http://mlflow:5000 or sqlite:///mlflow.db, without user and password",
)
NAME_PATTERN = _form(
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a name of lower-case letters, digits and dashes, at most 63 long"
)
FEDERATION_NAME_PATTERN = _form(
    r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
    "a name of lower-case letters, digits and dashes that begins with a letter, at most 63 long",
)
NAMES_PATTERN = _form(r"^[a-z0-9*?-]+$", "names of silos such as cpu-*, with * for any characters and ? for one")
WEIGHTS_PATTERN = _form(
    r"^(models:/[^/:\x00-\x1f]+(/\d+|@[\w-]+)|[A-Za-z0-9][\w.-]*)$",
    "a name such as IMAGENET1K_V1 (letters, digits, dots, dashes, underscores), models:/NAME/VERSION or models:/NAME@ALIAS",
)
SUBDOMAIN_PATTERN = _form(
    r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "a name of lower-case letters, digits, dashes and dots, at most 253 long"
)
RESOURCE_PATTERN = _form(r"^[A-Za-z0-9]([-A-Za-z0-9./]*[A-Za-z0-9])?$", "a resource such as cpu or nvidia.com/gpu")
LABEL_KEY_PATTERN = _form(
    r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
    "a label's key such as zone or example.org/zone",
)
LABEL_VALUE_PATTERN = _form(
    r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
    "a label's value: letters, digits, dashes, dots and underscores, at most 63",
)
IMAGE_PATTERN = _form(r"^[A-Za-z0-9][-A-Za-z0-9._:/@]*$", "an image such as example.org/anchorage-server:0.2")
SECRET_KEY_PATTERN = _form(r"^[-._A-Za-z0-9]+$", "a key of a Secret: letters, digits, dashes, dots and underscores")
ENV_NAME_PATTERN = _form(r"^[A-Za-z_][A-Za-z0-9_.-]*$", "a variable's name such as OMP_NUM_THREADS")
MOUNT_PATH_PATTERN = _form(r"^/[^/:\x00][^:\x00]*$", "an absolute path without colon, at most 512 characters")
HOST_PATTERN = _form(r"^(\*\.)?[A-Za-z0-9]([-A-Za-z0-9.:]*[A-Za-z0-9])?$", "a DNS name or an IP address")
ADDRESS_PATTERN = _form(
    r"^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9a-f:.]+\]):[1-9][0-9]{0,4}$",
    "host:port, such as derm.example.org:8443",
)
PATH_PATTERN = _form(r"^[^/\x00][^\x00]*$", "a relative path without .., at most 1024 characters")
CLASS_PATTERN = _form(
    r"^[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f])?$",
    'the name of a class on one line; quote a number: "0"',
)
TITLE_PATTERN = _form(r"^[^/:\x00-\x1f]+$", "text without slash and colon, at most 200 characters")
WORD_PATTERN = _form(r"^[A-Z][A-Za-z0-9]*$", "a word such as FedAnchor: a capital, then letters and digits, at most 63")
TIME_PATTERN = _form(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$", "a time in UTC such as 2026-11-21T12:00:00Z")
DIGEST_PATTERN = _form(r"^[a-z0-9:-]*$", "a digest: lower-case letters, digits, dashes and colons, at most 160")
TRAINABLE_PATTERN = _form(
    r"^(All|Head|encoder\.[\w.*]+(,encoder\.[\w.*]+)*)$", "All, Head, or names such as encoder.layer4,encoder.norm*"
)
LAYER_PATTERN = _form(
    r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*$",
    "a module of the network, such as encoder or encoder.layer3, at most 200 characters",
)
PACKAGE_PATTERN = _form(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63} [0-9A-Za-z][0-9A-Za-z.+!_-]{0,63}$",
    "a package's name and version, such as acme 0.1.0",
)
CODE_PATTERN = _form(r"^(ANC-\d{4})?$", "a code such as ANC-3004, or nothing")
KEY_PATTERN = _form(r"^([0-9a-f]{64})?$", "64 hexadecimal digits, or nothing")
DECIMALS = (DECIMAL_PATTERN, POSITIVE_DECIMAL_PATTERN, ABOVE_ZERO_PATTERN, FRACTION_PATTERN, SHARE_PATTERN)
"""Patterns of quoted decimals."""

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
    """Name and namespace of an object."""

    name: Name = Field(description="Name of the object, unique in its kind.")
    namespace: Name | None = Field(None, description="Kubernetes namespace of the object.")


FederationName = Annotated[
    str, StringConstraints(strict=True, pattern=FEDERATION_NAME_PATTERN, min_length=1, max_length=63)
]
"""The name of a federation: Services are named after it, which begin with a letter."""


class FederationMetadata(Metadata):
    """Name and namespace of a Federation."""

    name: FederationName = Field(description="Unique name of the federation.")
