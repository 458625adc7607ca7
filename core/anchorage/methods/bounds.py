"""What a method is held against: upper and lower bounds, and every party on its own (methods reference, 6.1)."""

from anchorage.methods.preset import Labels, Preset, slots
from anchorage.pieces.server_step.keep import Keep
from anchorage.pieces.weighting.sample_count import SampleCount


def _bound(
    name: str,
    summary: str,
    setting: str,
    labels: tuple[Labels, ...],
    *,
    every_label: bool = False,
) -> Preset:
    return Preset(
        slots=slots(name, weighting=SampleCount()),
        summary=summary,
        setting=setting,
        labels=labels,
        protocols=("Synchronous", "Asynchronous"),
        reveals_to_server="the number of training images",
        reveals_to_silos="nothing beyond the global model",
        source="federated averaging, McMahan et al. 2017; methods reference, 6.1",
        every_label=every_label,
    )


UPPER_BOUND = _bound(
    "UpperBound",
    "FedAvg with labels at every silo: the upper bound of semi-supervised methods.",
    "labels at every silo",
    ("All",),
    every_label=True,
)
LOWER_BOUND = _bound(
    "LowerBound",
    "FedAvg of only the silos with labels: the lower bound, which unlabelled silos must improve.",
    "labels at some silos; the others do not take part",
    ("None", "All", "Partial"),
)


SOLO = Preset(
    slots=slots("SOLO", weighting=SampleCount(), server_step=Keep()),
    summary="Every silo trains on its own; nothing is averaged.",
    setting="labels at every silo that trains",
    labels=("All", "Partial"),
    reveals_to_server="the silo's own model, and its number of training images",
    reveals_to_silos="nothing",
    source="MOON, baseline SOLO; methods reference, 6.1",
)
