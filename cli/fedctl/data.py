"""``fedctl data``: checks a federation's images before training."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from anchorage.api.data import DataSection
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import BAD_IMAGES, HELD_OUT_TRAINED
from anchorage.api.errors.documents import UNKNOWN_CHOICE
from anchorage.api.errors.learning import ANCHORS_MISSING
from anchorage.api.files import Study
from anchorage.api.text import list_some
from anchorage.learning.data import DataReport, Overlap, check, overlap, require_labels
from anchorage.learning.data.cases import VALUES_UP_TO
from anchorage.learning.data.decoders import shades_of
from anchorage.learning.data.overlap import Contents
from anchorage.learning.data.report import FindingCount
from anchorage.methods import validate_study
from anchorage.methods.pretrained import initial_of
from fedctl.output import Format, emit, format_count, people, plain_table, warn
from fedctl.site_folders import GREY
from fedctl.validation import warn_about
from fedctl.workdir import choose_data_root

SHOWN_BAD = 20
SHOWN_CLASSES = 20
SHOWN_KINDS = 10
_SAME_FOR_ALL = ("bits", "window")
"""Intensities that show the same value alike in all images, whatever their scale."""
LITTLE_IN_COMMON = 0.3
"""Area that the histograms of grey levels of two sections have in common, below which they are told.

Measured on eight hippocampus volumes of each of three scales: 0.93 and more with an intensity that shows them alike, 0.09 and less with one window
for all.
"""
_BARS = " ▁▂▃▄▅▆▇█"
_INTENSITIES = {
    ("CT",): 'set a window in Hounsfield units, such as {window: {low: "-160", high: "240"}} for the abdomen',
    ("CR", "DX", "MG"): "set {dicomWindow: {}} to show radiographs as their files say",
    ("MR", "PT", "NM"): "set {zScore: {}} or {percentiles: {}}, since their values have no common unit",
}
"""What to set as `spec.model.intensity` for images of some modalities."""


def check_data(file: Path, silo: str | None, data_root: Path | None, overrides: Sequence[str], output: Format) -> None:
    """Open every image of the server's and the silos' sections and print what was found.

    Raises
    ------
    AnchorageError
        A section cannot be read. After everything was printed: images cannot be used, labels are missing that the documents promise, or
        there is no such initial model; of several the last one, after the others were told on stderr.
    """
    study = validate_study(file, overrides)
    spec = study.federation.spec
    root = choose_data_root(study.federation.metadata.name, file, data_root)
    sections = sections_of(study)
    if silo is not None:
        if silo not in sections:
            detail = f"found --silo {silo}, allowed are {', '.join(sections)}"
            raise AnchorageError(UNKNOWN_CHOICE, detail)
        sections = {silo: sections[silo]}
    blind = {silo.metadata.name for silo in study.silos if silo.spec.labels == "None"}
    intensity = shades_of(spec.model)
    volumes = None if spec.model.volume is None else spec.model_description
    checked = {
        name: check(
            section, root, spec.task, spec.seed, labelled=name not in blind, intensity=intensity, volumes=volumes
        )
        for name, section in sections.items()
    }
    reports = {name: report for name, (report, _) in checked.items()}
    shared = dict(_held_out({name: contents for name, (_, contents) in checked.items()}))
    if output.for_people:
        histograms = [
            Text(f"{name}: {_bars(contents)}") for name, (_, contents) in checked.items() if contents.levels.any()
        ]
        people().print(Group(_reports_table(reports), *histograms, *_overlap_lines(shared)))
    else:
        emit({name: _document(name, report, contents, shared) for name, (report, contents) in checked.items()}, output)
    warn_about(study)
    stated_intensity = spec.model.intensity
    advice = _advised_intensity(reports) if stated_intensity is None else None
    scales = _differing_scales(reports) if stated_intensity is None or stated_intensity.name in _SAME_FOR_ALL else None
    difference = scales or _differing_levels({name: contents for name, (_, contents) in checked.items()})
    for text in (difference, advice):
        if text:
            warn(text)
    failures = list(_failures(reports, {silo.metadata.name: silo.spec.labels for silo in study.silos}))
    if spec.evaluation is not None and spec.evaluation.on_leakage == "Refuse":
        failures += [_leakage(*pair, detail) for pair, detail in shared.items() if detail.identical]
    try:
        if silo is None:
            initial_of(spec, root)
    except AnchorageError as error:
        failures.append(error)
    for failure in failures[:-1]:
        typer.echo(str(failure), err=True)
    if failures:
        raise failures[-1]


def _held_out(contents: Mapping[str, Contents]) -> Iterator[tuple[tuple[str, str], Overlap]]:
    """Yield what each section has in common with the parts that the federation is scored on, where it has anything."""
    for part in (part for part in ("test", "validation") if part in contents):
        for name in contents:
            if name not in ("test", part) and (shared_images := overlap(contents[name], contents[part])):
                yield (name, part), shared_images


def _leakage(name: str, part: str, shared_images: Overlap) -> AnchorageError:
    one, other = shared_images.identical[0]
    message = f"found {format_count(len(shared_images.identical), f'{part} image')} among the images of {name}, such as {one} ({other} there)"
    return AnchorageError(HELD_OUT_TRAINED, f"{message}; remove them, or set spec.evaluation.onLeakage")


def _bars(contents: Contents) -> str:
    """Draw the histogram of the grey levels that the model sees."""
    heights = np.ceil(contents.levels / contents.levels.max() * (len(_BARS) - 1)).astype(int)
    return f"grey levels as the model sees them, from dark to bright: ▕{''.join(_BARS[height] for height in heights)}▏"


def _document(
    name: str, report: DataReport, contents: Contents, shared: Mapping[tuple[str, str], Overlap]
) -> dict[str, Any]:
    held_out = {part: shared_images.as_document() for (owner, part), shared_images in shared.items() if owner == name}
    return {**report.as_document(), "levels": contents.levels.round(4).tolist(), "heldOut": held_out}


def _overlap_lines(shared: Mapping[tuple[str, str], Overlap]) -> Iterator[RenderableType]:
    for (name, part), shared_images in shared.items():
        if shared_images.identical:
            pair = " = ".join(shared_images.identical[0])
            yield Text(
                f"{name} and {part}: {format_count(len(shared_images.identical), 'equal image')}, such as {pair}",
                style="red",
            )
        if shared_images.near:
            pair = " and ".join(shared_images.near[0])
            yield Text(
                f"{name} and {part}: {format_count(len(shared_images.near), 'pair')} of images that look the same, such as {pair}",
                style="yellow",
            )
        if shared_images.groups:
            who = format_count(len(shared_images.groups), "name")
            text = f"{name} and {part}: {who} of patients or lesions in both, such as {shared_images.groups[0]}"
            text += " (at different sites perhaps by chance)"
            yield Text(text, style="yellow")


def _failures(reports: Mapping[str, DataReport], labels: Mapping[str, str]) -> Iterator[AnchorageError]:
    """Yield why a run would not begin with images like these; `labels` are the silos' own."""
    bad = {name: len(report.bad) for name, report in reports.items() if report.bad}
    if bad:
        where = ", ".join(f"{count} of {name}" for name, count in bad.items())
        yield AnchorageError(BAD_IMAGES, f"{sum(bad.values())} images cannot be used ({where}); mend or remove them")
    for name, report in reports.items():
        none = report.usable and report.unlabelled == report.usable
        try:
            require_labels(labels.get(name, "None"), name, report.unlabelled, report.usable)
        except AnchorageError as error:
            yield error
        if none and name == "anchors":
            yield AnchorageError(ANCHORS_MISSING, f"none of the {report.usable} anchors has a label; label them")
        elif none and name not in labels:
            warn(f"none of the {report.usable} images of {name} has a label, so nothing is evaluated on them")


