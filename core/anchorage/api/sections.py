"""Checks of data sections: those of one pool of images divide it equally, else test images would be used for training; and their names
lead to the federation's classes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from anchorage.api.data import DataSection
from anchorage.api.errors.data import CLASSES_DIFFER, PARTITION_IMPOSSIBLE
from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE, POOLS_DIFFER
from anchorage.api.federation import Federation, Silo
from anchorage.api.mistakes import FieldPath, Mistake
from anchorage.api.model import ModelSpec
from anchorage.api.slot import unknown

_PART_ONLY = {"part", "silo"}
_WITHOUT_CLASSES = ("Iid", "File")
"""Recipes that do not ask of which class an image is."""


@dataclass(frozen=True)
class _Use:
    """A data section that uses a part of a pool."""

    section: DataSection
    path: FieldPath
    silo: int | None = None
    name: str = ""

    @property
    def pool(self) -> tuple[str | None, ...]:
        section = self.section
        return (section.format, section.claim_name, section.path, section.manifest)

    def draws(self) -> Iterator[tuple[FieldPath, Any]]:
        """Yield the settings that must be equal: test images are drawn first, then validation images, anchors, and parts.

        It is harmless if a silo's images include an anchor, so anchors need only agree among parts.
        """
        section = self.section
        yield ("testPercent",), section.test_percent
        yield ("groupBy",), section.group_by
        yield ("splitColumn",), section.split_column
        yield ("classMap",), section.class_map
        yield ("maskColumn",), section.mask_column
        yield ("channelFiles",), section.channel_files
        yield ("maskValues",), section.mask_values
        yield ("ignoredValue",), section.ignored_value
        yield ("validationPercent",), section.validation_percent
        if section.taken == "Part" and section.division is not None:
            yield ("anchors",), section.anchors
            yield ("anchorDraw",), section.anchor_draw
            yield ("partition",), section.division.model_dump(by_alias=True, exclude=_PART_ONLY)


def check_sections(federation: Federation, silos: Sequence[Silo]) -> Iterator[Mistake]:
    """Yield the mistakes in data sections; they have no file and line yet."""
    uses = list(_uses(federation, silos))
    yield from _shared_pools(uses)
    for use in uses:
        yield from _unknown_classes(use, federation.spec.task.label_names, federation.spec.task.outputs)
        if message := federation.spec.task.unannotated_mistake(use.section.unannotated):
            yield Mistake(CLASSES_DIFFER, (*use.path, "unannotated"), message, silo=use.silo)
        if federation.spec.task.gives_maps:
            yield from _of_one_class(use, federation.spec.task.name)
        if message := channel_files_mistake(use.section, federation.spec.model):
            yield Mistake(MEANINGLESS_OVERRIDE, (*use.path, "channelFiles"), message, silo=use.silo)


def channel_files_mistake(section: DataSection, model: ModelSpec) -> str | None:
    """Return what is wrong with a section's `channelFiles` for a model, and what to do; None: nothing."""
    count = len(section.channel_files)
    if not count:
        return None
    if model.volume is None:
        return f"found {count} channels, but channels in files of their own are of volumes; leave it out, or set spec.model.volume"
    if count != model.channels:
        return f"found {count} channels, but the model has {model.channels}; name as many as spec.model.channels"
    return None


def _of_one_class(use: _Use, task: str) -> Iterator[Mistake]:
    """Yield divisions by the class of an image, where every pixel has one."""
    partition = use.section.division
    if partition is None:
        return
    path = (*use.path, "partition")
    if partition.recipe not in _WITHOUT_CLASSES:
        message = f"found the recipe {partition.recipe}, which divides images by their class, but in a {task} every pixel has one; choose Iid or File"
        yield Mistake(PARTITION_IMPOSSIBLE, (*path, "recipe"), message, silo=use.silo)
    for field, value, none in (
        ("labelledPerClass", partition.labelled_per_class, 0),
        ("imbalanceFactor", partition.imbalance_factor, 1),
    ):
        if value != none:
            message = (
                f"found {value}, which is by the class of an image, but in a {task} every pixel has one; leave it out"
            )
            yield Mistake(PARTITION_IMPOSSIBLE, (*path, field), message, silo=use.silo)


def _unknown_classes(use: _Use, classes: Sequence[str], outputs: Sequence[str]) -> Iterator[Mistake]:
    """Yield the names that lead to no class."""
    for local, name in use.section.class_map.items():
        if name not in classes:
            message = f"{unknown(name, classes)}, for {local!r}"
            yield Mistake(CLASSES_DIFFER, (*use.path, "classMap", local), message, silo=use.silo)
    for value, name in use.section.mask_values.items():
        if name not in outputs:
            message = f"{unknown(name, outputs)}, for {value!r}"
            yield Mistake(CLASSES_DIFFER, (*use.path, "maskValues", value), message, silo=use.silo)
    for name in use.section.stated_counts:
        if name not in classes:
            yield Mistake(CLASSES_DIFFER, (*use.path, "classCounts", name), unknown(name, classes), silo=use.silo)


def _shared_pools(uses: Sequence[_Use]) -> Iterator[Mistake]:
    """Compare every section with the first one of the same pool; the mistakes have no file and line yet."""
    first: dict[tuple[Any, ...], tuple[Any, str]] = {}
    parts: dict[tuple[Any, ...], str] = {}
    for use in uses:
        if use.section.taken == "All":
            continue
        for path, value in use.draws():
            known, name = first.setdefault((use.pool, path), (value, use.name))
            if value != known:
                message = (
                    f"found {_show(value)}, but {name} draws from the same images with {_show(known)}; make them equal"
                )
                yield Mistake(POOLS_DIFFER, use.path + path, message, silo=use.silo)
        partition = use.section.division
        if use.section.taken == "Part" and partition is not None:
            name = parts.setdefault((use.pool, partition.file, partition.part, partition.silo), use.name)
            if name != use.name:
                message = f"found the same part as {name}; give every silo its own"
                yield Mistake(POOLS_DIFFER, (*use.path, "partition"), message, silo=use.silo)


def _uses(federation: Federation, silos: Sequence[Silo]) -> Iterator[_Use]:
    spec = federation.spec
    for name, server in spec.server_data.items():
        path = ("spec", "anchorData") if name == "anchors" else ("spec", "evaluation", name)
        yield _Use(server, path, None, ".".join(path))
    for index, silo in enumerate(silos):
        if silo.spec.managed is not None:
            section = silo.spec.managed.data
            yield _Use(section, ("spec", "managed", "data"), index, f"silo {silo.metadata.name}")


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items() if item is not None) or "nothing"
    return "nothing" if value is None else str(value)
