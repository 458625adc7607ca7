"""Readable, deterministic YAML for ConfigMaps."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import yaml


def as_yaml(value: Mapping[str, Any]) -> str:
    """Convert values to YAML with sorted keys."""
    return _written(json.dumps(value, sort_keys=True))


@lru_cache(maxsize=2048)  # every look at a federation writes the same texts again, and PyYAML takes milliseconds
def _written(text: str) -> str:
    return yaml.safe_dump(json.loads(text), sort_keys=True, allow_unicode=True, default_flow_style=False, width=120)