def sections_of(study: Study) -> dict[str, DataSection]:
    """Return every data section of a study by who reads it: ``anchors``, ``validation``, ``test``, then the silos by name."""
    silos = {silo.metadata.name: silo.spec.managed.data for silo in study.silos if silo.spec.managed is not None}
    return {**study.federation.spec.server_data, **silos}


def _reports_table(reports: dict[str, DataReport]) -> RenderableType:
    table = plain_table(
        "data", "images", "usable", "unlabelled", "groups", "sizes", "modes", right=("images", "usable")
    )
    lines: list[RenderableType] = [table]
    for name, report in reports.items():
        sizes = ", ".join(list(report.sizes)[:3]) + (
            f" and {len(report.sizes) - 3} more" if len(report.sizes) > 3 else ""
        )
        cells = [report.listed, report.usable, report.unlabelled, report.groups, sizes, ", ".join(report.modes)]
        table.add_row(name, *map(str, cells))
        if report.findings:
            lines.append(_findings_table(name, report))
        elif any(report.counts):
            lines.append(Text(f"{name}: {_class_counts(report)}"))
        alike: dict[tuple[str, str], list[str]] = {}
        for bad in report.bad:
            alike.setdefault((bad.reason, bad.detail), []).append(bad.id)
        for (reason, detail), ids in islice(alike.items(), SHOWN_BAD):
            others = f" and {len(ids) - 1} others" if len(ids) > 1 else ""
            lines.append(Text(f"{name}: {ids[0]}{others}: {reason}: {detail}", style="red"))
        if hidden := sum(map(len, islice(alike.values(), SHOWN_BAD, None))):
            lines.append(Text(f"{name}: and {hidden} more; -o json lists all", style="red"))
        lines += [Text(f"{name}: {note}") for note in _notes(report)]
    return Group(*lines)


