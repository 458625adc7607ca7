"""The plain words on each method, bundled as ``advice.md``: what it assumes, when to use it, what it costs."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from anchorage.methods.preset import Preset


def advice_of(preset: Preset) -> str:
    """Return the words on a preset: its own, as another package's has them, or those of the bundled file; empty where there are none."""
    return preset.advice or _read_sections().get(preset.name, "")


@cache
def _read_sections() -> Mapping[str, str]:
    """Return the sections of ``advice.md`` by the methods in their headings; the lines of a paragraph are joined."""
    _, *sections = files("anchorage.methods").joinpath("advice.md").read_text("utf-8").split("\n## ")
    advice: dict[str, str] = {}
    for section in sections:
        names, *paragraphs = section.strip().split("\n\n")
        words = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        advice |= dict.fromkeys(names.split(", "), words)
    return advice
