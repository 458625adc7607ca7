"""The commented federation file that `fedctl init` writes."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from anchorage.api.fact import Fact
from anchorage.api.text import printable
from anchorage.methods import PRESETS
from fedctl.output import format_count
from fedctl.recipe import ENCODER_SIDES, Labels, Recipe, Weights, recipe_of, recipe_of_volumes
from fedctl.site_folders import SiteFolder, image_size

WIDTH = 110
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""Words that some reader of YAML does not take for text."""


@dataclass(frozen=True, slots=True)
class FirstFile:
    """What the file says."""

    name: str
    """The federation's."""
    task: Mapping[str, Any]
    """As ``spec.task`` has it."""
    server: Mapping[str, SiteFolder]
    """Folders of the coordinating site: ``anchors``, ``validation``, ``test``."""
    silos: Mapping[str, tuple[SiteFolder, Labels]]
    """Folders of the silos by name, and which of their images are labelled."""
    class_maps: Mapping[str, Mapping[str, str]]
    """Classes of local names, by role."""

    weights: Weights | None = None
    """Pretrained weights below the data root, to start from."""
    task_name: str = "classification"
    """Name of the task's piece."""
    volume: Mapping[str, Any] | None = None
    """As ``spec.model.volume`` has it; None: images are flat."""

    @property
    def recipe(self) -> Recipe:
        """What the study begins with."""
        sites = [*self.server.values(), *(site for site, _ in self.silos.values())]
        labels = [labels for _, labels in self.silos.values()]
        if self.volume is not None:
            return recipe_of_volumes(labels)
        return recipe_of(
            labels,
            image_size(sites, ENCODER_SIDES[1]),
            self.weights,
            self.task_name,
            validated="validation" in self.server,
        )

    def to_yaml(self) -> str:
        """Return the documents as YAML with comments."""
        return "\n".join([*self._federation(), *(line for name in self.silos for line in self._silo(name))]) + "\n"

    def _federation(self) -> Iterator[str]:
        sites = [*self.server.values(), *(site for site, _ in self.silos.values())]
        recipe = self.recipe
        yield from _comment(
            "Written by `fedctl init`. Every field, with its bounds: docs/federation.md; images: docs/data.md."
        )
        yield from ("apiVersion: anchorage.dev/v1alpha1", "kind: Federation", _entry("metadata", {"name": self.name}))
        yield "spec:"
        yield from _comment(recipe.rounds_reason, 2)
        yield f"  rounds: {recipe.rounds}"
        yield from _comment("Decides every random draw: the same documents and seed give the same model.", 2)
        yield "  seed: 1"
        yield from _comment("The task, with the names of the model's outputs; fixed once training has begun.", 2)
        yield _entry("task", self.task, 2)
        yield from self._model(recipe, sites)
        if recipe.warm_up:
            yield from _comment(recipe.warm_up_reason, 2)
            yield "  warmUp:"
            for stage in recipe.warm_up:
                yield f"  - {_entry('method', stage['method'])}"
                yield _entry("rounds", stage["rounds"], 4)
                if overrides := stage.get("set"):
                    yield "    set:"
                    yield from (f"    - {_flow(override)}" for override in overrides)
        yield from _comment(
            f"How silos and server learn. {recipe.method}: {recipe.method_reason}. `fedctl methods describe {recipe.method}` shows it; "
            "docs/choosing-a-method.md has others.",
            2,
        )
        yield "  method:"
        yield _entry("name", recipe.method, 4)
        for choice in recipe.choices:
            yield from _comment(choice.reason, 4)
            yield _entry(choice.field, choice.value, 4)
        yield from _comment("A round waits for minSilos silos; lower it where hospitals may be away for a day.", 2)
        deadline = 1800 if self.volume is None else 3600
        protocol = {"mode": "Synchronous", "minSilos": len(self.silos), "roundDeadlineSeconds": deadline}
        yield _entry("protocol", protocol, 2)
        if anchors := self.server.get("anchors"):
            unused = (
                ""
                if PRESETS[recipe.method].slots.facts() & {Fact.SERVER_TRAINING, Fact.LABELS_FROM_ANCHORS}
                else f" {recipe.method} does not train on them: they are of use with a method for labels at the server."
            )
            yield from _comment(f"The server's labelled images (anchors): {self._contents(anchors)}.{unused}", 2)
            yield from self._section("anchorData", anchors, 2)
        yield from self._evaluation(
            averaged=self.volume is None and Fact.UNTRAINED not in PRESETS[recipe.method].slots.facts()
        )
        yield from _comment(
            "MLflow: the experiment, and the name under which the model is registered. uri: a server of yours.", 2
        )
        yield _entry("tracking", {"experiment": self.name, "registeredModel": self.name}, 2)

    def _model(self, recipe: Recipe, sites: Sequence[SiteFolder]) -> Iterator[str]:
        facts = frozenset(fact for site in sites for fact in site.facts)
        intensity = _intensity_of(facts)
        if self.volume is not None:
            yield from _comment(
                f"{recipe.model_reason} spacing: mm to the right, the front and the head, to which volumes are brought: the median of some files, or "
                "coarser where volumes would be very large. patch: voxels that the network sees at once, multiples of 8, at most a usual volume. "
                "foregroundShare: of the patches, around what masks show.",
                2,
            )
            yield from _comment(
                f"intensity: which values become black and white, at every site and wherever the model is used. {_of_volumes(facts)}",
                2,
            )
            channels = max(1, *(len(site.section.channel_files) for site in sites))
            fields = {
                **recipe.model,
                "channels": channels,
                "volume": self.volume,
                "intensity": intensity or {"zScore": {}},
            }
            yield _entry("model", fields, 2)
            return
        yield from _comment(
            f"{recipe.model_reason} channels: 1 for grey images, 3 for colours. augmentation: kind of image (Natural flips left to right; "
            "docs/data.md).",
            2,
        )
        channels = 1 if all(site.grey for site in sites) else 3
        size = {"imageSize": recipe.side, "channels": channels, "augmentation": "Natural"}
        if intensity:
            yield from _comment(
                "intensity: which values become black and white, at every site and wherever the model is used (docs/data.md).",
                2,
            )
        yield _entry("model", {**recipe.model, **size, **({"intensity": intensity} if intensity else {})}, 2)

    def _evaluation(self, *, averaged: bool) -> Iterator[str]:
        missing = {
            "validation": "the best model is then the last one: nothing else can choose it",
            "test": "the summary then has scores on the validation images alone, by which the best model was chosen",
        }
        uses = {
            "validation": "Every fifth round is scored on these images, and the best model chosen by them",
            "test": "The final and the best model are scored on these images, once, at the end",
        }
        here = [part for part in uses if part in self.server]
        yield from (
            ["  evaluation:"] if here else _comment("evaluation: without images of the server no round is scored.", 2)
        )
        if here:
            yield "    everyRounds: 5"
            if averaged:  # of a few long rounds, or of classifiers made anew, the models before are too much behind
                yield from _comment(
                    "What is scored, kept and registered is an average of about the last ten global models: single ones go up and down.",
                    4,
                )
                yield _entry("averageDecay", "0.9", 4)
        for part, text in uses.items():
            if site := self.server.get(part):
                yield from _comment(f"{text}: {self._contents(site)}.", 4)
                yield from self._section(part, site, 4)
            else:
                indent = 4 if here else 2
                yield from _comment(
                    f"{part}: missing; {missing[part]}. Labelled images that no other section has go here:", indent
                )
                yield from _comment(f"{part}: {{format: ImageFolder, claimName: server, path: {part}}}", indent)

    def _silo(self, name: str) -> Iterator[str]:
        site, labels = self.silos[name]
        yield from (
            "---",
            "apiVersion: anchorage.dev/v1alpha1",
            "kind: Silo",
            _entry("metadata", {"name": name}),
            "spec:",
        )
        yield _entry("federation", self.name, 2)
        unread = (
            f" What its folders or table say ({_format_names(site.names)}) is not read; with All or Partial it is."
            if site.names
            else ""
        )
        meaning = {
            "None": f"Its {format_count(site.images, 'image')} are used without labels." + unread,
            "All": f"All of its images have labels: {self._contents(site)}.",
            "Partial": f"Some of its images have labels: {self._contents(site)}.",
        }
        if self.volume is not None:
            held = format_count(site.images, "volume")
            alone = f"{self.recipe.method} learns of masks alone"
            meaning = {
                "None": f"No mask of its {held} is read. {alone}, so that this silo adds nothing to the model: give it masks, choose "
                "FedAvgFixMatch, which learns from volumes without masks, too (docs/volumes.md), or leave it out.",
                "All": f"All of its {held} have masks.",
                "Partial": f"Of its {held} {site.unlabelled} have no mask. {alone}, so that nothing is learnt of these; FedAvgFixMatch would.",
            }
        yield from _comment(meaning[labels], 2)
        yield _entry("labels", labels, 2)
        yield from _comment(
            "Where its images are: DATA_ROOT/claimName/path, on Kubernetes the volume claim. A hospital that runs its own agent "
            "names them there: leave managed out then.",
            2,
        )
        yield "  managed:"
        yield from self._section("data", site, 4, labels != "None")

    def _contents(self, site: SiteFolder) -> str:
        """Write what a folder holds, such as ``60 images, 12 without label; MEL 20, NV 28``."""
        if self.volume is not None:
            return format_count(site.images, "volume") + (
                f", {site.unlabelled} without mask" if site.unlabelled else ""
            )
        without = f", {site.unlabelled} without label" if site.unlabelled else ""
        counts = "; " + ", ".join(f"{name} {count}" for name, count in site.names.items()) if site.names else ""
        return f"{format_count(site.images, 'image')}{without}{counts}"

    def _section(self, field: str, site: SiteFolder, indent: int, labelled: bool = True) -> Iterator[str]:
        values: dict[str, Any] = site.section.model_dump(mode="json", by_alias=True, exclude_unset=True)
        if values["path"] == ".":
            del values["path"]
        yield f"{indent * ' '}{field}:"
        yield from (_entry(name, value, indent + 2) for name, value in values.items())
        if labelled and (mapped := self.class_maps.get(site.role)):
            yield from _comment(
                "Which class each local name is. Look at every line: a wrong one trains on wrong labels.", indent + 2
            )
            yield f"{(indent + 2) * ' '}classMap:"
            yield from (_entry(local, name, indent + 4) for local, name in mapped.items())