def _findings_table(name: str, report: DataReport) -> RenderableType:
    """Write how many images have each finding, do not have it, may have it, or are not said to."""
    table = plain_table(name, *FindingCount._fields, right=FindingCount._fields)
    for finding, counts in islice(report.findings.items(), SHOWN_CLASSES):
        table.add_row(finding, *map(str, counts))
    return table


def _notes(report: DataReport) -> Iterator[str]:
    """Yield what people should know of images that can be used, and of files that are not counted."""
    if report.windows:
        several = "; images of one scanner need one window: look at the rare ones" if len(report.windows) > 1 else ""
        counted = ", ".join(f"{window} ({count})" for window, count in report.windows.items())
        yield f"grey values that become black to white, of images with more than 8 bits: {counted}{several}"
    if report.paged:
        counted = "of DICOM and NIfTI frames says which count, of others the first does"
        yield f"several pages or frames ({counted}): {len(report.paged)} images, such as {report.paged[0]}"
    if report.not_images:
        kinds = [f"{count} {kind}" for kind, count in islice(report.not_images.items(), SHOWN_KINDS)]
        more = f" and {len(report.not_images) - SHOWN_KINDS} more kinds" if len(report.not_images) > SHOWN_KINDS else ""
        yield f"files that are not images, and not counted: {', '.join(kinds)}{more}"
    if report.facts:
        yield f"what files say of themselves: {', '.join(f'{fact} ({count})' for fact, count in report.facts.items())}"
    yield from report.masks
    yield from report.all_remarks()
    if report.not_listed:
        yield f"images that the table does not name, and not counted: {report.not_listed}"


def _differing_scales(reports: Mapping[str, DataReport]) -> str | None:
    """Say which sections have images of which range and colours, where they differ by what most of their images have."""
    sections: dict[str, list[str]] = {}
    for name, report in reports.items():
        if report.usable:
            sections.setdefault(_scale(report), []).append(name)
    if len(sections) < 2:
        return None
    descriptions = "; ".join(f"{scale}: {list_some(names)}" for scale, names in sections.items())
    return (
        f"sections differ in what most of their images are ({descriptions}), so a model may tell sites apart by their greys; bring all images to "
        "one scale"
    )


def _differing_levels(contents: Mapping[str, Contents]) -> str | None:
    """Say which two sections have the least grey levels in common, as the model sees their images, where that is little."""
    used = [(name, each) for name, each in contents.items() if each.ids]
    pairs = [(one.common_levels(other), name, second) for (name, one), (second, other) in combinations(used, 2)]
    common, name, second = min(pairs, default=(1.0, "", ""))
    if common >= LITTLE_IN_COMMON:
        return None
    return (
        f"{name} and {second} have {common:.0%} of their grey levels in common as the model sees them, so it may tell sites apart by their greys; "
        "look at images of both, and choose a spec.model.intensity that shows them alike, such as {zScore: {}} or {percentiles: {}}"
    )


def _advised_intensity(reports: Mapping[str, DataReport]) -> str | None:
    """Say which intensity suits images of scanners, whose values seldom fill the bits of their files; None: there are none."""
    report_modalities = {fact.removeprefix("modality ") for report in reports.values() for fact in report.facts}
    advice = next((text for modalities, text in _INTENSITIES.items() if report_modalities & {*modalities}), None)
    return (
        advice
        and f"without spec.model.intensity, the largest value that a file's bits can hold is white, and scanners seldom use it; {advice}"
    )


def _scale(report: DataReport) -> str:
    """Return what most images of a section are, such as ``8 bits in colour``, ``grey from 0 to 4095``, or of volumes ``values up to 4095``."""
    if ranges := Counter({fact: count for fact, count in report.facts.items() if fact.startswith(VALUES_UP_TO)}):
        return ranges.most_common(1)[0][0]
    deep = Counter({f"grey from {window.replace('-', ' to ')}": count for window, count in report.windows.items()})
    flat = max(report.usable - deep.total(), 0)
    colour = 2 * sum(count for mode, count in report.modes.items() if mode not in GREY) > sum(report.modes.values())
    return (deep + Counter({"8 bits in colour" if colour else "8 bits of grey": flat})).most_common(1)[0][0]


def _class_counts(report: DataReport) -> str:
    """Write how many images each class has, such as ``MEL 12, NV 30``."""
    named = [f"{name} {count}" for name, count in zip(report.strata, report.counts, strict=True)]
    more = f" and {len(named) - SHOWN_CLASSES} more" if len(named) > SHOWN_CLASSES else ""
    return ", ".join(named[:SHOWN_CLASSES]) + more
