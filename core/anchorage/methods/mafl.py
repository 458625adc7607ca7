"""Mean-augmented federated learning (MAFL): FedMix, NaiveMix, their bounds LocalMix and Global Mixup, and FedProx with each.

Methods reference, 6.4.
"""

from anchorage.methods.preset import Preset, slots
from anchorage.pieces.input_mixing.fedmix import FedMix
from anchorage.pieces.input_mixing.global_mixup import GlobalMixup
from anchorage.pieces.input_mixing.local import LocalMix
from anchorage.pieces.input_mixing.naive import NaiveMix
from anchorage.pieces.regulariser.proximal import Proximal
from anchorage.pieces.slots import InputMixing, Regulariser
from anchorage.pieces.weighting.sample_count import SampleCount

_PULL = Proximal(mu="0.01")

_FRAME = (
    "Every silo shuffles its labelled images once, averages them in groups of `inputMixing.groupSize` (what is left over joins "
    "the last group, so no mean is of one image), and sends the means before the first round. The server pools them on its disk "
    "and sends the pool to all, again only when it has grown. "
)
_SIZE = (
    "Means weigh as much as images: 10,000 of 32×32 pixels in three colours are a pool of 123 MB, which every silo downloads once. "
    "Beyond `inputMixing.maximumPoolMiB` the run ends with MeansTooLarge; a larger group size helps. "
)
_REVEALED = "the number of training images, and once: mean images and class shares of groups of the silo's images"
_TO_ALL = "mean images and class shares of groups of every silo's images, without the silos' names"


def _mafl(
    name: str,
    mixing: InputMixing,
    summary: str,
    *,
    pull: Regulariser | None = None,
    to_server: str = _REVEALED,
    to_silos: str = _TO_ALL,
) -> Preset:
    return Preset(
        slots=slots(name, input_mixing=mixing, regulariser=pull, weighting=SampleCount()),
        summary=summary,
        setting="labels at every silo that trains",
        labels=("All", "Partial"),
        reveals_to_server=to_server,
        reveals_to_silos=to_silos,
        source="Yoon et al. 2021 (FedMix), Algorithms 1 and 2; methods reference, 6.4",
    )


_FEDMIX = FedMix(share="0.05", group_size=5)
_NAIVE = NaiveMix(share="0.05", group_size=5)
_LOCAL = LocalMix(share="0.05")


FEDMIX = _mafl(
    "FedMix", _FEDMIX, "Mixup with other silos' images, approximated to first order from means of groups of images."
)
NAIVE_MIX = _mafl("NaiveMix", _NAIVE, "Mixup with means of other silos' images.")
LOCAL_MIX = _mafl(
    "LocalMix",
    _LOCAL,
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
FEDPROX_FEDMIX = _mafl("FedProxFedMix", _FEDMIX, "FedMix with FedProx's penalty.", pull=_PULL)
FEDPROX_NAIVE_MIX = _mafl("FedProxNaiveMix", _NAIVE, "NaiveMix with FedProx's penalty.", pull=_PULL)
FEDPROX_LOCAL_MIX = _mafl(
    "FedProxLocalMix",
    _LOCAL,
    "LocalMix with FedProx's penalty.",
    pull=_PULL,
    to_server="the number of training images",
    to_silos="nothing beyond the global model",
)
