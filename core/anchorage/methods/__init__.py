"""Methods as compositions: presets, overrides, and the rules for combinations that mean nothing. Free of torch."""

from anchorage.methods.cautions import cautions
from anchorage.methods.checks import check
from anchorage.methods.preset import Preset, slots
from anchorage.methods.registry import PRESETS
from anchorage.methods.resolution import resolve
from anchorage.methods.validation import validate_documents, validate_study

__all__ = ["PRESETS", "Preset", "cautions", "check", "resolve", "slots", "validate_documents", "validate_study"]
