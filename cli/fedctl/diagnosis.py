"""What the last rounds of a run say about its method, in words: pseudo-labels and weights (of the whole run: `anchorage.api.verdict`)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from anchorage.api.errors import AnchorageError
from anchorage.api.fact import Fact
from anchorage.api.method import MethodSpec
from anchorage.api.metric_names import PSEUDO_LABEL_ACCURACY
from anchorage.api.silo_state import SiloState
from anchorage.api.text import in_percent, list_some
from anchorage.methods import resolve
from fedctl.source import Round

LAST = 3
"""Rounds that are looked at: the first ones of a run are often different."""
NEARLY_ALL = 0.995
RIGHT, WRONG = 0.95, 0.75
"""Shares of right ones among accepted pseudo-labels from which on they are fine, and below which they mislead."""
FEW = 0.1
"""Share of accepted pseudo-labels below which more of them would help, where those are right."""


def diagnose(method: MethodSpec, rounds: Sequence[Round]) -> list[str]:
    """Return what should be looked at, one line each.

    Parameters
    ----------
    method : MethodSpec
        What was run.
    rounds : sequence of mapping
        Committed rounds as the journal has them, ascending.

    Raises
    ------
    AnchorageError
        No preset has the method's name.
    """
    hints = [
        silo
        for entry in rounds[-LAST:]
        for silo in entry["silos"]
        if silo["state"] in (SiloState.COUNTED, SiloState.INACTIVE)
    ]
    by_silo: dict[str, list[Round]] = {}
    for silo in hints:
        by_silo.setdefault(silo["name"], []).append(silo)
    labelled_by_model = Fact.PSEUDO_LABELS in resolve(method).facts()
    return [*(_acceptance(by_silo) if labelled_by_model else ()), *_weights(by_silo)]


def notes(document: Mapping[str, Any], rounds: Sequence[Round]) -> list[str]:
    """Return what `diagnose` does for a Federation as JSON values; nothing of one whose method cannot be read here, such as another package's."""
    try:
        return diagnose(MethodSpec.model_validate(document["spec"]["method"]), rounds)
    except (ValidationError, AnchorageError):
        return []


def acceptance_of(silo: Round) -> float | None:
    """Return the share of a silo's unlabelled images that were accepted in a round; None where it has none."""
    samples = silo["samples"]
    return samples.get("selected", 0) / samples["unlabelled"] if samples.get("unlabelled") else None


def accuracy_of(silo: Round) -> float | None:
    """Return the share of a silo's accepted pseudo-labels that were right in a round; None where nobody knows (outside of simulations)."""
    share: float | None = silo.get("metrics", {}).get(PSEUDO_LABEL_ACCURACY)
    return share


def _acceptance(by_silo: Mapping[str, Sequence[Round]]) -> Iterator[str]:
    accepted, right = _known_shares(by_silo, acceptance_of), _known_shares(by_silo, accuracy_of)
    everything = [name for name, each in accepted.items() if min(each) >= NEARLY_ALL]
    nothing = [name for name, each in accepted.items() if max(each) == 0]
    if accepted and len(everything) == len(accepted) and not (right and min(map(min, right.values())) >= RIGHT):
        wrong = f", of which {_span(right)} are right" if right else ", wrong ones too"
        yield f"every silo accepts all its pseudo-labels{wrong}: the threshold sorts nothing out; raise it"
    elif mistaken := {name: each for name, each in right.items() if max(each) < WRONG}:
        wrong = f"only {_span(mistaken)} of the accepted pseudo-labels are right"
        yield f"{list_some(list(mistaken))}: {wrong}; raise the threshold, or train longer at the server first"
    timid = {
        name: each for name, each in right.items() if min(each) >= RIGHT and 0 < max(accepted.get(name, [1])) < FEW
    }
    if timid:
        yield f"{list_some(list(timid))}: {_span(timid)} of the accepted pseudo-labels are right, but few are accepted; lower the threshold"
    if nothing:
        consequence = "no pseudo-label is accepted, so nothing is learnt there"
        yield f"{list_some(nothing)}: {consequence}; lower the threshold, or train longer at the server first"


def _known_shares(
    by_silo: Mapping[str, Sequence[Round]], share_of: Callable[[Round], float | None]
) -> dict[str, list[float]]:
    """Return each silo's shares of the rounds that have one; silos without any are left out."""
    known_shares = {name: [s for part in parts if (s := share_of(part)) is not None] for name, parts in by_silo.items()}
    return {name: shares for name, shares in known_shares.items() if shares}


def _span(shares: Mapping[str, Sequence[float]]) -> str:
    """Write the lowest and the highest of shares, such as ``55 % to 60 %``."""
    low, high = (f"{in_percent(end(map(end, shares.values())))} %" for end in (min, max))
    return low if low == high else f"{low} to {high}"


def _weights(by_silo: Mapping[str, Sequence[Round]]) -> Iterator[str]:
    nothing = min(0.0005, 0.1 / max(1, len(by_silo)))
    reasons: dict[str, list[str]] = {}
    for name, parts in by_silo.items():
        counted = [part for part in parts if part["state"] == SiloState.COUNTED]
        if counted and all(part["weight"] < nothing for part in counted):
            share = acceptance_of(counted[-1])
            why = (
                "it accepts no pseudo-label"
                if share == 0
                else "its images or pseudo-labels are few, or unlike the anchors, beside those of others"
            )
            reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        yield f"{list_some(names)}: its weight is 0.000: {why}"
