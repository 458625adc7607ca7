"""FedAvg, synchronous or asynchronous, and FedProx (methods reference, 6.1, 6.2, 6.14)."""

from dataclasses import replace

from anchorage.methods.preset import Preset, slots
from anchorage.pieces.local_loss.balanced_softmax import BalancedSoftmax
from anchorage.pieces.regulariser.proximal import Proximal
from anchorage.pieces.weighting.sample_count import SampleCount

FEDAVG = Preset(
    slots=slots("FedAvg", weighting=SampleCount()),
    summary="Average of the silos' models, weighted by their number of images.",
    setting="labels at every silo that trains",
    labels=("All", "Partial"),
    protocols=("Synchronous", "Asynchronous"),
    reveals_to_server="the number of training images",
    reveals_to_silos="nothing beyond the global model",
    source="McMahan et al. 2017, Algorithm 1; asynchronous: Stripelis et al. (Metis), community cache; methods reference, 6.1 and 6.14",
)

FEDPROX = Preset(
    slots=slots("FedProx", weighting=SampleCount(), regulariser=Proximal(mu="0.01")),
    summary="FedAvg with a penalty on the squared distance to the received model.",
    setting="labels at every silo that trains",
    labels=("All", "Partial"),
    protocols=("Synchronous", "Asynchronous"),
    reveals_to_server="the number of training images",
    reveals_to_silos="nothing beyond the global model",
    source="Li et al. 2020, loss CE + mu/2 ||theta - theta_t||^2 over trainable parameters; methods reference, 6.2",
)

BALANCED_SOFTMAX = replace(
    FEDAVG,
    slots=slots("BalancedSoftmax", local_loss=BalancedSoftmax(), weighting=SampleCount()),
    summary="FedAvg with balanced softmax: silos learn as if classes were equally frequent (logit adjustment).",
    source="Ren et al. 2020 (balanced softmax); methods reference, 6.12",
)
