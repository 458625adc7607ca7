"""Play a study as `fedctl study` does, keep its models, and score the last one of each seed on the images of every site apart.

python benchmarks/quality/by_site.py -f STUDY --workdir DIR --data-root DIR [--sites NAMES] [--method NAME] [--seeds N] [--details] [--set PATH=VALUE]

The images of all sites are those of the document's test section, those of a site its table with -SITE before the suffix. Documents without a test
section are scored on the validation images alone. Printed is, as mean and standard deviation over the seeds, Dice, or the mean area under
the ROC curve of the findings of which at least ten images of all sites are positive, on a site's images of those that have both there. What
was played and scored is not played and scored again.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from anchorage.api.federation import FederationSpec
from anchorage.api.files import Study
from anchorage.api.model_card import Assessment
from anchorage.api.single import read_document
from anchorage.learning.data import read
from anchorage.methods.composition import build_learners
from fedctl.research.results import SimulationFolder
from fedctl.research.simulation import simulate_seeds
from fedctl.research.study import Cell, Selection, StudyFile, cells_of
from fedctl.view import view_for

LEAST = 10
"""Positive images of a finding that counts."""
ALL = "all"

Figures = Mapping[str, float]
"""By site, and of findings by site and finding."""


def assessed(spec: FederationSpec, model: Path, root: Path, table: str) -> Assessment:
    """Score a model file on the images of another table than the test section's.

    Raises
    ------
    AnchorageError
        The images or the model cannot be read.
    """
    part = "test" if "test" in spec.server_data else "validation"
    section = spec.server_data[part].model_copy(update={"manifest": table})
    images = read(section, root, spec.model_description, spec.seed)[0]
    learner = build_learners(spec, {part: images}, device="cpu", initial=model)[-1]
    assessment = learner.assess(learner.initialise(), 0)
    if assessment is None:
        raise SystemExit(f"{table} has no labels to score by")
    return assessment


def scored(study: Study, folder: SimulationFolder, root: Path, sites: Sequence[str]) -> Figures:
    """Return the last model's figures on all images, and on each site's."""
    spec = study.federation.spec
    table = Path((spec.server_data.get("test") or spec.server_data["validation"]).manifest or "")
    model = folder.models(spec.seed) / "final.safetensors"
    tables = {ALL: table.name, **({s: f"{table.stem}-{s}.csv" for s in sites} if "test" in spec.server_data else {})}
    assessments = {site: assessed(spec, model, root, name) for site, name in tables.items()}
    if not assessments[ALL].findings:
        return {site: assessment.metrics["dice"] for site, assessment in assessments.items()}
    counted = {finding.name for finding in assessments[ALL].findings if finding.positives >= LEAST}
    figures: dict[str, float] = {}
    for site, assessment in assessments.items():
        areas = {finding.name: finding.auroc.value for finding in assessment.findings if finding.auroc}
        figures[site] = statistics.mean(area for name, area in areas.items() if name in counted)
        figures |= {f"{site}/{name}": area for name, area in areas.items()}
    return figures


def played(cell: Cell, root: Path, sites: Sequence[str]) -> list[Figures]:
    """Return the figures of every seed of a cell, after playing and scoring those that are missing."""
    studies, cache = cell.wanted.studies(), cell.folder.root / "by-site.json"
    with view_for(sys.stderr, terminal=False) as view:
        simulate_seeds(cell.wanted, studies, cell.folder, view, 0, [])
    known: dict[str, Figures] = json.loads(cache.read_text()) if cache.exists() else {}
    for study in studies:
        seed = str(study.federation.spec.seed)
        if seed not in known:
            known[seed] = scored(study, cell.folder, root, sites)
            cache.write_text(json.dumps(known, indent=1) + "\n")
    return [known[str(study.federation.spec.seed)] for study in studies]


def row(values: Sequence[float]) -> str:
    """Write mean ± standard deviation; a single value alone."""
    mean = f"{statistics.mean(values):.3f}"
    return f"{mean} ± {statistics.stdev(values):.3f}" if len(values) > 1 else mean


def main() -> int:
    """Play what is missing, and print a row for each method."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("-f", "--file", type=Path, required=True, help="the study")
    parser.add_argument("--workdir", type=Path, required=True, help="folder of the results")
    parser.add_argument("--data-root", type=Path, required=True, help="folder that claims name folders of")
    parser.add_argument("--sites", default="vidir-molemax,vidir-modern,rosendahl,vienna-dias", help="names of sites")
    parser.add_argument("--method", action="append", default=[], help="only this method of the study")
    parser.add_argument("--seeds", type=int, help="as many seeds; default: the study's")
    parser.add_argument("--set", action="append", default=[], help="override, as fedctl study takes it")
    parser.add_argument("--details", action="store_true", help="print the area of every finding, too")
    arguments = parser.parse_args()
    root, sites = arguments.data_root.resolve(), arguments.sites.split(",")
    selection = Selection(arguments.set, arguments.seeds, arguments.method)
    for cell in cells_of(
        read_document(arguments.file, StudyFile), arguments.file, arguments.workdir.resolve(), root, "cpu", selection
    ):
        one = replace(cell, wanted=replace(cell.wanted, keep=True, at_once=1))
        seeds = played(one, root, sites)
        names = [name for name in seeds[0] if arguments.details or "/" not in name]
        figures = "; ".join(f"{name} {row([seed[name] for seed in seeds])}" for name in names)
        print(f"{cell.title} ({len(seeds)}): {figures}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
