"""A model card as Markdown. Its headings name the items of Annex IV of the EU AI Act (Regulation (EU) 2024/1689) that they cover."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from anchorage.api.metric_names import ACCEPTANCE, PSEUDO_LABEL_ACCURACY
from anchorage.api.metrics import metric_order, score, sort_metrics
from anchorage.api.model_card import Assessment, Calibration, Interval, ModelCard, SiloPart
from anchorage.api.verdict import judge

TO_FILL = "*To be filled in by people.*"

_BY_PEOPLE = (
    ("Provider, and the product that it is part of", "1 (a), (b)"),
    ("Instructions for use", "1 (h)"),
    ("Where the images come from, how they were chosen, labelled and cleaned; consent", "2 (d)"),
    ("Human oversight", "2 (e)"),
    ("Changes planned in advance", "2 (f)"),
    ("Performance for groups of persons, and possible discrimination", "2 (g), 3"),
    ("Risk management", "5"),
    ("Standards applied", "7"),
    ("EU declaration of conformity", "8"),
    ("Monitoring after it is put to use", "9"),
)
"""Items that a training run cannot know, with their numbers in Annex IV."""

HELD_OUT = "held_out_"
"""What names of metrics begin with that a silo measured on images that it keeps from training (`anchorage.engine.held_out`)."""


def plain(text: str) -> str:
    """Return text of another party as Markdown that shows it as it is, on one line."""
    escaped = re.sub(r"([\\`*_\[\]<>|~&])", r"\\\1", " ".join(text.split()))
    return re.sub(r"^(\d*)([-+#=.)])", r"\1\\\2", escaped)


def markdown(card: ModelCard) -> str:
    """Return the card as Markdown (CommonMark with tables)."""
    parts = [
        f"# Model card: {plain(card.federation)}",
        verdict(card),
        f"{plain(card.network)} trained by {plain(card.method)} over {len(card.silos)} silos in {card.rounds} rounds, "
        f"{card.begun[:10]}. What people have to fill in is marked so.",
        "## Intended use (Annex IV, 1)",
        plain(card.intended_use) if card.intended_use else TO_FILL,
        "## Results (Annex IV, 2 (g), 3 and 4)",
        *_results(card),
        "## Silos (Annex IV, 2 (d) and (g))",
        *_silos(card),
        "## Known limits (Annex IV, 3)",
        "\n".join(f"- {plain(limit)}" for limit in card.limits),
        "## Data sheet (Annex IV, 2 (d))",
        *_images(card),
        "## Model and training (Annex IV, 1 and 2 (a) to (c))",
        *_training(card),
        "## What left the hospitals (Annex IV, 2 (h))",
        *_traffic(card),
        "## Changes (Annex IV, 6)",
        "This version was made from the documents whose digests stand above. Another version has a card of its own.",
        "## Left to people",
        table(("item", "Annex IV", ""), ((what, where, TO_FILL) for what, where in _BY_PEOPLE)),
    ]
    return "\n\n".join(parts) + "\n"


def verdict(card: ModelCard) -> str:
    """Return what the federation gained as a sentence, and its problems as a list."""
    gain, *problems = (
        f"{plain(concern.sentence)}{f' (`{concern.page}`)' if concern.page else ''}" for concern in judge(card)
    )
    return "\n\n".join([f"**{gain}**", "\n".join(f"- {problem}" for problem in problems)]).strip()


def scored_silos(silos: Iterable[SiloPart]) -> Mapping[str, tuple[str, float]]:
    """Return the silos that scored a model on images of their own (`HELD_OUT`), worst first, with the score's name and value."""
    known = {
        silo.name: {name: value for name in metric_order() if (value := silo.metrics.get(HELD_OUT + name)) is not None}
        for silo in silos
    }
    ranked = sorted(
        (metric_score, name) for name, values in known.items() if (metric_score := score(values)) is not None
    )
    return {name: (metric_order()[-place], abs(value)) for (place, value), name in ranked}


