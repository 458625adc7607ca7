"""Slots of a method in documents: exactly one alternative by its name, with its own options and no others; every mistake with line and field."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field, ValidationError
from pydantic.alias_generators import to_camel

from anchorage.api.base import Fraction
from anchorage.api.checking import check_document
from anchorage.api.errors import AnchorageError
from anchorage.api.files import as_mapping, dump_yaml, load_federation
from anchorage.api.method import SLOTS, MethodSpec
from anchorage.api.mistakes import DocumentError, format_path
from anchorage.api.piece import PIECES, Piece, piece
from anchorage.api.source import RawDocument
from anchorage.api.task import Task
from anchorage.engine.aggregation.weigher import CountWeigher
from anchorage.methods import PRESETS, resolve
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.flexmatch import FlexMatch
from anchorage.pieces.server_objective.label_contrastive import LabelContrastive
from anchorage.pieces.server_training.anchors import Anchors
from anchorage.pieces.slots import Weighting
from anchorage.pieces.weighting.semianagg import SemiAnAgg

DIGITS = Path(__file__).parents[3] / "examples" / "fedavg-digits.yaml"

PLACES: dict[str, tuple[str, ...]] = {
    **{slot: (to_camel(slot),) for slot in SLOTS},
    "optimiser": ("local", "optimiser"),
    "server_objective": ("serverTraining", "anchors", "objective"),
}
"""Where a document fills each slot, from ``spec.method`` on."""


def told(slot: str, value: Any, place: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return the reason and the field, from the slot on, of every mistake in what fills a slot."""
    place = place or PLACES[slot]
    method: Any = value
    for part in reversed(place):
        method = {part: method}
    _, mistakes = check_document(RawDocument({"name": "FedAvg", **method}, {(): 1}), MethodSpec)
    assert all(mistake.path[: len(place)] == tuple(place) for mistake in mistakes), mistakes
    return [(mistake.failure.reason, format_path(mistake.path[len(place) :])) for mistake in mistakes]


def alternatives(slot: str) -> dict[str, type[Piece]]:
    return {name: kind for name, kind in PIECES.of(slot).items() if "." not in name}


@pytest.mark.parametrize("slot", PLACES)
def test_every_alternative_is_read_and_nothing_else(slot: str) -> None:
    """The words of other slots, class names, old ones and none at all are no alternatives: nothing falls through to a default."""
    kinds = alternatives(slot)
    assert [name for name in kinds if told(slot, {name: {}})] == []
    others = {name for other in PLACES for name in alternatives(other)} - kinds.keys()
    spelt = {kind.__name__ for kind in kinds.values()} | {name.upper() for name in kinds} - kinds.keys()
    for word in (others | spelt | {"type", "", "sgd.", "acme.Trimmed", "Plugin"}) - kinds.keys():
        assert told(slot, {word: {}}) == [("UnknownChoice", word)]


@pytest.mark.parametrize("slot", PLACES)
def test_an_alternative_has_its_own_options_alone(slot: str) -> None:
    kinds = alternatives(slot)
    options = {name: {to_camel(field) for field in kind.model_fields} for name, kind in kinds.items()}
    strange = {option for known in options.values() for option in known} | {"type", "options"}
    for name, known in options.items():
        for option in sorted(strange - known):
            assert told(slot, {name: {option: 1}}) == [("UnknownField", f"{name}.{option}")]


@pytest.mark.parametrize("slot", PLACES)
@pytest.mark.parametrize("value", ["sampleCount", 3, True, ["none"], [{"none": {}}]], ids=str)
def test_a_slot_is_a_mapping(slot: str, value: Any) -> None:
    assert told(slot, value) == [("WrongType", "")]


@pytest.mark.parametrize("slot", PLACES)
def test_a_slot_has_exactly_one_alternative(slot: str) -> None:
    first, second = [*alternatives(slot), "plugin"][:2]
    assert told(slot, {}) == [("WrongForm", "")]
    assert told(slot, {first: {}, second: {}}) == [("WrongForm", "")]
    assert told(slot, {first: {}, "nonsense": {}, second: {}, "hinge": {}}) == [
        ("UnknownChoice", "nonsense"),
        ("UnknownChoice", "hinge"),
    ]


@pytest.mark.parametrize("options", [None, "Code", 1, ["order"]], ids=str)
def test_options_are_a_mapping(options: Any) -> None:
    assert told("weighting", {"semiAnAgg": options}) == [("WrongType", "semiAnAgg")]
    assert told("server_objective", {"twoViews": options}) == [("WrongType", "twoViews")]


