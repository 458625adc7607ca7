"""L-DAWA's weights per tensor, against the known answer SS3, and where a cosine means nothing."""

import numpy as np
import pytest

from anchorage.engine.aggregation.mean import NonFiniteUpdate
from anchorage.pieces.aggregation.layer_cosine import LayerCosine, cosines
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes


def model_of(arrays, dtype="F64"):
    layout = Layout.of([(name, dtype, np.shape(values)) for name, values in arrays.items()])
    kind = np.float64 if dtype == "F64" else np.float32
    return ModelBytes.from_arrays(layout, {name: np.array(values, kind) for name, values in arrays.items()})


def aggregated(origin, updates, weights=None, **options):
    sources = [model_of(update) for update in updates]
    weights = [1.0] * len(sources) if weights is None else weights
    arrays = LayerCosine(**options).aggregate(sources, weights, sources[0].layout, model_of(origin)).arrays()
    return {name: array.tolist() for name, array in arrays.items()}


@pytest.mark.known_answers
def test_tensors_count_by_their_cosine_to_the_global_model(known):
    name = "SS3_ldawa"
    case = known.inputs(name)
    origin, updates = case["global"], case["clients"]
    coded = aggregated(origin, updates, normalised="Disabled")
    plain = {key: np.mean([update[key] for update in updates], axis=0) for key in origin}
    known.check(
        name,
        {
            "cosines": [
                {key: float(cosines(np.array([update[key]]), np.array(origin[key]))[0]) for key in origin}
                for update in updates
            ],
            "aggregate_as_coded": coded,
            "aggregate_normalised": aggregated(origin, updates),
            "norm_shrink_as_coded": {key: np.linalg.norm(coded[key]) / np.linalg.norm(plain[key]) for key in origin},
        },
    )


def test_a_tensor_that_no_update_points_along_with_is_averaged():
    """A bias begins at 0, of which every cosine is 0; a layer may have turned round at every silo."""
    origin = {"bias": [0.0, 0.0], "weight": [1.0, 0.0]}
    updates = [{"bias": [1.0, 2.0], "weight": [-1.0, 1.0]}, {"bias": [3.0, 4.0], "weight": [-3.0, 0.0]}]
    assert aggregated(origin, updates) == {"bias": [2.0, 3.0], "weight": [-2.0, 0.5]}


def test_running_statistics_are_averaged_and_a_silo_without_weight_is_left_out():
    origin = {"norm.running_mean": [1.0, 0.0], "weight": [1.0]}
    updates = [{"norm.running_mean": [1.0, 0.0], "weight": [2.0]}, {"norm.running_mean": [0.0, 3.0], "weight": [4.0]}]
    assert aggregated(origin, updates)["norm.running_mean"] == [0.5, 1.5]
    assert aggregated(origin, updates, [0.0, 1.0]) == updates[1]


def test_an_update_that_is_not_finite_is_named():
    with pytest.raises(NonFiniteUpdate, match=r"update 1: tensor weight"):
        aggregated({"weight": [1.0]}, [{"weight": [1.0]}, {"weight": [float("nan")]}])