def _of_volumes(facts: Collection[str]) -> str:
    """Say why volumes whose files say this of themselves are shown as `_intensity_of` has it."""
    if "modality CT" in facts:
        return (
            "CT: a window in Hounsfield units, here of soft tissue. Set that of the organ, such as -1350 to 150 for lungs, 0 to 80 for the brain, "
            "-500 to 1300 for bone (docs/data.md)."
        )
    if any(fact.startswith("NIfTI ") for fact in facts):
        return (
            "NIfTI does not say what was measured: zScore, by the mean and deviation of each volume, is for MR. For CT set a window in Hounsfield "
            'units: intensity: {window: {low: "-160", high: "240"}} (soft tissue; docs/data.md).'
        )
    return "MR: values have no unit and differ between scanners, so each volume is shown by its own mean and deviation (docs/data.md)."


def _format_names(names: Mapping[str, int]) -> str:
    return ", ".join(list(names)[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _comment(text: str, indent: int = 0) -> Iterator[str]:
    start = f"{indent * ' '}# "
    yield from wrap(printable(text), WIDTH, initial_indent=start, subsequent_indent=start, break_long_words=False)


def _entry(name: str, value: Any, indent: int = 0) -> str:
    return f"{indent * ' '}{_flow(name)}: {_flow(value)}"


def _flow(value: Any) -> str:
    """Write a value on one line of YAML that every version reads alike."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(name)}: {_flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        return value if plain else json.dumps(value, ensure_ascii=False)
    return str(value)


def _intensity_of(facts: Collection[str]) -> Mapping[str, Any] | None:
    """Return what suits images of scanners whose files say this of themselves; None: they are pictures."""
    radiographs = {"modality CR", "modality DX", "modality MG"}
    if radiographs & set(facts):
        return {"dicomWindow": {}}
    if "modality CT" in facts:
        return {"window": {"low": "-160", "high": "240"}}  # soft tissue, in Hounsfield units
    if any(fact.startswith(("modality MR", "NIfTI ")) for fact in facts):
        return {"zScore": {}}
    return None
