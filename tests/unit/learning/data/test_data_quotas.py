"""Sizes and numbers of classes as Metis has them, against the known answers."""

import re
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorage.api.data import Partition
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import PARTITION_IMPOSSIBLE
from anchorage.learning.data.quotas import class_quota, try_quota
from anchorage.learning.data.sizes import SIZES, power_law_sizes, skewed_sizes


@pytest.mark.known_answers
def test_sizes_by_rank_are_the_known_ones(known):
    inputs = known.inputs("X1_power_law_sizes")
    known.check("X1_power_law_sizes", {"sizes": power_law_sizes(inputs["total"], inputs["N"], inputs["exponent"])})
    inputs = known.inputs("X2_skewed_sizes")
    formula = known.expected("X2_skewed_sizes")["formula"]
    known.check("X2_skewed_sizes", {"sizes": skewed_sizes(inputs["total"], inputs["N"]), "formula": formula})


def published_allocation(key, supplies):
    """Return the sizes' name, classes per part as a federation file says them, and the supply, from a case's name."""
    classes, each = supplies[key.startswith("cifar100")]
    sizes = next(name for name in SIZES if name.lower() in key)
    numbers = re.findall(r"\d+(?:x\d+)?", key.removeprefix("cifar100"))
    groups = [number if "x" in number else f"{number}x1" for number in numbers]
    return sizes, ",".join(groups) if sizes == "PowerLaw" else numbers[0], np.full(classes, each)


def tries_until(quota, sizes, classes, supply, seed):
    """Count the tries from a seed until one gives a quota."""
    rng = np.random.default_rng(seed)
    return next(number for number in count(1) if np.array_equal(try_quota(sizes, classes, supply, rng), quota))


@pytest.mark.known_answers
def test_quotas_are_the_known_ones(known):
    """Exact: noise and repair are those of the known answers, which the published file does not tell."""
    inputs, computed = known.inputs("X3_noniid_x_quota"), {}
    supplies = [(int(classes), int(each)) for classes, each in re.findall(r"(\d+) x (\d+)", inputs["supply"])]
    parts = len(inputs["power_law_sizes"])
    for key, expected in known.expected("X3_noniid_x_quota").items():
        name, text, supply = published_allocation(key, supplies)
        sizes = np.array(SIZES[name](supply.sum(), parts))
        if name != "Uniform":
            assert sizes.tolist() == inputs["power_law_sizes" if name == "PowerLaw" else "skewed_sizes"]
        classes = np.array(Partition(recipe="ClassQuota", parts=parts, classes_per_part=text).class_counts)
        rng = np.random.default_rng(inputs["seed"])
        if not expected["feasible"]:
            with pytest.raises(AnchorageError) as raised:
                class_quota(sizes, classes, supply, rng)
            assert raised.value.failure is PARTITION_IMPOSSIBLE
            needed, held = re.findall(r"\d+", expected["why"])
            assert f"part 0 shall hold {needed} images" in str(raised.value) and f"hold {held};" in str(raised.value)
            computed[key] = {"feasible": False, "why": expected["why"]}
            continue
        quota = class_quota(sizes, classes, supply, rng)
        assert ((quota > 0).sum(axis=1) == classes).all()
        results = {
            "feasible": True,
            "tries": tries_until(quota, sizes, classes, supply, inputs["seed"]),
            "quota_first_learner": quota[0],
            "quota_last_learner": quota[-1],
            "row_sums_ok": bool((quota.sum(axis=1) == sizes).all()),
            "column_sums_ok": bool((quota.sum(axis=0) == supply).all()),
        }
        assert results["row_sums_ok"] and results["column_sums_ok"]
        computed[key] = {field: results[field] for field in expected}
    known.check("X3_noniid_x_quota", computed)


@settings(max_examples=60, deadline=None)
@given(
    supply=st.lists(st.integers(5, 60), min_size=2, max_size=8),
    parts=st.integers(1, 6),
    sizes=st.sampled_from(list(SIZES)),
    classes=st.lists(st.integers(1, 8), min_size=6, max_size=6),
    seed=st.integers(0, 99),
)
def test_a_quota_uses_every_image_or_names_a_part(supply, parts, sizes, classes, seed):
    supply, classes = np.array(supply), np.array(classes[:parts])
    asked = np.array(SIZES[sizes](int(supply.sum()), parts))
    try:
        quota = class_quota(asked, classes, supply, np.random.default_rng(seed))
    except AnchorageError as error:
        assert error.failure is PARTITION_IMPOSSIBLE
        assert re.search(r"part \d|all parts together", str(error))
        return
    assert quota.sum(axis=1).tolist() == asked.tolist()
    assert quota.sum(axis=0).tolist() == supply.tolist()
    assert (quota > 0).sum(axis=1).tolist() == classes.tolist()
