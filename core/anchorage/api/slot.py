"""How a document writes a slot: a mapping of exactly one member, named after the alternative, that holds this alternative's options."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializationInfo,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic.alias_generators import to_camel, to_pascal, to_snake
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError, core_schema

from anchorage.api.allowed import alternatives
from anchorage.api.base import Document
from anchorage.api.mistakes import FieldPath, suggest
from anchorage.api.piece import NEW_OPTION, PIECES, PLUGIN, TOLD_TO_SILOS, Piece

D = TypeVar("D", bound=Document)

PLUGIN_NAME_PATTERN = r"^[a-z][a-z0-9_]*\.[A-Za-z][A-Za-z0-9]*$"
"""A package's word, a dot, and the piece's name."""

UNKNOWN_ALTERNATIVE = "unknown_alternative"
"""Type of the error about a word that is no alternative's name, told at that word."""

_WORD = re.compile(r"\w+\Z", re.ASCII)

_OF_PYDANTIC = frozenset(get_args(core_schema.ErrorType)) - {"value_error", "assertion_error"}
"""Types of errors that pydantic words itself."""


class Plugin(Document):
    """Alternative from another Python package. The package registers it (docs/writing-a-method.md), and must be installed at the server and at
    every silo.
    """

    name: Annotated[str, StringConstraints(pattern=PLUGIN_NAME_PATTERN, max_length=128)] = Field(
        description="Name of the alternative: the package's prefix, a dot, and its own name.",
        examples=["acme.TrimmedMean"],
    )
    options: Annotated[dict[str, Any], Field(max_length=64)] = Field(
        {},
        description="Options of the alternative, which the package defines. Options that are left out have their defaults.",
    )


