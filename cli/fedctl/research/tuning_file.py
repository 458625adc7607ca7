"""The file of ``fedctl tune``: which fields of a federation are searched, where, and by what their values are judged."""

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal as Exact
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from anchorage.api.base import AboveZero, Decimal, Document
from anchorage.api.errors.documents import DUPLICATE_FIELD, UNKNOWN_CHOICE, UNKNOWN_METHOD
from anchorage.api.federation import ApiVersion
from anchorage.api.mistakes import DocumentError, FieldPath, Mistake, format_path
from anchorage.api.overrides import path_of
from anchorage.api.single import read_document
from anchorage.api.source import read_documents
from anchorage.methods import validate_study

if TYPE_CHECKING:  # reading a file needs no Optuna
    from optuna.trial import Trial

SEARCHED = ("method", "model", "rounds", "warmUp", "protocol")
"""Fields of a federation's spec that may be searched: the others decide on which images trials are trained and scored."""
DIGITS = 4
"""Significant digits of a drawn number, so that a file can show what was tried."""
_OF_DOCUMENTS = "ANC-10"
"""How codes of mistakes begin that a document has by itself, whatever else it says."""


def _searchable(path: str) -> str:
    root, *parts = path.split(".")
    if root != "spec" or not parts or parts[0] not in SEARCHED or "" in parts or "=" in path:
        allowed = ", ".join(f"spec.{name}" for name in SEARCHED)
        raise ValueError(
            f'found "{path}", allowed is one of {allowed}, or a field below: all trials train and score on the same images'
        )
    return path


SearchedPath = Annotated[str, StringConstraints(strict=True, max_length=256), AfterValidator(_searchable)]


class Range(Document):
    """Numbers from `low` to `high`, each as likely."""

    low: Decimal = Field(description="Smallest value.")
    high: Decimal = Field(description="Largest value.")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if Exact(self.low) >= Exact(self.high):
            raise ValueError(f'found low "{self.low}" and high "{self.high}"; low must be below high')
        return self

    def nearest(self, number: float) -> str:
        """Write a number with few digits, and within the range."""
        short = Exact(f"{number:.{DIGITS}g}")
        return format(min(max(short, Exact(self.low)), Exact(self.high)), "f")


class LogRange(Range):
    """Numbers from `low` to `high`, each power of ten as likely."""

    low: AboveZero = Field(description="Smallest value, above 0.")
    high: AboveZero = Field(description="Largest value.")


class IntegerRange(Document):
    """Whole numbers from `low` to `high`, each as likely."""

    low: int = Field(description="Smallest value.")
    high: int = Field(description="Largest value.")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"found low {self.low} and high {self.high}; low must be below high")
        return self


class Parameter(Document):
    """A field that is searched: its path, and one of `uniform`, `logUniform`, `integer` and `choice`."""

    path: SearchedPath = Field(description="Field of the federation, as --set takes it.")
    uniform: Range | None = Field(None, description="Numbers, each as likely.")
    log_uniform: LogRange | None = Field(None, description="Numbers above 0, each power of ten as likely.")
    integer: IntegerRange | None = Field(None, description="Whole numbers.")
    choice: Annotated[tuple[Any, ...], Field(min_length=2, max_length=100)] | None = Field(
        None, description="Values, of which each may be a whole method."
    )
    when: dict[str, Any] = Field(
        {},
        description="Values with which alone it is searched, by the path of a choice above, or of a field inside it.",
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        distributions = [
            each for each in (self.uniform, self.log_uniform, self.integer, self.choice) if each is not None
        ]
        if len(distributions) != 1:
            raise ValueError(
                f"found {len(distributions)} of uniform, logUniform, integer and choice; write exactly one"
            )
        return self

    @property
    def name(self) -> str:
        """Its name in Optuna's study; a path may stand in several parameters that differ in `when`."""
        return f"{self.path} when {format_value(self.when)}" if self.when else self.path

    def active(self, drawn: Mapping[str, str]) -> bool:
        """Return whether it is searched beside what was drawn of the parameters above, by path."""
        return all(
            format_value(value) in [_at(drawn_path, text, path) for drawn_path, text in drawn.items()]
            for path, value in self.when.items()
        )

    def suggest(self, trial: "Trial") -> str:
        """Return a value as an override writes it, proposed by Optuna."""
        if self.choice is not None:
            return str(trial.suggest_categorical(self.name, self.extremes()))
        if self.integer is not None:
            return str(trial.suggest_int(self.name, self.integer.low, self.integer.high))
        numbers = self.log_uniform or self.uniform
        assert numbers is not None, "it has one of the four"
        low, high = float(numbers.low), float(numbers.high)
        return numbers.nearest(trial.suggest_float(self.name, low, high, log=self.log_uniform is not None))

    def extremes(self) -> list[str]:
        """Return the values that a range lies between, or every choice, as an override writes them."""
        if self.choice is not None:
            return [format_value(value) for value in self.choice]
        numbers = self.log_uniform or self.uniform or self.integer
        assert numbers is not None, "it has one of the four"
        return [str(numbers.low), str(numbers.high)]


class TuningFile(Document):
    """A search for settings of a federation."""

    api_version: ApiVersion = Field("anchorage.dev/v1alpha1", description="Version of the API.")
    kind: Literal["Tuning"] = Field(description="Kind of document.")
    federation: str = Field(description="File of the documents, beside this one.")
    metric: Literal["balanced_accuracy", "accuracy", "macro_auc", "loss"] = Field(
        "balanced_accuracy",
        description="Metric on the validation images, at the best round, that trials are judged by.",
    )
    parameters: Annotated[tuple[Parameter, ...], Field(min_length=1, max_length=100)] = Field(
        description="What is searched."
    )
    minutes: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        description="Minutes after which no further trial begins, those of earlier starts included."
    )
    trials: Annotated[int, Field(ge=1, le=100_000)] = Field(100, description="Most trials, refused ones included.")
    seeds: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="Seeds of each trial, from spec.seed on.")
    silos: Annotated[int, Field(ge=1, le=100_000)] | None = Field(None, description="As fedctl simulate --silos.")

    def draw(self, trial: "Trial") -> list[str]:
        """Return the overrides of a trial, proposed by Optuna."""
        drawn: dict[str, str] = {}
        for parameter in self.parameters:
            if parameter.active(drawn):
                drawn[parameter.path] = parameter.suggest(trial)
        return _overrides(drawn)

    def probes(self, place: int) -> Iterator[list[str]]:
        """Yield overrides for each extreme of a parameter, with the first values of those above it that suit."""
        parameter, drawn = self.parameters[place], dict[str, str]()
        for other in self.parameters[:place]:
            if other.active(drawn):
                inside = {
                    path: value for path, value in parameter.when.items() if f"{path}.".startswith(f"{other.path}.")
                }
                suiting = (
                    t
                    for t in other.extremes()
                    if all(_at(other.path, t, p) == format_value(v) for p, v in inside.items())
                )
                drawn[other.path] = next(suiting, other.extremes()[0])
        for value in parameter.extremes():
            yield _overrides({**drawn, parameter.path: value})