def headline_table(card: ModelCard) -> str:
    """Return the scores of the last and the best model beside training on the labels and at each site alone; empty without labelled images."""
    final, best = card.final.assessment, card.best.assessment
    if final is None:
        return ""
    columns: dict[str, Mapping[str, float]] = {f"last, round {card.final.round}": final.metrics}
    if best is not None and card.best.digest != card.final.digest:
        columns[f"best by validation, round {card.best.round}"] = best.metrics
    if card.labels_alone is not None:
        columns["labels alone"] = card.labels_alone
    columns |= {f"{plain(name)} alone": metrics for name, metrics in (card.sites_alone or {}).items()}
    if card.supervised_bound is not None:
        columns["supervised bound"] = card.supervised_bound
    rows = (
        (plain(name.replace("_", " ")), *(_number(values.get(name)) for values in columns.values()))
        for name in sort_metrics(final.metrics)
    )
    return table((f"{final.images} {final.part} images", *columns), rows)


def _results(card: ModelCard) -> list[str]:
    final = card.final.assessment
    if final is None:
        return ["The model was not scored at the server: no labelled images there, or nothing that makes predictions."]
    return [
        headline_table(card),
        *_alone(card),
        *(["*Supervised bound* is another run, which had every label."] if card.supervised_bound is not None else []),
        *(["### Classes, last round", _classes(final)] if final.classes else []),
        *(["### Findings, last round", _findings(final)] if final.findings else []),
        *(["### Intervals, last round", _intervals(final)] if final.intervals else []),
        *(_reliability(final.calibration, findings=bool(final.findings)) if final.calibration is not None else []),
    ]


def _alone(card: ModelCard) -> Iterator[str]:
    """Yield what the columns of the headline are that the federation is held against."""
    if card.labels_alone is not None:
        yield "*Labels alone* is the same network trained on the labels only, without the images that have none."
    if card.sites_alone:
        yield "*NAME alone* is the same network trained at that silo only, with the same seed, rounds and local settings."
    if card.labels_alone is None and not card.sites_alone:
        yield "Training on the labels alone and at each site alone was not measured; `fedctl run` measures it."


def _classes(scored: Assessment) -> str:
    rows = (
        (
            plain(class_scores.name),
            str(class_scores.images),
            _number(class_scores.recall),
            _number(class_scores.specificity),
            _number(class_scores.precision),
            _interval(class_scores.auroc, scored.resamples),
        )
        for class_scores in scored.classes
    )
    mean = _interval(scored.macro_auroc, scored.resamples)
    head = "AUROC (95 % interval)" if scored.resamples else "AUROC"
    text = table(("class", "images", "recall", "specificity", "precision", head), rows)
    how = f", by {scored.resamples} bootstrap resamples within each class" if scored.resamples else ""
    return f"{text}\n\nMean of the areas: {mean or 'unknown'}{how}."


def _findings(scored: Assessment) -> str:
    rows = (
        (
            plain(finding_scores.name),
            str(finding_scores.positives),
            str(finding_scores.negatives),
            str(finding_scores.uncertain + finding_scores.unknown),
            _interval(finding_scores.auroc, scored.resamples),
            _number(finding_scores.average_precision),
            f"{finding_scores.threshold:.4f}" + ("" if finding_scores.threshold_by == "Validation" else " (default)"),
            _number(finding_scores.recall),
            _number(finding_scores.specificity),
            _number(finding_scores.f1),
        )
        for finding_scores in scored.findings
    )
    area = "AUROC (95 % interval)" if scored.resamples else "AUROC"
    head = (
        "finding",
        "with",
        "without",
        "not known",
        area,
        "average precision",
        "threshold",
        "recall",
        "specificity",
        "F1",
    )
    with_area = sum(finding_scores.auroc is not None for finding_scores in scored.findings)
    how = f", by {scored.resamples} bootstrap resamples of patients" if scored.resamples else ""
    mean = _interval(scored.macro_auroc, scored.resamples) or "unknown"
    thresholds = (
        "Thresholds are those of the greatest sum of recall and specificity on the validation images"
        + (", on which the figures are, too, so that they may be too good" if scored.part == "validation" else "")
        + "; *default* is 0.5, where these do not have images with the finding and images without it."
    )
    return f"{table(head, rows)}\n\nMean of the areas of {with_area} of {len(scored.findings)} findings: {mean}{how}. {thresholds}"


