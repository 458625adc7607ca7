"""FedAsync's mixture (KAT-G1), and what a community keeps of the updates that it is made of."""

from typing import Any

import numpy as np
import pytest

from anchorage.engine.aggregation import ContributionSum
from anchorage.engine.store import HeldUpdate
from anchorage.pieces.server_step.mix import Mix, MixHinge, MixPolynomial
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

SCALAR = Layout.of([("theta", "F64", ())])
UP = Layout.of([("theta", "F32", (2,)), ("batches", "I64", ())])
DOWN = Layout.of([("head", "F32", (1,)), ("theta", "F32", (2,)), ("batches", "I64", ())])


def scalar(value: float) -> ModelBytes:
    return ModelBytes.from_arrays(SCALAR, {"theta": np.array(value)})


@pytest.mark.known_answers
def test_g1_fedasync(known) -> None:
    inputs = known.inputs("G1_fedasync_polynomial")
    alpha, exponent, x = known.decimal(inputs["alpha"]), known.decimal(inputs["a"]), scalar(inputs["x0"])
    polynomial = MixPolynomial(alpha=alpha, exponent=exponent).mixing()
    rows: list[dict[str, Any]] = []
    for staleness, update in inputs["events"]:
        share = polynomial.share(staleness)
        x = polynomial.mix(x, scalar(update), SCALAR, share)
        place = float(x.arrays()["theta"])
        rows.append({"staleness": staleness, "s": polynomial.discount(staleness), "alpha_t": share, "x": place})
    slope, grace = known.decimal(inputs["hinge_a"]), inputs["hinge_b"]
    hinge = MixHinge(slope=slope, grace=grace).mixing()
    computed = {
        "rows": rows,
        known.key("G1_fedasync_polynomial", "hinge_.*"): [hinge.discount(s) for s in inputs["hinge_staleness"]],
        "one_based_s_for_fresh": polynomial.discount(1),
    }
    known.check("G1_fedasync_polynomial", computed)
    assert Mix().mixing().share(10**6) == 0.6


def test_a_mixture_is_in_the_update_s_layout_and_counts_like_the_update() -> None:
    theta, head = np.array([1.0, 2.0], np.float32), np.array([9.0], np.float32)
    model = ModelBytes.from_arrays(DOWN, {"head": head, "theta": theta, "batches": np.array(3)})
    update = ModelBytes.from_arrays(UP, {"theta": 3 * theta, "batches": np.array(5)})
    mixing = Mix().mixing()
    mixed = mixing.mix(model, update, UP, 0.5).arrays()
    assert mixed["theta"].tolist() == [2.0, 4.0] and mixed["batches"] == 5
    assert mixing.mix(model, update, UP, 1.0).manifest == update.manifest


def test_a_community_outlives_the_memory_of_its_updates() -> None:
    """Its integers are those of an update whose memory another one takes later."""
    model = ModelBytes.from_arrays(UP, {"theta": np.ones(2, np.float32), "batches": np.array(5)})
    update, buffer = HeldUpdate(model.manifest), model.buffer()
    update.adopt(buffer)
    community = ContributionSum(UP)
    community.commit("a", 1.0, update)
    buffer[:] = 0
    arrays = community.model()
    assert arrays is not None and arrays.manifest == model.manifest