@dataclass(frozen=True)
class Slot:
    """Marks a field that holds a piece: ``Annotated[Piece, Slot("weighting")]``."""

    name: str
    """Slot of the pieces that can stand there."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read a member into its piece, and write the piece as the member again."""
        return core_schema.with_info_plain_validator_function(
            self._read, serialization=core_schema.plain_serializer_function_ser_schema(_serialise, info_arg=True)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe a mapping of exactly one of the members."""
        kinds: dict[str, type[Document]] = {
            name: p for name, p in PIECES.list_loaded(self.name).items() if "." not in name
        }
        kinds[PLUGIN] = Plugin
        members: dict[str, JsonSchemaValue] = {
            name: {**handler(kind.__pydantic_core_schema__), "description": _summary(kind)}
            for name, kind in kinds.items()
        }
        return {
            "title": f"{to_pascal(self.name)}Slot",
            "description": "Exactly one of these alternatives, with its options.",
            "type": "object",
            "properties": members,
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        }

    def _read(self, value: Any, info: ValidationInfo) -> Piece:
        if isinstance(value, Piece):
            if value.slot != self.name:
                raise ValueError(f"found a piece of the slot {value.slot}")
            return value
        if not isinstance(value, Mapping):
            raise PydanticCustomError("dict_type", "Input should be a mapping")
        known = {name: piece for name, piece in PIECES.list_loaded(self.name).items() if "." not in name}
        names = [*known, PLUGIN]
        if unknown := [word for word in value if word not in names]:
            raise _validation_error(_unknown(word, names, (word,)) for word in unknown)
        if len(value) != 1:
            raise ValueError(f"found {' and '.join(value) or 'nothing'}, allowed is exactly one of {', '.join(names)}")
        ((member, options),) = value.items()
        return self._plugin(options) if member == PLUGIN else _parse(known[member], options, (member,))

    def _plugin(self, value: Any) -> Piece:
        plugin = _parse(Plugin, value, (PLUGIN,))
        if PIECES.stand_ins is not None and PIECES.apart(self.name, plugin.name):
            return PIECES.stand_ins.piece(self.name, plugin.name, plugin.options)
        piece_class = PIECES.find(self.name, plugin.name) if "." in plugin.name else None
        if piece_class is None:
            known = [name for name in PIECES.list_loaded(self.name) if "." in name]
            raise _validation_error([_unknown(plugin.name, known, (PLUGIN, "name"))])
        return _parse(piece_class, plugin.options, (PLUGIN, "options"), written="options" in value)


@dataclass(frozen=True)
class Kind:
    """Marks a field that holds the name of a piece without options: ``Annotated[str, Kind("network")]``.

    A piece whose name ends with a slash stands for a library: a document names something of it after the slash.
    """

    slot: str
    """Slot of the pieces that it can name."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read the name of an installed piece."""
        return core_schema.no_info_after_validator_function(self._check_name, core_schema.str_schema(strict=True))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe this package's names, and the form of those that other packages add."""
        names = list(PIECES.list_loaded(self.slot))
        product_names = [name for name in names if not {".", "/"} & {*name}]
        mark = "[./]" if any(map(_is_library, names)) else r"\."
        pattern = rf"^({'|'.join(product_names)}|[a-z]\w*{mark}\w+)$"
        return {"type": "string", "maxLength": 128, "pattern": pattern, "examples": product_names}

    def _check_name(self, name: str) -> str:
        library, slash, member = name.partition("/")
        installed = PIECES.apart(self.slot, library + slash) or PIECES.find(self.slot, library + slash) is not None
        if not installed or bool(slash) != bool(_WORD.match(member)):
            known = [f"{known}NAME" if _is_library(known) else known for known in PIECES.list_loaded(self.slot)]
            raise PydanticCustomError(UNKNOWN_ALTERNATIVE, unknown(name, known))
        return name


def _is_library(name: str) -> bool:
    return name.endswith("/")


def write_piece(piece: Piece) -> dict[str, Any]:
    """Return a piece as the value of its slot in a document."""
    options = piece.model_dump(mode="json", by_alias=True)
    return {PLUGIN: {"name": piece.name, "options": options}} if "." in piece.name else {piece.name: options}


def read_piece(slot: str, document: Any) -> Piece:
    """Return the piece that the value of a slot in a document stands for.

    Raises
    ------
    ValidationError
        It is none.
    """
    piece: Piece = TypeAdapter(Annotated[Piece, Slot(slot)]).validate_python(document)
    return piece


def unknown(name: str, known: Sequence[str]) -> str:
    """Say that no piece has this name, which is nearest, and which there are."""
    return (
        f"found {name!r}, {suggest(name, known)}allowed are {', '.join(known) or 'none: no installed package adds one'}"
    )


def described_by(kind: type[Document], path: FieldPath, document: Any) -> tuple[type[Document], FieldPath]:
    """Return the type that describes a field of a document, and the field's path in it: another package's piece for its own options."""
    value = document
    for index, part in enumerate(path):
        if part == PLUGIN and path[index + 1 : index + 2] == ("options",):
            titles = [str(schema.get("title", "")) for schema in alternatives(kind, path[:index])]
            pieces = [PIECES.find(to_snake(title.removesuffix("Slot")), value[PLUGIN]["name"]) for title in titles]
            return next(((piece, path[index + 2 :]) for piece in pieces if piece is not None), (kind, path))
        value = value.get(part) if isinstance(value, Mapping) else None
    return kind, path


def _parse(kind: type[D], options: Any, place: FieldPath, *, written: bool = True) -> D:
    """Make a piece of its options; its mistakes get their place below the slot, that of all options where none are written.

    Raises
    ------
    ValidationError
        With every mistake.
    """
    try:
        return kind.model_validate_json(json.dumps(options), by_alias=True, by_name=False)
    except ValidationError as error:
        details = error.errors(include_url=False)
    raise _validation_error(_place(detail, (*place, *detail["loc"]) if written else place) for detail in details)


def _validation_error(details: Iterable[InitErrorDetails]) -> ValidationError:
    return ValidationError.from_exception_data("slot", list(details))


def _place(detail: ErrorDetails, place: FieldPath) -> InitErrorDetails:
    """Tell a mistake again, at its place below the slot."""
    if detail["type"] in _OF_PYDANTIC:
        return InitErrorDetails(type=detail["type"], loc=place, input=detail["input"], ctx=detail.get("ctx", {}))
    return InitErrorDetails(
        type=PydanticCustomError(detail["type"], detail["msg"]),
        loc=place,
        input=detail["input"],
    )


def _unknown(word: str, known: Sequence[str], place: FieldPath) -> InitErrorDetails:
    error = PydanticCustomError(UNKNOWN_ALTERNATIVE, unknown(word, known))
    return InitErrorDetails(type=error, loc=place, input=word)


def _serialise(piece: Piece, info: SerializationInfo) -> dict[str, Any]:
    options = piece.model_dump(
        mode=info.mode,
        by_alias=True,
        exclude_unset=info.exclude_unset,
        exclude_defaults=info.exclude_defaults,
        exclude_none=info.exclude_none,
        context=info.context,
    )
    fields = type(piece).model_fields.items()
    if info.exclude_none:  # null says something where it is not the default
        unlike = (name for name, option in fields if getattr(piece, name) is None and option.default is not None)
        options |= {to_camel(name): None for name in unlike}
    if info.context is TOLD_TO_SILOS:
        for name, option in fields:
            if NEW_OPTION in option.metadata and getattr(piece, name) == option.default:
                options.pop(to_camel(name), None)
    return {PLUGIN: {"name": piece.name, "options": options}} if "." in piece.name else {piece.name: options}


def _summary(kind: type[Document]) -> str:
    return " ".join((kind.__doc__ or "").split("\n\n", 1)[0].split())
