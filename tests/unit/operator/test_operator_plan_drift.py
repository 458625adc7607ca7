"""What counts as a difference between an object as it was built and as it is."""

from decimal import Decimal
from typing import Any

import pytest

from anchorage_operator.drift import needs_apply, parse_quantity, with_applied_hash
from anchorage_operator.names import APPLIED_HASH

BUILT: dict[str, Any] = {
    "kind": "StatefulSet",
    "metadata": {"name": "x", "annotations": {"own": "1"}},
    "spec": {
        "replicas": 1,
        "on": False,
        "empty": {},
        "resources": {"requests": {"cpu": "1000m", "memory": "1Gi"}},
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        "mounts": [{"name": "claim", "mountPath": "/a"}, {"name": "claim", "mountPath": "/b", "readOnly": True}],
        "ports": [{"port": 1, "protocol": "TCP"}],
    },
}


def found(**spec: Any) -> dict[str, Any]:
    made = with_applied_hash(BUILT)
    return {**made, "status": {"ready": 1}, "spec": {**made["spec"], **spec}}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"filled": "in"},
        {"empty": None},
        {"resources": {"requests": {"cpu": 1, "memory": "1024Mi"}, "limits": {"cpu": "1"}}},
        {"env": [{"name": "C"}, {"name": "B", "value": "2"}, {"name": "A", "value": "1", "filled": "in"}]},
        {"mounts": [{"name": "claim", "mountPath": "/b", "readOnly": True}, {"name": "claim", "mountPath": "/a"}]},
        {"ports": [{"port": 1, "protocol": "TCP", "nodePort": 3}]},
    ],
)
def test_what_is_no_difference(spec: dict[str, Any]) -> None:
    assert not needs_apply(with_applied_hash(BUILT), found(**spec))


@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": 0},
        {"replicas": None},
        {"on": None},
        {"on": True},
        {"resources": {"requests": {"cpu": "2", "memory": "1Gi"}}},
        {"resources": {"requests": {"memory": "1Gi"}}},
        {"env": [{"name": "A", "value": "1"}]},
        {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}]},
        {"mounts": [{"name": "claim", "mountPath": "/b"}, {"name": "claim", "mountPath": "/a"}]},
        {"ports": []},
        {"ports": [{"port": 1, "protocol": "TCP"}, {"port": 2, "protocol": "TCP"}]},
    ],
)
def test_what_is_a_difference(spec: dict[str, Any]) -> None:
    assert needs_apply(with_applied_hash(BUILT), found(**spec))


def test_a_field_that_is_no_longer_built_is_taken_away() -> None:
    before = with_applied_hash({**BUILT, "spec": {**BUILT["spec"], "old": 1}})
    assert needs_apply(with_applied_hash(BUILT), before), "the applied hash needs_apply"
    assert with_applied_hash(BUILT)["metadata"]["annotations"].keys() == {"own", APPLIED_HASH}
    assert "annotations" in BUILT["metadata"]


def test_what_is_not_there_differs() -> None:
    assert needs_apply(with_applied_hash(BUILT), None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1000m", Decimal(1)),
        (2, Decimal(2)),
        ("0.5", Decimal("0.5")),
        ("1Gi", Decimal(2**30)),
        ("1G", Decimal(10**9)),
        ("20480Mi", Decimal(20 * 2**30)),
        ("many", None),
        ("1Zi", None),
        ("", None),
    ],
)
def test_quantities(text: str | int, value: Decimal | None) -> None:
    assert parse_quantity(text) == value