def _intervals(scored: Assessment) -> str:
    head = ("figure", "95 % interval" if scored.resamples else "")
    rows = ((plain(name.replace("_", " ")), _interval(i, scored.resamples)) for name, i in scored.intervals.items())
    return table(head, rows)


def _reliability(calibration: Calibration, *, findings: bool) -> list[str]:
    rows = (
        (
            f"{reliability_bin.low:.2f} to {reliability_bin.high:.2f}",
            str(reliability_bin.images),
            _number(reliability_bin.confidence),
            _number(reliability_bin.accuracy),
        )
        for reliability_bin in calibration.bins
        if reliability_bin.images
    )
    head = ("probability of the predicted class", "images", "mean probability", "predicted rightly")
    if findings:
        head = ("probability of a finding", "known entries", "mean probability", "share that has it")
    return [
        "### Calibration, last round",
        f"Expected calibration error {calibration.expected_error:.4f} ({len(calibration.bins)} ranges of equal width), "
        f"Brier score {calibration.brier:.4f} (0 is perfect, {1 if findings else 2} the worst).",
        table(head, rows),
    ]


def _silos(card: ModelCard) -> list[str]:
    if not card.silos:
        return ["No silo took part."]
    shown = ("loss", ACCEPTANCE, PSEUDO_LABEL_ACCURACY, *(HELD_OUT + name for name in (*metric_order(), "images")))
    metrics = [name for name in shown if any(name in silo.metrics for silo in card.silos)]
    head = (
        "silo",
        "labels",
        "rounds counted",
        "mean weight",
        "failed",
        "missed",
        "images",
        *(plain(m.replace("_", " ")) for m in metrics),
    )
    rows = (
        (
            plain(silo.name),
            silo.labels or "?",
            str(silo.rounds),
            f"{silo.weight:.3f}",
            str(silo.failures),
            "?" if silo.missed is None else str(silo.missed),
            plain(", ".join(f"{use} {count}" for use, count in silo.samples.items())),
            *(_number(silo.metrics.get(name)) for name in metrics),
        )
        for silo in card.silos
    )
    ranked = list(scored_silos(card.silos).items())
    if ranked:
        name, (metric, value) = ranked[0]
        worst = f"Worst silo: {plain(name)}, {plain(metric.replace('_', ' '))} {value:.4f} on images that it kept from training."
    else:
        worst = "No silo scored the model on labelled images of its own (spec.evaluation.siloPercent), so how it does at each hospital is unknown."
    return [
        table(head, rows),
        f"Figures are of each silo's last update; its loss is that of its training, *held out* are scores of the model made with it. {worst}",
    ]


def _images(card: ModelCard) -> list[str]:
    if not card.images:
        return ["The server had no images."]
    names = list(dict.fromkeys(name for part in card.images for name in part.classes))
    rows = ((plain(name), *(str(part.classes.get(name, 0)) for part in card.images)) for name in names)
    totals = ("**labelled**", *(str(sum(part.classes.values())) for part in card.images))
    digests = ("digest", *(f"`{part.digest[:16]}`" for part in card.images))
    head = ("images at the server", *(f"{part.part} ({plain(part.format)})" for part in card.images))
    hospitals = ((plain(silo.name), f"`{silo.digest[:16]}`") for silo in card.silos if silo.digest)
    sections = [table(head, (*rows, totals, digests))]
    listed = list(hospitals)
    if listed:
        sections.append(table(("images at the hospitals", "digest"), listed))
    sections.append(
        "Digests are keyed with the run's own key: they show that images stayed the same, and cannot be compared between runs."
    )
    return sections


