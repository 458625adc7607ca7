"""What a model card says in plain words: what the federation gained, and what is wrong, a sentence each (docs/reading-a-result.md)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from anchorage.api.metric_names import LOSS
from anchorage.api.metrics import improvement, in_points, metric_order
from anchorage.api.model_card import ModelCard, SiloPart
from anchorage.api.text import MOST_NAMED, in_percent, list_some

PAGE = "docs/reading-a-result.md"

FAR_BELOW = 0.05
"""How far the last round's score is below the best one's where it is named."""
NEXT_TO_NOTHING = 0.05
"""Share of a silo's images below which it learnt from next to nothing."""
SAME = 0.0005
"""Difference of two scores that is none."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence about a run."""

    kind: str
    """What it is about, such as ``Gain``; tasks have kinds of their own."""
    sentence: str
    """Plain text on one line; names of silos and classes are other parties'."""
    page: str = ""
    """Where it stands what to do; empty where there is nothing to do."""

    def __str__(self) -> str:
        return f"{self.sentence} ({self.page})" if self.page else self.sentence


def judge(card: ModelCard) -> tuple[Finding, ...]:
    """Return what the federation gained, and then its problems, the gravest first."""
    return (_gain(card), *_problems(card))


def _problems(card: ModelCard) -> Iterator[Finding]:
    parts: tuple[Callable[[ModelCard], Iterator[Finding]], ...] = (
        _concerns,
        _below_alone,
        _better_before,
        _little_learnt,
        _labels_missing,
        _missed_rounds,
        _patients,
    )
    for part in parts:
        yield from part(card)


def _gain(card: ModelCard) -> Finding:
    final = card.final.assessment
    metric = _first(final.metrics) if final is not None else None
    if final is None or metric is None:
        held_out = card.final.validation or {}
        held_out_metric = _first(held_out)
        where = (
            f"; on images that the silos keep from training it has {_article(held_out_metric)} of {held_out[held_out_metric]:.3f}"
            if held_out_metric
            else ""
        )
        sentence = f"The server scored no model, so nobody knows what the federation gained{where}."
        return Finding("NotScored", sentence, f"{PAGE}#not-scored")
    reached = final.metrics[metric]
    counted = final.metrics.get(f"{metric}_labels")
    over = f" over {counted:.0f} of {len(final.findings)} findings" if counted is not None else ""
    headline = f"The federation reaches {_article(metric)} of {reached:.3f}{over} on {final.images} {final.part} images"
    others = [(f"{name} alone", metrics) for name, metrics in (card.sites_alone or {}).items()]
    others += [("the labels alone", card.labels_alone)] if card.labels_alone is not None else []
    compared = [
        f"{_difference(metric, reached, metrics[metric])} {who} ({metrics[metric]:.3f})"
        for who, metrics in others
        if metric in metrics
    ]
    if compared:
        return Finding("Gain", f"{headline}: {_join(compared)}.")
    if len(card.silos) < 2 and card.labels_alone is None:
        return Finding("Gain", f"{headline}.")
    return Finding("Gain", f"{headline}; {_not_compared(card)}.", f"{PAGE}#not-compared")


def _not_compared(card: ModelCard) -> str:
    sites = card.measurable == "Sites" and any(silo.labels != "None" for silo in card.silos)
    if not sites and card.measurable != "Anchors":
        return "it was not compared with training without the federation"
    what = "each site reaches" if sites else "the labels reach"
    return f"what {what} alone was not measured (`fedctl run` measures it, unless --no-compare leaves it out)"


def _below_alone(card: ModelCard) -> Iterator[Finding]:
    final = card.final.assessment
    metric = _first(final.metrics) if final is not None else None
    if final is None or metric is None:
        return
    reached = final.metrics[metric]
    labels = (card.labels_alone or {}).get(metric)
    if labels is not None and improvement(metric, labels, reached) > SAME:
        sentence = f"The federation is {_difference(metric, reached, labels)} the labels alone: what the other images add does harm."
        yield Finding("BelowLabelsAlone", sentence, f"{PAGE}#below-the-labels-alone")
    better = [
        name
        for name, site_metrics in (card.sites_alone or {}).items()
        if improvement(metric, site_metrics.get(metric, reached), reached) > SAME
    ]
    if better:
        sentence = (
            f"The federation is below what {list_some(better)} {'reaches' if len(better) == 1 else 'reach'} alone."
        )
        yield Finding("BelowSiteAlone", sentence, f"{PAGE}#below-a-site-alone")


def _concerns(card: ModelCard) -> Iterator[Finding]:
    if card.final.assessment is not None:
        for concern in card.final.assessment.concerns:
            yield Finding(concern.kind, f"The last model {concern.predicate}.", concern.page)


