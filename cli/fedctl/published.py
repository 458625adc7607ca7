"""Results that the methods' papers report, bundled as ``published.csv`` (methods reference, section 8)."""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from anchorage.methods.variants import variants_of


@dataclass(frozen=True, slots=True)
class PublishedResult:
    """One number of a paper.

    Parameters
    ----------
    source : str
        Paper and table, such as ``FedAnchor review Table 1``.
    dataset, setting, model, method : str
        As the paper calls them.
    metric : str
        As it is called here, such as ``accuracy``.
    value, std : str
        Fractions of 1; no standard deviation where the paper has none.
    """

    source: str
    dataset: str
    setting: str
    model: str
    method: str
    metric: str
    value: str
    std: str

    @property
    def reached_at(self) -> str:
        """When the paper's own machines had it, such as ``10,000 s``; empty where rounds tell.

        Methods reference, 8.9: such times compare with nothing.
        """
        time = re.search(r"\bat ([\d,]+ s)$", self.setting)
        return time[1] if time else ""

    @property
    def networks(self) -> tuple[str, ...]:
        """The paper's network by the names of `spec.model.network`; empty where our text of the paper names none."""
        if self.model == _OF_DATASET:
            return NETWORKS["2-CNN (MOON)" if self.dataset == "CIFAR-10" else "ResNet-50"]
        return NETWORKS.get(self.model, ())

    @property
    def silos(self) -> int | None:
        """How many clients or machines took part; None where the setting does not say."""
        of_both = re.search(r"(\d+) labelled \+ (\d+) unlabelled", self.setting)
        if match := of_both or re.search(r"(\d+) GPU(?: \+ (\d+) CPU)?", self.setting):
            return sum(int(number) for number in match.groups() if number)
        return self._number(r"(\d+) (?:partially labelled )?(?:clients|parties)\b")

    @property
    def rounds(self) -> int | None:
        """After how many rounds it was reached; None where the setting does not say."""
        return self._number(r"(\d+) rounds\b")

    @property
    def anchors(self) -> int | None:
        """How many anchors the server had; None where the setting does not say."""
        return self._number(r"(\d+) anchors\b")

    @property
    def alpha(self) -> float | None:
        """Concentration of the Dirichlet distribution that divided the images; None where the setting does not say."""
        match = re.search(r"\bDir\(([\d.]+)\)", self.setting)
        return float(match[1]) if match else None

    def _number(self, pattern: str) -> int | None:
        match = re.search(pattern, self.setting)
        return int(match[1]) if match else None

    @property
    def figure(self) -> str:
        """The value with its standard deviation, if the paper has one."""
        return f"{float(self.value):.4f}" + (f" ± {float(self.std):.4f}" if self.std else "")

    def __str__(self) -> str:
        return self.figure + (f" (at {self.reached_at} of its machines)" if self.reached_at else "")


COLUMNS = ("source", "dataset", "setting", "model", "method", "metric")
"""By which a result is found."""

_OF_DATASET = "2-CNN (CIFAR-10) / ResNet-50"
NETWORKS: Mapping[str, tuple[str, ...]] = {
    "ResNet-18": ("ResNet18", "ResNet18ImageNet", "torchvision/resnet18", "timm/resnet18"),
    "ResNet-50": ("torchvision/resnet50", "timm/resnet50"),
    "ResNet-9": ("ResNet9",),
    "WRN-28-2": ("WideResNet28x2",),
    "2-CNN": ("TutorialCnn",),
    "2-CNN (LEAF)": ("LeafCnn",),
    "2-CNN (MOON)": ("MoonCnn",),
}
"""What the papers' networks are called here."""
CLASSES: Mapping[str, int] = {
    "CIFAR-10": 10,
    "CIFAR-100": 100,
    "CIFAR-100-LT": 100,
    "SVHN": 10,
    "ISIC-18": 7,
    "Tiny-ImageNet": 200,
    "FEMNIST": 62,
    "ExtendedMNIST ByClass": 62,
}
"""How many classes the papers' data sets have."""

