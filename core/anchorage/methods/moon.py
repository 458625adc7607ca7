"""MOON and its L2 ablation (methods reference, 6.3)."""

from anchorage.api.method import Local
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.regulariser.feature_distance import FeatureDistance
from anchorage.pieces.regulariser.moon import Moon
from anchorage.pieces.slots import Regulariser
from anchorage.pieces.weighting.sample_count import SampleCount

_LOCAL = Local(epochs=10, batch_size=64, optimiser=Sgd(learning_rate="0.01", momentum="0.9", weight_decay="0.00001"))


def _moon(name: str, regulariser: Regulariser, summary: str, source: str) -> Preset:
    return Preset(
        slots=slots(name, regulariser=regulariser, weighting=SampleCount(), local=_LOCAL),
        summary=summary,
        setting="labels at every silo that trains",
        labels=("All", "Partial"),
        protocols=("Synchronous", "Asynchronous"),
        reveals_to_server="the number of training images",
        reveals_to_silos="nothing beyond the global model",
        source=f"{source}; methods reference, 6.3",
    )


MOON = _moon(
    "MOON",
    Moon(mu="5", temperature="0.5", previous_models=1),
    "FedAvg with a contrastive loss that keeps representations near the global model's and away from the silo's previous model's.",
    "Li et al. 2021 (MOON), loss CE + mu l_con",
)
MOON_L2 = _moon(
    "MOONL2",
    FeatureDistance(mu="0.1"),
    "MOON's ablation: the distance to the global model's representation instead of the contrast.",
    "Li et al. 2021 (MOON), L2 ablation",
)