@pytest.mark.parametrize(
    ("slot", "value", "mistakes"),
    [
        ("weighting", {"semiAnAgg": {"order": "code"}}, [("UnknownChoice", "semiAnAgg.order")]),
        ("weighting", {"semiAnAgg": {"labelledShare": 0.5}}, [("UnquotedDecimal", "semiAnAgg.labelledShare")]),
        ("weighting", {"semiAnAgg": {"labelledShare": "1.5"}}, [("OutOfRange", "semiAnAgg.labelledShare")]),
        ("weighting", {"semiAnAgg": {"labelledShare": "half"}}, [("WrongForm", "semiAnAgg.labelledShare")]),
        ("weighting", {"dvw": {"validationPercent": 0}}, [("OutOfRange", "dvw.validationPercent")]),
        ("weighting", {"dvw": {"validationPercent": "5"}}, [("WrongType", "dvw.validationPercent")]),
        (
            "weighting",
            {"dvw": {"sharpening": "0", "metric": "F1", "order": "Code"}},
            [("OutOfRange", "dvw.sharpening"), ("UnknownChoice", "dvw.metric"), ("UnknownField", "dvw.order")],
        ),
        ("server_step", {"mix": {"alpha": "0"}}, [("OutOfRange", "mix.alpha")]),
        (
            "server_objective",
            {"labelContrastive": {"temperature": "0"}},
            [("OutOfRange", "labelContrastive.temperature")],
        ),
        ("server_training", {"anchors": {"objective": {}}}, [("WrongForm", "anchors.objective")]),
        ("server_training", {"anchors": {"objective": "twoViews"}}, [("WrongType", "anchors.objective")]),
        ("server_training", {"anchors": {"objective": None}}, [("WrongType", "anchors.objective")]),
        (
            "server_training",
            {"anchors": {"epochs": 0, "objective": {"twoView": {}}, "optimiser": {"sgd": {"state": "Kept"}}}},
            [
                ("OutOfRange", "anchors.epochs"),
                ("UnknownChoice", "anchors.objective.twoView"),
                ("UnknownChoice", "anchors.optimiser.sgd.state"),
            ],
        ),
    ],
)
def test_every_mistake_in_options_has_its_field(slot: str, value: Any, mistakes: list[tuple[str, str]]) -> None:
    assert sorted(told(slot, value)) == sorted(mistakes)


def test_an_unknown_word_is_told_with_the_nearest_and_all() -> None:
    _, (mistake,) = check_document(RawDocument({"name": "FedAvg", "weighting": {"SemiAnAgg": {}}}, {(): 1}), MethodSpec)
    assert mistake.message.startswith("found 'SemiAnAgg', did you mean semiAnAgg? allowed are ")
    assert mistake.message.endswith(", ".join([*alternatives("weighting"), "plugin"]))
    _, (mistake,) = check_document(RawDocument({"name": "FedAvg", "mixup": "client"}, {(): 1}), MethodSpec)
    assert (
        mistake.message == 'found "client", allowed is a mapping of exactly one of none, both, client, server, plugin'
    )


METHOD = """\
  method:
    name: FedAnchor
    weighting:
      semiAnAgg:
        order: Cod
    pseudoLabels:
      flexMatch: {}
      fixMatch: {}
    serverTraining:
      anchors:
        epochs: 2
        objective:
          labelContrastiv: {}
    batchNorm: {static: {}}
"""


def test_every_mistake_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "derm.yaml"
    lines = DIGITS.read_text().splitlines(keepends=True)
    start = next(n for n, line in enumerate(lines) if line.startswith("  method:"))
    end = next(n for n, line in enumerate(lines) if n > start and not line.startswith("   "))
    file.write_text("".join([*lines[:start], METHOD, *lines[end:]]))
    with pytest.raises(DocumentError) as caught:
        load_federation(file)
    assert [
        (m.failure.reason, format_path(m.path).removeprefix("spec.method."), m.line - start)
        for m in caught.value.mistakes
    ] == [
        ("UnknownChoice", "weighting.semiAnAgg.order", 5),
        ("WrongForm", "pseudoLabels", 6),
        ("UnknownChoice", "serverTraining.anchors.objective.labelContrastiv", 13),
    ]


def overridden(*overrides: str) -> MethodSpec:
    return load_federation(DIGITS, overrides).federation.spec.method


