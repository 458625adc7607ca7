"""What silos are told of a run stays readable to agents of the release before, as long as the run uses nothing newer.

`released_description.json` lists the fields in which the last release describes runs. A release writes it anew: ANCHORAGE_REWRITE_GOLDEN=1.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, cast

import pytest
from pydantic import Field

from anchorage.api.federation import Federation
from anchorage.api.files import Study
from anchorage.api.method import MethodSpec
from anchorage.api.run import RunDescription
from anchorage.methods import PRESETS, resolve
from anchorage.methods.composition import describe_run
from anchorage.pieces.local_loss.balanced_softmax import BalancedSoftmax
from anchorage.pieces.regulariser.proximal import Proximal
from anchorage.transport.tensors.layout import Layout

RELEASED = Path(__file__).parents[2] / "golden" / "released_description.json"
REWRITE = "ANCHORAGE_REWRITE_GOLDEN"
MODEL = {"network": "SmallCnn", "imageSize": 8, "channels": 1, "augmentation": "Digits"}


def described(preset: str, **model: Any) -> RunDescription:
    """Describe a run of a preset, with nothing set that need not be."""
    spec = {
        "task": {"classification": {"classes": ["a", "b"]}},
        "rounds": 3,
        "model": MODEL | model,
        "method": {"name": preset},
    }
    federation = {"apiVersion": "anchorage.dev/v1alpha1", "kind": "Federation", "metadata": {"name": "derm"}}
    document = Federation.model_validate_json(json.dumps(federation | {"spec": spec}))
    layout = Layout.of([("weight", "F32", (2,))])
    learner = SimpleNamespace(down=layout, up=layout)
    return describe_run(Study(document, (), Path("federation.yaml"), ()), cast(Any, learner))


def fields(value: Any, place: str = "") -> Iterator[str]:
    """Yield every field of a description, by its path."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield place + name
        yield from fields(inner, f"{place}{name}.")


def newer(released: set[str], preset: str, **model: Any) -> set[str]:
    """Return the fields that agents of the last release refuse in a description."""
    return set(fields(json.loads(described(preset, **model).to_json()))) - released


@pytest.fixture(scope="module")
def released() -> set[str]:
    if os.environ.get(REWRITE):
        now = {field for preset in PRESETS for field in fields(json.loads(described(preset).to_json()))}
        RELEASED.write_text(json.dumps(sorted(now), indent=1) + "\n")
    return set(json.loads(RELEASED.read_text()))


NEW_PRESETS = {"SharesHead", "PrincipalComponents"}
"""Presets that came after the last release, whose options its agents do not know."""


@pytest.mark.parametrize("preset", [name for name in PRESETS if name not in NEW_PRESETS])
def test_a_run_that_uses_nothing_newer_is_told_in_fields_of_the_last_release(preset: str, released: set[str]) -> None:
    assert newer(released, preset) == set()


def test_a_newer_field_is_told_where_it_is_used(released: set[str]) -> None:
    assert newer(released, "FedAvg", trainable="Head", lora={}) == {"model.lora", "model.lora.alpha", "model.lora.rank"}


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_left_out_is_read_as_it_was(preset: str) -> None:
    run = described(preset)
    assert RunDescription.model_validate_json(run.to_json()) == run


def test_null_in_place_of_another_default_is_told() -> None:
    class Bounded(Proximal):
        most_steps: Annotated[int, Field(ge=1, le=9)] | None = Field(5, description="Steps, or all.")
        least_steps: Annotated[int, Field(ge=1, le=9)] | None = Field(None, description="Steps, or none.")

    method = resolve(MethodSpec(name="FedAvg", regulariser=Bounded(most_steps=None)))
    text = described("FedAvg").model_copy(update={"method": method}).to_json()
    assert json.loads(text)["method"]["regulariser"] == {"proximal": {"mu": "0.01", "mostSteps": None}}


@pytest.mark.parametrize(("shares", "expected"), [("Silo", {}), ("Federation", {"shares": "Federation"})])
def test_a_new_option_of_a_piece_is_told_where_it_is_not_the_default(shares: Any, expected: dict[str, str]) -> None:
    method = resolve(MethodSpec(name="FedAvg", local_loss=BalancedSoftmax(shares=shares)))
    text = described("FedAvg").model_copy(update={"method": method}).to_json()
    assert json.loads(text)["method"]["localLoss"] == {"balancedSoftmax": expected}
    assert RunDescription.model_validate_json(text).method == method
