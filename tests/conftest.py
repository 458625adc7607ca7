"""Fixtures for every tier."""

import json
import math
import os
import re
import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# before torch and numpy are loaded, and for processes that tests start: threads of one worker wait busily for processors of another
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
settings.register_profile("anchorage", deadline=None)  # a busy machine is no failure
settings.load_profile("anchorage")


UNTIL = float(os.environ.get("ANCHORAGE_TESTS_UNTIL") or "inf")
"""Seconds since 1970 after which no test begins any more: `.ci/run` has a limit, and machines differ in speed by a factor of three."""
INTEGRATION = tuple(Path(__file__).with_name(tier) for tier in ("integration", "charts"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whole folders; what is slow elsewhere carries the mark itself."""
    for item in items:
        if any(item.path.is_relative_to(tier) for tier in INTEGRATION):
            item.add_marker(pytest.mark.integration)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give each test numbers of its own from torch's default generator, the same ones in every run and order; begin none too late."""
    if time.time() > UNTIL:
        pytest.skip("no time was left to begin this test (ANCHORAGE_TESTS_UNTIL)")
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(zlib.crc32(item.nodeid.encode()))


class KnownAnswers:
    """The methods' known answers, read from files; a case of a later file takes the place of an earlier one's."""

    def __init__(self, *paths: Path) -> None:
        self.cases: dict[str, Any] = {}
        for path in paths:
            cases = json.loads(path.read_text())
            meta = cases.pop("_meta", {})
            constants, explicit = (meta.get(kind, {}) for kind in ("implicit_constants", "explicit_inputs"))
            for name, case in cases.items():
                inputs = {**constants.get(name, {}), **explicit.get(name, {}), **case["inputs"]}
                self.cases[name] = {**case, "inputs": inputs}

    def inputs(self, name: str) -> Any:
        """Return a case's inputs, with what its file's `_meta` adds to them: implicit constants and explicit inputs."""
        return self.cases[name]["inputs"]

    def expected(self, name: str) -> Any:
        """Return a case's expected outputs."""
        return self.cases[name]["expected"]

    def key(self, name: str, pattern: str) -> str:
        """Return the one name among a case's expected outputs that a pattern fits, for names that spell out a constant."""
        (key,) = (key for key in self.expected(name) if re.fullmatch(pattern, key))
        return key

    @staticmethod
    def decimal(value: float) -> str:
        """Write a number as a document has it."""
        return f"{Decimal(str(round(value, 12))):f}"

    def check(self, name: str, computed: Any, *, absolute: float = 1e-10, relative: float = 0.0) -> None:
        """Compare every leaf of a case's expected outputs with what was computed; a missing or extra key fails."""
        differences = list(_differences(name, self.expected(name), computed, absolute, relative))
        assert not differences, "\n".join(differences)


def _differences(path: str, expected: Any, computed: Any, absolute: float, relative: float) -> Iterator[str]:
    if isinstance(expected, Mapping):
        if not isinstance(computed, Mapping) or set(expected) != set(map(str, computed)):
            yield f"{path}: expected the keys {sorted(expected)}, computed {computed!r}"
            return
        by_text = {str(key): value for key, value in computed.items()}
        for key, value in expected.items():
            yield from _differences(f"{path}.{key}", value, by_text[key], absolute, relative)
    elif isinstance(expected, list):
        items = computed.tolist() if hasattr(computed, "tolist") else computed
        if not isinstance(items, (list, tuple)) or len(items) != len(expected):
            yield f"{path}: expected {expected!r}, computed {items!r}"
            return
        for index, value in enumerate(expected):
            yield from _differences(f"{path}[{index}]", value, items[index], absolute, relative)
    elif isinstance(expected, bool) or expected is None or isinstance(expected, str):
        item = computed.item() if hasattr(computed, "item") else computed
        if item != expected or type(item) is not type(expected):
            yield f"{path}: expected {expected!r}, computed {item!r}"
    elif not math.isclose(float(computed), float(expected), rel_tol=relative, abs_tol=absolute):
        yield f"{path}: expected {expected!r}, computed {computed!r}"


@pytest.fixture(scope="session")
def known() -> KnownAnswers:
    """Give the repository's known answers, or those of the files that ANCHORAGE_KNOWN_ANSWERS and ANCHORAGE_KNOWN_ANSWERS_NEWER name."""
    outside = filter(None, map(os.environ.get, ("ANCHORAGE_KNOWN_ANSWERS", "ANCHORAGE_KNOWN_ANSWERS_NEWER")))
    return KnownAnswers(Path(__file__).with_name("known_answers.json"), *map(Path, outside))


@pytest.fixture(scope="session")
def real_images() -> Path:
    """Give the folder of real images, or skip."""
    folder = Path(os.environ.get("ANCHORAGE_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no real images: set ANCHORAGE_DATA to the folder that holds isic18/ and cifar10/")
    return folder
