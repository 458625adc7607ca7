"""A bounded part of `make fuzz`: the same input every time."""

from pathlib import Path

import pytest
from fuzz_targets import TARGETS
from hypothesis import HealthCheck, given, settings


@pytest.mark.parametrize("name", TARGETS)
def test_only_failures_of_the_catalogue_come_out(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]

    @settings(max_examples=target.examples, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(target.inputs)
    def feed(data: bytes) -> None:
        target.try_one(data, tmp_path)

    feed()