def _better_before(card: ModelCard) -> Iterator[Finding]:
    last, best = card.final.validation, card.best.validation
    if last is None or best is None:  # a card of an earlier version
        last = card.final.assessment.metrics if card.final.assessment else {}
        best = card.best.assessment.metrics if card.best.assessment else {}
    metric = _first(best)
    if (
        metric is None
        or metric not in last
        or card.best.round == card.final.round
        or improvement(metric, best[metric], last[metric]) < FAR_BELOW
    ):
        return
    apart = f"{100 * improvement(metric, best[metric], last[metric]):.0f}"
    what = (
        f"{apart} points of {_words(metric)} below"
        if in_points(metric)
        else f"{apart} % of {_words(metric)} worse than"
    )
    sentence = (
        f"The last round is {what} the best one (round {card.best.round}): use the best model, and look at the curve."
    )
    yield Finding("BestRoundBefore", sentence, f"{PAGE}#the-best-round-is-far-above-the-last")


def _little_learnt(card: ModelCard) -> Iterator[Finding]:
    """Name silos that learnt from next to nothing, and what that counts."""
    if card.unlabelled != "PseudoLabelled":
        return
    learnt_from = [(silo, *_trained_images(silo)) for silo in card.silos]
    little = [(silo, learnt, of) for silo, learnt, of in learnt_from if of and learnt < NEXT_TO_NOTHING * of]
    if not little:
        return
    parts = [
        f"{silo.name}: {_of(learnt, of)} learnt from in its last round{_counting(silo)}" for silo, learnt, of in little
    ]
    more = f", and {len(little) - MOST_NAMED} more silos" if len(little) > MOST_NAMED else ""
    share = card.labelled_share
    divided = (
        f"; images without labels have {in_percent(1 - share)}% of the weight together, however few are learnt from"
        if share is not None and any(silo.labels != "None" for silo in card.silos)
        else ""
    )
    sentence = f"{'; '.join(parts[:MOST_NAMED])}{more}{divided}."
    yield Finding("LittleLearnt", sentence, f"{PAGE}#learnt-from-next-to-nothing")


def _trained_images(silo: SiloPart) -> tuple[int, int]:
    """Return of how many images a silo's last update was made, and how many it has."""
    labelled = silo.samples.get("labelled", 0)
    return labelled + silo.samples.get("selected", 0), labelled + silo.samples.get("unlabelled", 0)


def _of(learnt: int, images: int) -> str:
    return f"{learnt} image of {images} was" if learnt == 1 else f"{learnt or 'no'} images of {images} were"


def _counting(silo: SiloPart) -> str:
    return "" if silo.last_weight is None else f", and its update counts {in_percent(silo.last_weight)}%"


def _labels_missing(card: ModelCard) -> Iterator[Finding]:
    if card.unlabelled != "Unused":
        return
    idle = [silo.name for silo in card.silos if silo.labels == "None" or silo.samples.get("unlabelled", 0)]
    if idle:
        all_unlabelled = all(silo.labels == "None" for silo in card.silos if silo.name in idle)
        what = "The images" if all_unlabelled else "Images"
        sentence = (
            f"{what} of {list_some(idle)} have no labels, and nobody learns from them: the method uses labels alone."
        )
        yield Finding("LabelsMissing", sentence, f"{PAGE}#images-that-nobody-learns-from")


def _missed_rounds(card: ModelCard) -> Iterator[Finding]:
    missed = [(silo.name, silo.missed) for silo in card.silos if silo.missed]
    if missed:
        parts = [f"{name} missed {count} of {card.rounds}" for name, count in missed]
        sentence = f"Rounds were committed without a silo: {list_some(parts)}."
        yield Finding("RoundsMissed", sentence, f"{PAGE}#rounds-without-a-silo")


def _patients(card: ModelCard) -> Iterator[Finding]:
    if card.scored_patients == 0:
        sentence = "Patients were not compared, since no table of the scored images names any: one may be trained on and scored, too."
        yield Finding("PatientsNotCompared", sentence, f"{PAGE}#patients-not-compared")


def _first(metrics: Mapping[str, float]) -> str | None:
    """Return the most telling metric."""
    return next((name for name in metric_order() if name in metrics and name != LOSS), None)


def _words(metric: str) -> str:
    return "macro AUROC" if metric in ("macro_auc", "macro_auroc") else metric.replace("_", " ")


def _article(metric: str) -> str:
    return f"{'an' if metric == 'accuracy' else 'a'} {_words(metric)}"


def _difference(metric: str, reached: float, other: float) -> str:
    better = improvement(metric, reached, other)
    if abs(better) <= SAME:
        return "level with"
    apart = f"{100 * abs(better):.1f}"
    if not in_points(metric):
        return f"{apart} % {'better' if better > 0 else 'worse'} than"
    return f"{apart} {'point' if apart == '1.0' else 'points'} {'above' if better > 0 else 'below'}"


def _join(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
