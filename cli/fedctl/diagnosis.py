"""What the rounds of a run say about its method, in words: pseudo-labels, weights, and whether the federation pays."""

from collections.abc import Iterator, Mapping, Sequence

from anchorage.api.federation import Federation
from anchorage.api.metrics import ordered
from anchorage.methods import resolve
from fedctl.source import Round

LAST = 3
"""Rounds that are looked at: the first ones of a run are often different."""
NEARLY_ALL = 0.995
SHOWN = 5


def diagnose(
    federation: Federation, rounds: Sequence[Round], scores: Mapping[str, float], alone: Mapping[str, float] | None
) -> list[str]:
    """Return what should be looked at, one line each.

    Parameters
    ----------
    federation : Federation
        What was run.
    rounds : sequence of mapping
        Committed rounds as the journal has them, ascending.
    scores, alone : mapping of str to float
        Metrics of the last model, and of training on the anchors alone, on the same images.
    """
    found = [silo for entry in rounds[-LAST:] for silo in entry["silos"] if silo["state"] in ("Counted", "Inactive")]
    by_silo: dict[str, list[Round]] = {}
    for silo in found:
        by_silo.setdefault(silo["name"], []).append(silo)
    labelled_by_model = "pseudoLabels" in resolve(federation.spec.method).facts()
    lines = [*(_acceptance(by_silo) if labelled_by_model else ()), *_weights(by_silo)]
    if alone is not None:
        lines += _against(scores, alone)
    return lines


def acceptance_of(silo: Round) -> float | None:
    """Return the share of a silo's unlabelled images that were accepted in a round; None where it has none."""
    samples = silo["samples"]
    return samples.get("selected", 0) / samples["unlabelled"] if samples.get("unlabelled") else None


def _acceptance(by_silo: Mapping[str, Sequence[Round]]) -> Iterator[str]:
    shares = {name: [s for part in parts if (s := acceptance_of(part)) is not None] for name, parts in by_silo.items()}
    shares = {name: each for name, each in shares.items() if each}
    everything = [name for name, each in shares.items() if min(each) >= NEARLY_ALL]
    nothing = [name for name, each in shares.items() if max(each) == 0]
    if shares and len(everything) == len(shares):
        yield "every silo accepts all its pseudo-labels, wrong ones too: the threshold sorts nothing out; raise it"
    if nothing:
        yield f"{_named(nothing)}: no pseudo-label is accepted, so nothing is learnt there; lower the threshold, or train longer at the server first"


def _weights(by_silo: Mapping[str, Sequence[Round]]) -> Iterator[str]:
    for name, parts in by_silo.items():
        counted = [part for part in parts if part["state"] == "Counted"]
        if counted and all(part["weight"] < 0.0005 for part in counted):
            share = acceptance_of(counted[-1])
            why = (
                "it accepts no pseudo-label"
                if share == 0
                else "its images or pseudo-labels are few, or unlike the anchors, beside those of others"
            )
            yield f"{name}: its weight is 0.000: {why}"


def _against(scores: Mapping[str, float], alone: Mapping[str, float]) -> Iterator[str]:
    name = next((name for name in ordered(scores) if name in alone), None)
    if name is not None and name != "loss" and scores[name] < alone[name]:
        yield (
            f"the federation is below training on the anchors alone ({name.replace('_', ' ')} {scores[name]:.4f} against {alone[name]:.4f}): "
            "look at the pseudo-labels above, try more rounds, a lower learning rate at the silos, or another method (docs/choosing-a-method.md)"
        )


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
