"""Mean-augmented federated learning (MAFL): FedMix, NaiveMix and their bounds LocalMix and Global Mixup (methods reference, 6.4)."""

from anchorage.methods.preset import Preset, slots
from anchorage.pieces.input_mixing.fedmix import FedMix
from anchorage.pieces.input_mixing.global_mixup import GlobalMixup
from anchorage.pieces.input_mixing.local import LocalMix
from anchorage.pieces.input_mixing.naive import NaiveMix
from anchorage.pieces.slots import InputMixing
from anchorage.pieces.weighting.sample_count import SampleCount

_REVEALED = "the number of training images, and once: mean images and class shares of groups of the silo's images"
_TO_ALL = "mean images and class shares of groups of every silo's images, without the silos' names"


def _mafl(
    name: str,
    mixing: InputMixing,
    summary: str,
    *,
    to_server: str = _REVEALED,
    to_silos: str = _TO_ALL,
) -> Preset:
    return Preset(
        slots=slots(name, input_mixing=mixing, weighting=SampleCount()),
        summary=summary,
        setting="labels at every silo that trains",
        labels=("All", "Partial"),
        reveals_to_server=to_server,
        reveals_to_silos=to_silos,
        source="Yoon et al. 2021 (FedMix), Algorithms 1 and 2; methods reference, 6.4",
    )


FEDMIX = _mafl(
    "FedMix",
    FedMix(share="0.05", group_size=5),
    "Mixup with other silos' images, approximated to first order from means of groups of images.",
)
NAIVE_MIX = _mafl("NaiveMix", NaiveMix(share="0.05", group_size=5), "Mixup with means of other silos' images.")
LOCAL_MIX = _mafl(
    "LocalMix",
    LocalMix(share="0.05"),
    "Mixup within a silo's own batches.",
    to_server="the number of training images",
    to_silos="nothing beyond the global model",
)
GLOBAL_MIXUP = _mafl(
    "GlobalMixup",
    GlobalMixup(share="0.2"),
    "Mixup with other silos' raw images: a reference that protects nothing.",
    to_server="every labelled image",
    to_silos="every labelled image of every silo",
)
