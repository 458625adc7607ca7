"""Readable, deterministic YAML for ConfigMaps."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from anchorage.api.source import write_documents


def as_yaml(value: Mapping[str, Any]) -> str:
    """Convert values to YAML with sorted keys."""
    return _to_yaml(json.dumps(value, sort_keys=True))


@lru_cache(maxsize=2048)  # every look at a federation writes the same texts again, and PyYAML takes milliseconds
def _to_yaml(text: str) -> str:
    return write_documents([json.loads(text)], explicit_start=False)