def format_value(value: Any) -> str:
    """Write a value as an override has it: JSON, which is YAML too."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _at(chosen: str, text: str, path: str) -> str | None:
    """Return the value, as `format_value`, of a field at or below a chosen one; None where it sets none there."""
    value = json.loads(text)
    if not f"{path}.".startswith(f"{chosen}."):
        return None
    for part in path.removeprefix(chosen).split(".")[1:]:
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return format_value(value)


def _overrides(drawn: Mapping[str, str]) -> list[str]:
    return [f"{path}={value}" for path, value in drawn.items()]


def read_tuning(file: Path) -> TuningFile:
    """Read the file of a search, and try every bound and choice on the federation's documents.

    Raises
    ------
    DocumentError
        With every mistake: in the federation's documents, else in this file. Choices and bounds that only do not go together with other
        fields are none.
    """
    tuning = read_document(file, TuningFile)
    federation = file.parent / tuning.federation
    validate_study(federation, silos=tuning.silos)
    mistakes = [mistake for place in range(len(tuning.parameters)) for mistake in _mistakes(tuning, place, federation)]
    if mistakes:
        raise DocumentError(_locate(mistakes, file))
    return tuning


def _locate(mistakes: Sequence[Mistake], file: Path) -> list[Mistake]:
    (raw,) = read_documents(file)
    places = [raw.where(str(file), mistake.path) for mistake in mistakes]
    return [
        Mistake(mistake.failure, mistake.path, mistake.message, where=where, line=line)
        for mistake, (where, line) in zip(mistakes, places, strict=True)
    ]


def _mistakes(tuning: TuningFile, place: int, federation: Path) -> list[Mistake]:
    parameter, above = tuning.parameters[place], tuning.parameters[:place]
    at: FieldPath = ("parameters", place)
    if parameter.name in [other.name for other in above]:
        return [Mistake(DUPLICATE_FIELD, (*at, "path"), f"found {parameter.name} a second time; remove one")]
    mistakes = []
    for path, value in parameter.when.items():
        values = (_at(other.path, text, path) for other in above if other.choice for text in other.extremes())
        known = list(dict.fromkeys(filter(None, values)))
        if format_value(value) not in known:
            allowed = f"one of {', '.join(known)}" if known else "the path of a choice above, or of a field inside it"
            mistakes.append(
                Mistake(UNKNOWN_CHOICE, (*at, "when", path), f"found {format_value(value)}, allowed is {allowed}")
            )
    return mistakes or _unusable(parameter, tuning, place, federation)


def _unusable(parameter: Parameter, tuning: TuningFile, place: int, federation: Path) -> list[Mistake]:
    """Return a mistake for each choice, and one for the bounds, that the field itself cannot have."""
    field, mistakes = path_of(parameter.path), dict[FieldPath, Mistake]()
    for number, overrides in enumerate(tuning.probes(place)):
        try:
            validate_study(federation, overrides, tuning.silos)
        except DocumentError as error:
            at: FieldPath = ("parameters", place, *(("choice", number) if parameter.choice else ("path",)))
            for mistake in error.mistakes:
                itself = mistake.code.startswith(_OF_DOCUMENTS) or mistake.failure is UNKNOWN_METHOD
                if itself and mistake.path[: len(field)] == field:
                    inside = format_path(mistake.path[len(field) :])
                    message = ": ".join(part for part in (overrides[-1], inside, mistake.message) if part)
                    mistakes.setdefault(at, Mistake(mistake.failure, at, message))
    return list(mistakes.values())