NAMES: Mapping[str, tuple[str, ...]] = {
    "FedAvg": ("FedAvg", "none (FedAvg)"),
    "UpperBound": ("FedAvg (upper bound)", "FedAvg (upper bound, fully supervised)"),
    "LowerBound": ("FedAvg (lower bound)", "FedAvg (lower bound, labelled only)"),
    "MOON": ("MOON", "MOON (mu=1)", "MOON (mu=10)"),
    "MOONL2": ("l2 norm second term",),
    "GlobalMixup": ("Global Mixup",),
    "FedProxFedMix": ("FedProx + FedMix",),
    "FedProxNaiveMix": ("FedProx + NaiveMix",),
    "FedProxLocalMix": ("FedProx + LocalMix",),
    "FedAvgSL": ("FedAvg-SL",),
    "FedProxSL": ("FedProx-SL",),
    "FedAvgFixMatch": ("FedAvg-FixMatch",),
    "FedProxFixMatch": ("FedProx-FixMatch",),
    "FedAvgUDA": ("FedAvg-UDA",),
    "FedProxUDA": ("FedProx-UDA",),
    "FedAvgFixMatchAlternate": ("FedAvg+FixMatch",),
    "SemiFLNoMixup": ("SemiFL+no mixup",),
    "FedMatchServer": ("FedMatch",),
    "FedAnchor": ("FedAnchor", "FedAnchor(client mixup)"),
    "FedAnchorMix": ("FedAnchor (mix)", "FedAnchor(client & server mixup)"),
    "FedAnchorNoMixup": ("FedAnchor(no mixup)",),
    "FedAnchorServerMixup": ("FedAnchor(server mixup)",),
    "FedAnchorNoContrastive": ("FedAnchor(w/o contr loss)",),
    "FedAvgSemi": ("FedAvg-Semi",),
    "RSCFed": ("RSCFed", "RSCFed (as published)"),
    "CBAFed": ("CBAFed", "CBAFed (as published)"),
    "CBAFedLowerBound": ("CBAFed (lower bound)",),
    "FedRoDDual": ("FedRoD Dual",),
    "SSILCDM": ("SSIL-CDM w/o FedAvg-Semi",),
    "SSILCDMFedAvgSemi": ("SSIL-CDM w/ FedAvg-Semi",),
    "FedBarlow": ("FedBarlow (linear, all labels)", "FedBarlow (linear, labelled client only)"),
    "FedCLR": ("FedBarlow (FedCLR)", "Orchestra (FedCLR)"),
    "Orchestra": ("Orchestra (linear, all labels)", "Orchestra (linear, labelled client only)"),
    "AsyncDVW": ("AsyncDVW(na)",),
    "AsyncDVWAdaptive": ("AsyncDVW(a)",),
    "FedAsyncPolynomial": ("FedAsync+Poly",),
}
"""What the papers call a method or variant; one that is not here they call by its own name."""


@cache
def published_results() -> tuple[PublishedResult, ...]:
    """Return every bundled result, in the order of the papers; none in an image, which leaves the file out."""
    file = files("fedctl").joinpath("published.csv")
    if not file.is_file():
        return ()
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return tuple(PublishedResult(**row) for row in csv.DictReader(lines))


def published_of(preset: str) -> tuple[PublishedResult, ...]:
    """Return what the papers report of a method and its variants, in their order, but for what our text of them lost."""
    names = {known for name in (preset, *variants_of(preset)) for known in NAMES.get(name, (name,))}
    return tuple(result for result in published_results() if result.value and result.method in names)


def find_published(wanted: Mapping[str, str]) -> PublishedResult | None:
    """Return the result with these values of `COLUMNS`; None where the papers have none, or the text of one that we have lost it.

    Raises
    ------
    ValueError
        There is no such column, no result at all has one of the values (of any column but the method), or several results fit.
    """
    results = published_results()
    for column, value in wanted.items():
        if column not in COLUMNS:
            raise ValueError(f"found the column {column}, allowed are {', '.join(COLUMNS)}")
        known = dict.fromkeys(str(getattr(result, column)) for result in results)
        if value not in known and column != "method":
            raise ValueError(f'found {column} "{value}", the published results have {"; ".join(known)}')
    matches = [r for r in results if r.value and all(getattr(r, column) == value for column, value in wanted.items())]
    if len(matches) > 1:
        open_columns = [c for c in COLUMNS if len({getattr(r, c) for r in matches}) > 1]
        choices = "; ".join(
            f"{c}: {', '.join(dict.fromkeys(getattr(r, c) for r in matches))}" for c in open_columns[:2]
        )
        raise ValueError(f"found {len(matches)} published results; choose one by {choices}")
    return matches[0] if matches else None