def test_an_override_sets_an_option_of_an_alternative() -> None:
    method = overridden(
        "spec.method.weighting.semiAnAgg.order=Code", "spec.method.weighting.semiAnAgg.labelledShare=0.3"
    )
    assert method.weighting == SemiAnAgg(order="Code", labelled_share="0.3")
    assert method.weighting is not None and method.weighting.model_fields_set == {"order", "labelled_share"}
    override_mapping = overridden("spec.method.weighting={semiAnAgg: {order: Code, labelledShare: .3}}")
    assert override_mapping.weighting == method.weighting
    inside = overridden("spec.method.serverTraining.anchors.objective.labelContrastive.temperature=1").server_training
    assert inside == Anchors(objective=LabelContrastive(temperature="1"))


def test_an_override_of_another_alternative_replaces_the_slot_or_is_told() -> None:
    first = "spec.method.weighting={dvw: {metric: MCC}}"
    assert overridden(first, "spec.method.weighting={semiAnAgg: {}}").weighting == SemiAnAgg()
    with pytest.raises(
        DocumentError, match=r"spec\.method\.weighting: found dvw and semiAnAgg, allowed is exactly one"
    ):
        overridden(first, "spec.method.weighting.semiAnAgg.order=Code")
    with pytest.raises(DocumentError, match=r"ANC-1012 .*--set .*spec\.method\.weighting\.semiAnag: found 'semiAnag'"):
        overridden("spec.method.weighting.semiAnag={}")


def test_what_a_document_sets_goes_over_the_preset_s_own_alternative() -> None:
    name = "spec.method.name=SemiAnAgg"
    preset = PRESETS["SemiAnAgg"].slots
    method = resolve(overridden(name, "spec.method.pseudoLabels.flexMatch.curriculum=Reset"))
    assert method.pseudo_labels == preset.pseudo_labels.model_copy(update={"curriculum": "Reset"})
    assert resolve(overridden(name, "spec.method.pseudoLabels={flexMatch: {}}")).pseudo_labels == preset.pseudo_labels
    optimiser = resolve(overridden(name, "spec.method.local.optimiser={sgd: {momentum: 0}}")).local.optimiser
    assert isinstance(preset.local.optimiser, Sgd) and preset.local.optimiser.state == "Persist"
    assert optimiser == preset.local.optimiser.model_copy(update={"momentum": "0"})
    anchor = resolve(overridden("spec.method.name=FedAnchor", "spec.method.pseudoLabels={flexMatch: {}}"))
    assert anchor.pseudo_labels == FlexMatch(), "FedAnchor's threshold means nothing to FlexMatch"


def test_a_method_is_written_as_it_was_read(tmp_path: Path) -> None:
    """What was not set stays out, so that reading it again resolves the same method."""
    written = {
        "name": "FedAnchor",
        "weighting": {"semiAnAgg": {"order": "Code"}},
        "mixup": {"none": {}},
        "serverTraining": {"anchors": {"epochs": 2, "objective": {"twoViews": {"decay": "0.9"}}}},
        "local": {"epochs": 2, "optimiser": {"sgd": {"momentum": "0"}}},
    }
    study = load_federation(DIGITS, [f"spec.method={written}"])
    assert as_mapping(study.federation)["spec"]["method"] == written
    copy = tmp_path / "copy.yaml"
    copy.write_text(dump_yaml([study.federation, *study.silos]))
    reloaded = load_federation(copy).federation.spec.method
    assert reloaded == study.federation.spec.method
    assert as_mapping(load_federation(copy).federation)["spec"]["method"] == written
    assert resolve(reloaded) == resolve(study.federation.spec.method)


def test_a_piece_is_taken_in_its_own_slot_alone() -> None:
    with pytest.raises(ValidationError, match="found a piece of the slot weighting"):
        MethodSpec(name="FedAvg", pseudo_labels=SemiAnAgg())


class Trimmed(Weighting):
    """Weights without the largest and the smallest."""

    share: Fraction = Field(description="Share that is cut off.")
    keep_first: bool = Field(False, description="Whether the first silo always counts.")

    def weigher(self, task: Task) -> CountWeigher:
        return CountWeigher("train")


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Piece]]:
    """Register a piece of another package."""
    PIECES.of("weighting")  # every package is loaded
    monkeypatch.setattr(PIECES, "_pieces", dict(PIECES._pieces))
    yield piece("acme.Trimmed")(Trimmed)


