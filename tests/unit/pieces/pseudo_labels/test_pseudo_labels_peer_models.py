"""Which silos' models are alike (known answer FP1), and what of them travels to a silo."""

from collections.abc import Mapping

import numpy as np
import pytest
from classification_of import classes as of_classes

from anchorage.pieces.pseudo_labels.committee import Committee, PeerModels, nearest, normalised, similarities
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes, read_arrays

SLOT = Committee()
DOWN = Layout.of(
    [
        ("frozen", "F32", (5,)),
        ("w", "F32", (300_000,)),
        ("own", "F32", (3,)),
        ("control.w", "F32", (2,)),
        ("n", "I64", ()),
    ],
    {"frozen"},
)
UP = DOWN.select(["w", "control.w", "n"])


def model_of(layout: Layout, value: float) -> ModelBytes:
    """A model whose tensors are ramps from 0 to `value`: of its own mean and deviation."""
    filled = {t.name: np.linspace(0, value, int(np.prod(t.shape))).reshape(t.shape) for t in layout.tensors}
    dtypes = {t.name: "<i8" if t.dtype == "I64" else "<f4" for t in layout.tensors}
    return ModelBytes.from_arrays(layout, {name: array.astype(dtypes[name]) for name, array in filled.items()})


UPDATES: Mapping[str, ModelBytes] = {
    silo: model_of(UP, value) for silo, value in zip("abcd", (1.0, 1.5, 9.0, 8.0), strict=True)
}


def memory_of(peers: int = 2) -> PeerModels:
    return Committee(peers=peers).memory(of_classes(2), 0)


def arrays_of(source: ChunkSource) -> Mapping[str, np.ndarray]:
    content = b"".join(map(source.chunk, range(source.manifest.count)))
    return read_arrays(SLOT.task_layout(DOWN), np.frombuffer(content, np.uint8))


@pytest.mark.known_answers
def test_the_most_similar_are_peers(known):
    name = "FP1_fedperl_peers"
    case = known.inputs(name)
    features = normalised(np.array(case["features"]))
    cosine = similarities(features)
    peers = [nearest(cosine, index, case["T"]) for index in range(len(features))]
    known.check(name, {"normalised": features, "cosine": cosine, "peers": peers})


def test_models_are_compared_by_their_tensors_and_by_what_they_score():
    memory = memory_of(1)
    peers_by_silo = {silo: memory.peers_of(silo, UP, UPDATES) for silo in UPDATES}
    assert peers_by_silo == {"a": ["b"], "b": ["d"], "c": ["d"], "d": ["c"]}
    for silo, accuracy in zip("abcd", (0.9, 0.2, 0.9, 0.2), strict=True):
        memory.scored(silo, {"accuracy": accuracy, "loss": 1 - accuracy})
    assert memory.peers_of("c", UP, UPDATES) == ["d"] and memory.peers_of("b", UP, UPDATES) == ["d"]
    restarted = memory_of(1)
    restarted.restore(memory.state())
    assert restarted.peers_of("a", UP, UPDATES) == memory.peers_of("a", UP, UPDATES)
    memory.scored("d", {})  # its outputs are not finite: nobody's scores count then
    assert memory.peers_of("b", UP, UPDATES) == peers_by_silo["b"] and "d" not in memory.state()


def test_who_has_no_sound_model_of_this_method_is_no_peer_and_has_none():
    memory, bad = memory_of(3), UPDATES["b"].arrays()
    bad["w"][7] = np.inf
    updates = {**UPDATES, "b": ModelBytes.from_arrays(UP, bad), "c": model_of(UP.select(["w", "n"]), 9.0)}
    assert memory.peers_of("a", UP, updates) == ["d"]
    assert [memory.peers_of(silo, UP, updates) for silo in ("b", "c", "new")] == [[], [], []]
    model = model_of(DOWN, 3.0)
    source, auxiliary = memory.model_for("new", 2, model, UP, updates)
    assert source is model and auxiliary["peers"] == 0


def test_the_mean_of_the_peers_travels_behind_the_model():
    model = model_of(DOWN, 3.0)
    source, auxiliary = memory_of().model_for("c", 2, model, UP, UPDATES)
    assert auxiliary["peers"] == 2 and source.manifest.layout == SLOT.task_layout(DOWN).digest
    assert source.manifest.fixed == model.manifest.fixed  # a silo that has them does not fetch them again
    arrays, peers = arrays_of(source), (UPDATES["d"].arrays()["w"], UPDATES["b"].arrays()["w"])
    assert arrays.keys() == {*DOWN.by_name, "helper0.w", "helper0.own"}
    np.testing.assert_array_equal(arrays["helper0.w"], np.mean(peers, axis=0, dtype=np.float64).astype(np.float32))
    np.testing.assert_array_equal(arrays["helper0.own"], model.arrays()["own"])
    np.testing.assert_array_equal(arrays["w"], model.arrays()["w"])
