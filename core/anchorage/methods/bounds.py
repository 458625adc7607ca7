"""What a method is held against: upper and lower bounds, and every party on its own (methods reference, 6.1, 6.5)."""

from anchorage.methods.preset import Labels, Preset, slots
from anchorage.pieces.regulariser.proximal import Proximal
from anchorage.pieces.server_step.keep import Keep
from anchorage.pieces.slots import Regulariser
from anchorage.pieces.weighting.sample_count import SampleCount


def _bound(
    name: str,
    summary: str,
    setting: str,
    labels: tuple[Labels, ...],
    *,
    source: str = "federated averaging, McMahan et al. 2017; methods reference, 6.1",
    pull: Regulariser | None = None,
    every_label: bool = False,
) -> Preset:
    return Preset(
        slots=slots(name, regulariser=pull, weighting=SampleCount()),
        summary=summary,
        setting=setting,
        labels=labels,
        protocols=("Synchronous", "Asynchronous"),
        reveals_to_server="the number of training images",
        reveals_to_silos="nothing beyond the global model",
        source=source,
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

_SL_SOURCE = "FedMatch slides, upper bound {}; methods reference, 6.5"
_SL_SETTING = "labels at every silo, or at the server too (serverTraining: anchors)"
FEDAVG_SL = _bound(
    "FedAvgSL",
    "FedAvg with all labels: the upper bound of the consistency baselines.",
    _SL_SETTING,
    ("All",),
    source=_SL_SOURCE.format("FedAvg-SL"),
    every_label=True,
)
FEDPROX_SL = _bound(
    "FedProxSL",
    "FedAvgSL with FedProx's penalty on the distance to the received model.",
    _SL_SETTING,
    ("All",),
    source=_SL_SOURCE.format("FedProx-SL"),
    every_label=True,
    pull=Proximal(mu="0.01"),
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
