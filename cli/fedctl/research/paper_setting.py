"""In what the setting of a published number differs from that of a run beside which it stands."""

from collections.abc import Iterator
from dataclasses import dataclass

from anchorage.api.data import DataSection, ServerData, SiloData
from fedctl.published import CLASSES, PublishedResult
from fedctl.research.results import Results

ALWAYS = ("network", "silos", "rounds", "images")
"""What is named even where the paper's setting does not tell it: then as unknown."""
DIRICHLET = ("PerClient", "PerClass", "PerClassCapped")
"""Recipes of partitions that draw by a Dirichlet distribution."""


@dataclass(frozen=True, slots=True)
class PaperSetting:
    """A paper's setting beside a run's."""

    differs: tuple[str, ...]
    """What is known to be different."""
    unknown: tuple[str, ...]
    """What the bundled table of published results, or the run's documents, do not tell."""

    def __str__(self) -> str:
        parts = {"differs": self.differs, "unknown": self.unknown}
        return (
            "; ".join(f"{word}: {', '.join(names)}" for word, names in parts.items() if names) or "no known difference"
        )


def compare_settings(published: PublishedResult, results: Results) -> PaperSetting:
    """Compare what is known of a published result's setting with a run's documents and rounds.

    Parameters
    ----------
    published : PublishedResult
        The result.
    results : Results
        Those of the run.
    """
    alike = dict(_aspects(published, results))
    differs = tuple(name for name, same in alike.items() if same is False)
    return PaperSetting(differs, tuple(name for name, same in alike.items() if same is None and name in ALWAYS))


def _aspects(published: PublishedResult, results: Results) -> Iterator[tuple[str, bool | None]]:
    """Yield aspects of a setting, and whether they are the same; None: not known."""
    spec = results.federation.spec
    yield "network", spec.model.network in published.networks if published.networks else None
    yield "silos", _same(published.silos, len(results.silos))
    yield "rounds", _same(published.rounds, min(seed.rounds[-1].round for seed in results.seeds))
    yield "images", _same_images(published.dataset, results)
    yield "anchors", _same_anchors(published.anchors, spec.anchor_data)
    yield "partition", _same_alpha(published.alpha, results)


def _same(paper: int | None, ours: int) -> bool | None:
    return None if paper is None else paper == ours


def _same_anchors(paper: int | None, ours: ServerData | None) -> bool | None:
    """Compare numbers of anchors; that of a whole folder, or of a list, is not in the documents."""
    return _same(paper, ours.anchors if ours else 0) if ours is None or ours.anchors else None


def _parts(results: Results) -> list[SiloData]:
    return [silo.spec.managed.data for silo in results.silos if silo.spec.managed]


def _same_images(dataset: str, results: Results) -> bool | None:
    """Compare a data set's name with those of the folders that a run reads, and its number of classes."""
    sections: list[DataSection] = [*_parts(results), *results.federation.spec.server_data.values()]
    if any(section.format == "Digits" for section in sections):
        return False
    if dataset in CLASSES and CLASSES[dataset] != len(results.federation.spec.task.outputs):
        return False
    return True if sections and all(_letters(s.claim_name or "") == _letters(dataset) for s in sections) else None


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _same_alpha(alpha: float | None, results: Results) -> bool | None:
    partitions = [section.partition for section in _parts(results)]
    if alpha is None or not partitions or any(part is None or part.recipe == "File" for part in partitions):
        return None
    return all(part.recipe in DIRICHLET and float(part.alpha) == alpha for part in partitions if part)
