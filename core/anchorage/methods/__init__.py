"""Methods as compositions: presets, resolution of overrides, and the rules for combinations that mean nothing. Free of torch."""

from anchorage.methods.preset import Preset, SideChannel, slots
from anchorage.methods.registry import PRESETS
from anchorage.methods.resolution import resolve

__all__ = ["PRESETS", "Preset", "SideChannel", "resolve", "slots"]