def _input(card: ModelCard) -> str:
    if card.volume is None:
        return f"{card.image_size} × {card.image_size} pixels, {'grey' if card.channels == 1 else 'RGB'}"
    sides, spacing = " × ".join(map(str, card.volume.patch)), " × ".join(card.volume.spacing)
    return f"patches of {sides} voxels of {spacing} mm, {card.channels} channel{'s' if card.channels > 1 else ''}"


def _training(card: ModelCard) -> list[str]:
    classes = [scores.name for scores in card.final.assessment.classes] if card.final.assessment else []
    outputs = ", ".join(map(plain, card.outputs or classes)) or "model.json"
    facts = (
        ("network", plain(card.network)),
        ("input", _input(card)),
        ("output", f"{plain(card.task)}: {outputs}"),
        ("initial weights", plain(card.initial) or "random"),
        ("method", plain(card.method)),
        ("its source", plain(card.source) or "another package"),
        ("stages before it", plain(", ".join(card.warm_up)) or "none"),
        *([("classifier", _choice(card))] if card.chosen_from else []),
        ("rounds", f"{card.rounds}, {card.mode.lower()}"),
        ("seed", str(card.seed)),
        ("time", f"{card.begun} to {card.ended}, {card.seconds:.0f} s with pauses"),
        ("software", f"Anchorage {plain(card.anchorage)}"),
        ("last model", f"`{card.final.file}`, round {card.final.round}, BLAKE3 `{card.final.digest}`"),
        ("best model", f"`{card.best.file}`, round {card.best.round}, BLAKE3 `{card.best.digest}`"),
    )
    documents = ((d.kind, plain(d.name), f"`{d.digest}`") for d in card.documents)
    return [table(("fact", ""), facts), table(("document", "name", "SHA-256"), documents)]


def _choice(card: ModelCard) -> str:
    """Return what the classifier was chosen from."""
    every = ", ".join(f"{plain(name)} {value:.3f}" for name, value in (card.chosen_from or {}).items())
    return f"{plain(card.chosen or '')}, by balanced accuracy on the validation images ({every})"


def _traffic(card: ModelCard) -> list[str]:
    up, down = card.traffic.up, card.traffic.down
    counts = ", and what the task counts of the images that they keep from training" if scored_silos(card.silos) else ""
    sent, received = f"{card.traffic.bytes_up:,} bytes of model updates", f"{card.traffic.bytes_down:,} bytes of models"
    counts_and_metrics = f"counts of their images and metrics of their training{counts}"
    if card.simulated:
        text = f"This was a simulation: nothing travelled. Silos would have sent {sent} and received {received}, with {counts_and_metrics}."
    else:
        text = (
            f"Images and labels stayed at the hospitals, unless an array below holds them. Silos sent {sent} and received {received}, over "
            f"mutually authenticated TLS 1.3, with {counts_and_metrics}. Each hospital's own audit log lists every message."
        )
    sections = [text]
    for way, arrays in (("from each silo, beside its update", up), ("to each silo, beside the model", down)):
        if arrays:
            rows = ((plain(a.name), plain(a.shape), plain(a.meaning)) for a in arrays)
            sections.append(table((way, "shape", "what it is"), rows))
    return sections if up or down else [*sections, "The method sends nothing beside the models."]


def _interval(interval: Interval | None, resamples: int) -> str:
    if interval is None:
        return ""
    return f"{interval.value:.4f} ({interval.low:.4f} to {interval.high:.4f})" if resamples else f"{interval.value:.4f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if value > 1 and value.is_integer() else f"{value:.4f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; cells are Markdown of one line."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))