@pytest.mark.parametrize(
    ("value", "mistakes"),
    [
        ({}, [("MissingField", "plugin.name")]),
        (None, [("WrongType", "plugin")]),
        ("acme.Trimmed", [("WrongType", "plugin")]),
        ({"options": {}}, [("MissingField", "plugin.name")]),
        ({"name": 3}, [("WrongType", "plugin.name")]),
        ({"name": "Trimmed"}, [("WrongForm", "plugin.name")]),
        ({"name": "semiAnAgg"}, [("WrongForm", "plugin.name")]),
        ({"name": "acme.Trimed", "options": {"share": "0.1"}}, [("UnknownChoice", "plugin.name")]),
        (
            {"name": "acme.Trimmed", "option": {"share": "0.1"}},
            [("MissingField", "plugin.options"), ("UnknownField", "plugin.option")],
        ),
        ({"name": "acme.Trimmed"}, [("MissingField", "plugin.options")]),
        ({"name": "acme.Trimmed", "options": {}}, [("MissingField", "plugin.options.share")]),
        ({"name": "acme.Trimmed", "options": None}, [("WrongType", "plugin.options")]),
        ({"name": "acme.Trimmed", "options": {"share": 0.1}}, [("UnquotedDecimal", "plugin.options.share")]),
        ({"name": "acme.Trimmed", "options": {"share": "2"}}, [("OutOfRange", "plugin.options.share")]),
        (
            {"name": "acme.Trimmed", "options": {"share": "0.1", "keepFirst": "yes", "order": "Code"}},
            [("UnknownField", "plugin.options.order"), ("WrongType", "plugin.options.keepFirst")],
        ),
        ({"name": "acme.Trimmed", "options": {"share": "0.1"}}, []),
    ],
)
def test_another_package_s_piece_is_named_with_its_options(
    acme: type[Piece], value: Any, mistakes: list[tuple[str, str]]
) -> None:
    assert sorted(told("weighting", {"plugin": value})) == mistakes


def test_mistakes_in_another_package_s_options_are_told_in_its_words(acme: type[Piece]) -> None:
    plugin = {"name": "acme.Trimmed", "options": {"share": "2", "order": "Code"}}
    _, mistakes = check_document(RawDocument({"name": "FedAvg", "weighting": {"plugin": plugin}}, {(): 1}), MethodSpec)
    messages = {format_path(mistake.path).rsplit(".", 1)[1]: mistake.message for mistake in mistakes}
    assert messages == {
        "share": 'found "2", allowed is a quoted decimal number from 0 to 1, such as "0.6"',
        "order": "found an unknown field, allowed are share, keepFirst",
    }


def test_another_package_s_piece_stands_in_its_own_slot_alone(acme: type[Piece]) -> None:
    plugin = {"name": "acme.Trimmed", "options": {"share": "0.1"}}
    for slot in PLACES.keys() - {"weighting"}:
        assert told(slot, {"plugin": plugin}) == [("UnknownChoice", "plugin.name")]
    assert told("weighting", {"acme.Trimmed": {"share": "0.1"}}) == [("UnknownChoice", "acme.Trimmed")]


def test_alternatives_have_one_order_whatever_was_imported_first(acme: type[Piece]) -> None:
    """Generated files and messages list them: none, this package's, then other packages'."""
    for slot in PLACES:
        names = list(PIECES.of(slot))
        assert names == sorted(names, key=lambda name: ("." in name, name != "none", name))
    assert list(PIECES.of("weighting"))[-1] == "acme.Trimmed"


def test_a_name_is_taken_once_in_a_slot(acme: type[Piece]) -> None:
    another = type("Another", (Trimmed,), {"__module__": __name__})
    for name in ("acme.Trimmed", "semiAnAgg"):
        with pytest.raises(AnchorageError, match=f"ANC-1111 .*weighting has two pieces called {name}"):
            piece(name)(another)


def test_another_package_s_piece_is_written_as_it_was_read(acme: type[Piece]) -> None:
    written = {"plugin": {"name": "acme.Trimmed", "options": {"share": "0.1"}}}
    federation = load_federation(DIGITS, [f"spec.method.weighting={written}"]).federation
    assert federation.spec.method.weighting == Trimmed(share="0.1")
    assert as_mapping(federation)["spec"]["method"]["weighting"] == written
    assert resolve(federation.spec.method).weighting.path == ("spec", "method", "weighting")
    assert resolve(federation.spec.method).weighting.option("share")[-4:] == ("weighting", "plugin", "options", "share")


def test_a_piece_without_a_hook_that_its_slot_needs_is_refused_as_its_package_is_loaded() -> None:
    with pytest.raises(AnchorageError, match="HalfWritten lacks weigher"):

        @piece("acme.HalfWritten")
        class HalfWritten(Weighting):
            """Weighs nobody."""
