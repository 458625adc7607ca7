"""Zeno against its formula, on files, and what it needs."""

import math
from pathlib import Path

import numpy as np
import pytest
from mixed_models import MIXED, random_model, with_value
from test_aggregation_robust import FLAT, LABELLED, UNIFORM, flat, mistakes

from anchorage.api.files import load_federation
from anchorage.api.mistakes import format_path
from anchorage.engine.aggregation import NonFiniteUpdate
from anchorage.methods import check
from anchorage.pieces.aggregation.median import Median
from anchorage.pieces.aggregation.zeno import Zeno
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import SpoolFile

ZENO = "spec.method.aggregation={zeno: {}}"


def far(model: ModelBytes) -> float:
    """A loss that is least at weights of 2."""
    return abs(float(model.arrays()["w"][0]) - 2.0)


def chosen(piece: Zeno, *values: float, model: float = 0.0) -> list[int]:
    return [*piece.select([flat(value) for value in values], FLAT, flat(model), far)]


def test_the_best_on_the_servers_images_are_chosen():
    """Losses 0, 1, 3 and 8."""
    assert chosen(Zeno(norm_penalty="0"), 10.0, 2.0, 5.0, 3.0) == [1, 2, 3]
    assert chosen(Zeno(byzantine=2, norm_penalty="0"), 10.0, 2.0, 5.0, 3.0) == [1, 3]
    assert chosen(Zeno(byzantine=3, norm_penalty="0"), 10.0, 2.0, 5.0, 3.0) == [1]


def test_long_updates_count_for_less():
    """From a model of 0, updates to 1 and 3 have losses of 1 and squared norms of 4 and 36, one to 2 has a loss of 0 and 16."""
    assert chosen(Zeno(byzantine=2, norm_penalty="0.01"), 3.0, 1.0, 2.0) == [2]
    assert chosen(Zeno(byzantine=2, norm_penalty="0.1"), 3.0, 1.0, 2.0) == [1]
    assert chosen(Zeno(byzantine=2, norm_penalty="1"), 3.0, 1.0, 2.0, model=3.0) == [0]


def test_statistics_are_no_part_of_the_norm():
    updates = [flat(2.0, variance=1e30), flat(3.0)]
    assert [*Zeno(norm_penalty="1").select(updates, FLAT, flat(2.0), far)] == [0]


def test_of_equal_ones_the_first_are_kept_and_one_always():
    assert chosen(Zeno(byzantine=2), 1.0, 1.0, 1.0, 1.0) == [0, 1]
    assert chosen(Zeno(byzantine=2), 7.0) == [0]


@pytest.mark.parametrize("worst", [math.inf, math.nan])
def test_a_model_without_a_loss_is_the_worst(worst):
    def loss(model: ModelBytes) -> float:
        return worst if model.arrays()["w"][0] == 2 else 5.0

    assert [*Zeno().select([flat(2.0), flat(3.0)], FLAT, flat(0.0), loss)] == [1]


def test_files_are_judged_one_model_at_a_time_and_within_the_whole_model(tmp_path: Path):
    """An update that is a part of the model is scored with the rest of the model."""
    models = [random_model(seed) for seed in range(3)]
    spools = [SpoolFile(tmp_path / f"{index}.bin", model.manifest) for index, model in enumerate(models)]
    for spool, model in zip(spools, models, strict=True):
        for chunk, data in enumerate(model.chunks):
            spool.write(chunk, data)
    calls: list[str] = []

    def loss(model: ModelBytes) -> float:
        calls.append(model.digest)
        return float(calls[-1] == models[1].digest)

    assert [*Zeno(norm_penalty="0").select(spools, MIXED, random_model(9), loss)] == [0, 2]
    assert calls == [model.digest for model in models]
    for spool in spools:
        spool.close()
    part = Layout.of([("w", "F64", (4,))])
    update = ModelBytes.from_arrays(part, {"w": np.full(4, 5.0)})
    judged: list[ModelBytes] = []
    Zeno().select([update], part, flat(1.0, variance=3.0), lambda model: judged.append(model) or 0.0)
    assert judged[0].arrays()["w"][0] == 5.0 and judged[0].arrays()["norm.running_var"][0] == 3.0


def test_an_update_that_is_not_finite_is_named():
    models = [random_model(seed) for seed in range(3)]
    models[2] = with_value(models[2], "more", np.nan)
    with pytest.raises(NonFiniteUpdate) as raised:
        Zeno().select(models, MIXED, random_model(9), lambda model: 0.0)
    assert (raised.value.index, raised.value.tensor) == (2, "more")


def test_others_choose_all():
    updates = [flat(value) for value in (1.0, 2.0)]
    assert [*Median().select(updates, FLAT, flat(0.0), far)] == [0, 1]


def test_what_it_needs():
    three = "spec.method.aggregation={zeno: {byzantine: 3}}"
    assert mistakes(three, UNIFORM, silos=4) == []
    assert mistakes(three, UNIFORM, silos=3) == [("ANC-1119", "method.aggregation")]
    assert mistakes(ZENO) == [("ANC-1116", "method.weighting")]
    assert mistakes(ZENO, UNIFORM, "spec.protocol.mode=Asynchronous") == [("ANC-1120", "protocol.mode")]
    masked = mistakes(ZENO, UNIFORM, "spec.protocol.secureAggregation={}")
    assert masked == [("ANC-1116", "protocol.secureAggregation")]


@pytest.mark.parametrize("evaluation", ["spec.evaluation.validation=null", "spec.evaluation=null"])
def test_a_server_without_validation_images_is_refused(evaluation):
    study = load_federation(LABELLED, [ZENO, UNIFORM, evaluation], silos=9)
    (mistake,) = check(study.federation, study.silos)
    assert format_path(mistake.path) == "spec.evaluation.validation"
    assert "found none, but the aggregation zeno judges updates by them" in mistake.message
