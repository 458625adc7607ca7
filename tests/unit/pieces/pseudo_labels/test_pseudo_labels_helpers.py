"""Who helps whom, and what of it travels."""

import numpy as np
import pytest
from classification_of import classes as of_classes

from anchorage.learning.weights import without_beside
from anchorage.pieces.pseudo_labels.helpers import HelperModels, Helpers
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes, read_arrays

SLOT = Helpers()
DOWN = Layout.of([("w", "F32", (300_000,)), ("psi.w", "F32", (300_000,)), ("steps", "I64", ())])


def model_of(value: float) -> ModelBytes:
    filled = {t.name: np.full(t.shape, value, "<i8" if t.dtype == "I64" else "<f4") for t in DOWN.tensors}
    return ModelBytes.from_arrays(DOWN, {**filled, "psi.w": filled["psi.w"] + 0.5})


def announced(*embedding: float) -> Announcement:
    return Announcement("task", {}, {"embedding": np.array(embedding)}, {}, None)


@pytest.fixture
def memory() -> HelperModels:
    memory = SLOT.memory(of_classes(2), 0)
    near = {"a": (0.1, 0.9), "b": (0.2, 0.8), "c": (0.9, 0.1), "d": (0.3, 0.7)}
    memory.conclude({silo: announced(*e) for silo, e in near.items()})
    memory.conclude({"odd": announced(0.1), "bad": announced(float("nan"), 0.1)})
    return memory


def test_the_nearest_help_and_a_stranger_has_no_helper(memory):
    assert memory.helpers_of("a", "abcd") == ["b", "d"]
    assert memory.helpers_of("c", "abc") == ["b", "a"]
    assert memory.helpers_of("a", "a") == memory.helpers_of("new", "abcd") == memory.helpers_of("odd", "abcd") == []
    restarted = SLOT.memory(of_classes(2), 0)
    restarted.restore(memory.state())
    assert restarted.helpers_of("a", "abcd") == ["b", "d"]


def test_helpers_travel_behind_the_model(memory):
    model, updates = model_of(1), {silo: model_of(value) for silo, value in zip("abcd", (2, 3, 4, 5), strict=True)}
    source, auxiliary = memory.model_for("a", 10, model, DOWN, updates)
    assert auxiliary["helpers"] == 2
    chunks = b"".join(source.chunk(index) for index in range(len(source.manifest.digests)))
    layout = SLOT.task_layout(DOWN)
    assert ModelBytes.of(layout, np.frombuffer(chunks, np.uint8)).manifest == source.manifest
    arrays = read_arrays(layout, np.frombuffer(chunks, np.uint8))
    firsts = {name: float(array.flat[0]) for name, array in arrays.items()}
    assert firsts == {"w": 1, "psi.w": 1.5, "steps": 1, "helper0.w": 3.5, "helper1.w": 5.5}
    assert all((array == array.flat[0]).all() for array in arrays.values())


def test_the_own_part_stands_where_a_helper_is_missing(memory):
    source, auxiliary = memory.model_for("a", 20, model_of(1), DOWN, {"a": model_of(2), "b": model_of(3)})
    buffer = np.frombuffer(b"".join(source.chunk(i) for i in range(len(source.manifest.digests))), np.uint8)
    assert auxiliary["helpers"] == 1
    arrays = read_arrays(SLOT.task_layout(DOWN), buffer)
    assert (arrays["helper0.w"][0], arrays["helper1.w"][0]) == (3.5, 1.5)


@pytest.mark.parametrize(("silo", "number"), [("a", 1), ("a", 9), ("a", 11), ("new", 10)])
def test_only_every_tenth_round_has_helpers_and_never_a_strangers(memory, silo, number):
    model = model_of(1)
    source, auxiliary = memory.model_for(silo, number, model, DOWN, {"a": model_of(2), "b": model_of(3)})
    assert source is model and auxiliary["helpers"] == 0
    assert without_beside(SLOT.task_layout(DOWN)) == DOWN
