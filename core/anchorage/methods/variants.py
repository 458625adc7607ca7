"""Names that papers give to one option of another method, bundled as ``variants.yaml``: no presets, but how they are written."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@dataclass(frozen=True, slots=True)
class Variant:
    """One option of a preset that papers call by another name."""

    method: Mapping[str, Any]
    """What ``spec.method`` is, its ``name`` the preset's."""
    summary: str
    """What differs from the preset, and when to use it."""

    @property
    def written(self) -> str:
        """The method as a line of YAML."""
        return yaml.safe_dump(self.method, default_flow_style=True, sort_keys=False, width=1_000).strip()


@cache
def variants() -> Mapping[str, Variant]:
    """Return every variant by its name."""
    text = files("anchorage.methods").joinpath("variants.yaml").read_text("utf-8")
    return {name: Variant(**fields) for name, fields in yaml.safe_load(text).items()}


def variants_of(preset: str) -> Mapping[str, Variant]:
    """Return the variants of one preset by their names."""
    return {name: variant for name, variant in variants().items() if variant.method["name"] == preset}
