"""Embeddings in two dimensions in the records of a few rounds."""

import json

import numpy as np
import pytest
from scripted_silos import PlainLearner, ScriptedSilo, set_scene

from anchorage.engine.embedding_plane import EmbeddingPlane, is_pictured, plane_of
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.store.records import record_from_json, record_to_json
from anchorage.transport.messages import Report


def rows(count=40, width=6, seed=0):
    """Return a report's embeddings of two classes that lie apart."""
    rng = np.random.default_rng(seed)
    true = np.arange(count) % 2
    return np.column_stack([true, np.zeros(count), rng.normal(size=(count, width)) + 8 * true[:, None]]).astype(
        np.float32
    )


class Embedding(PlainLearner):
    def __init__(self, layer="encoder"):
        super().__init__()
        self.layer = layer

    def evaluate(self, model, round_number):
        return Report({"accuracy": 0.5}, {}, rows(seed=round_number), self.layer)


def drawn(rounds, every=1, *, mode="Synchronous", learner=None, projection="PCA"):
    scene = set_scene(
        ScriptedSilo("a"),
        mode=mode,
        rounds=rounds,
        learner=learner or Embedding(),
        evaluate_every=every,
        embeddings=projection,
    )
    scene.engine.run()
    records = scene.recorder.records
    assert [record.round for record in records] == list(range(rounds + 1))
    return {record.round: record.embeddings for record in records if record.embeddings is not None}


@pytest.mark.parametrize("mode", ["Synchronous", "Asynchronous"])
def test_the_first_evaluated_round_of_every_quarter_and_the_last_are_drawn(mode):
    assert list(drawn(8, mode=mode)) == [0, 2, 4, 6, 8]
    assert list(drawn(9, every=4, mode=mode)) == [0, 4, 8, 9]
    assert list(drawn(2, mode=mode)) == [0, 1, 2]


def test_a_long_run_that_is_seldom_scored_is_drawn_as_often():
    scored = [number for number in range(1501) if number % 10 == 0 or number == 1500]
    assert [number for number in scored if is_pictured(number, 1500, 10)] == [0, 380, 750, 1130, 1500]


def test_nothing_is_drawn_unless_it_is_asked_for():
    assert drawn(2, projection=None) == {}
    assert drawn(2, learner=Embedding(layer="")) == {}
    assert drawn(2, learner=PlainLearner()) == {}


def test_principal_components():
    plane = plane_of(rows(), "encoder", "PCA", 1)
    plane_rows, points = plane.as_array(), rows()[:, 2:].astype(np.float64)
    centred = points - points.mean(0)
    _, spread, axes = np.linalg.svd(centred, full_matrices=False)
    assert np.array_equal(plane_rows[:, :2], rows()[:, :2])
    assert np.abs(plane_rows[:, 2:]) == pytest.approx(np.abs(centred @ axes[:2].T), rel=1e-3, abs=1e-3)
    assert (plane.layer, plane.projection, spread[0] > spread[1]) == ("encoder", "PCA", True)


def test_t_sne_keeps_classes_apart_and_is_the_same_for_a_seed():
    first, second = (plane_of(rows(), "encoder", "TSNE", 3) for _ in range(2))
    assert first == second and first.projection == "TSNE"
    points = first.as_array()
    places, true = points[:, 2:], points[:, 0]
    distances = np.linalg.norm(places[:, None] - places[None], axis=2) + 1e9 * np.eye(len(places))
    assert (true[distances.argmin(1)] == true).all()
    assert not np.allclose(places, plane_of(rows(), "encoder", "PCA", 3).as_array()[:, 2:])


def test_embeddings_that_have_no_plane():
    assert plane_of(rows(9), "encoder", "PCA", 1) is None
    broken = rows()
    broken[3, 4] = np.nan
    assert plane_of(broken, "encoder", "PCA", 1) is None


@pytest.mark.parametrize("projection", ["PCA", "TSNE"])
def test_equal_embeddings_and_such_of_one_dimension_have_a_plane(projection):
    equal = rows()
    equal[:, 2:] = 1.0
    assert not plane_of(equal, "encoder", projection, 1).as_array()[:, 2:].any()
    assert np.isfinite(plane_of(rows(width=1), "encoder", projection, 1).as_array()).all()


def test_a_record_keeps_its_plane_and_has_no_word_of_it_otherwise():
    plane = EmbeddingPlane("encoder", "TSNE", ((1, 0, 0.5, -1.25), (0, 0, 2.0, 3.0)))
    record = RoundRecord(1, "d", 1.0, embeddings=plane)
    assert record_from_json(json.loads(json.dumps(record_to_json(record)))) == record
    assert "embeddings" not in record_to_json(RoundRecord(1, "d", 1.0))
