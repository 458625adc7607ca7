"""Tensors that only some silos train are averaged over those."""

import numpy as np
import pytest

from anchorage.engine.aggregation import weighted_mean
from anchorage.engine.aggregation.apart import average_apart
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

LAYOUT = Layout.of([("encoder.weight", "F32", (300_000,)), ("classifier.weight", "F32", (7,)), ("steps", "I64", ())])


def update(encoder: float, classifier: float) -> ModelBytes:
    arrays = {
        "encoder.weight": np.full(300_000, encoder, np.float32),
        "classifier.weight": np.full(7, classifier, np.float32),
        "steps": np.array(3),
    }
    return ModelBytes.from_arrays(LAYOUT, arrays)


@pytest.mark.parametrize(("labelled", "expected"), [([1, 0, 3], 7.0), ([0, 0, 5], 9.0), ([0, 0, 0], 3.0)])
def test_the_classifier_of_silos_without_labels_does_not_count(labelled: list[int], expected: float) -> None:
    updates, weights = [update(1, 1), update(2, 2), update(6, 9)], [4.0, 4.0, 2.0]
    mean = weighted_mean(updates, weights, LAYOUT)
    arrays = average_apart(mean, updates, labelled, "classifier.").arrays()
    np.testing.assert_allclose(arrays["classifier.weight"], expected, rtol=1e-6)
    np.testing.assert_allclose(arrays["encoder.weight"], 2.4, rtol=1e-6)
    assert arrays["steps"] == 3
