"""FedAvg, synchronous or asynchronous, and FedProx (methods reference, 6.1, 6.2, 6.14)."""

from dataclasses import replace

from anchorage.methods.preset import Preset, slots
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

FEDPROX = replace(
    FEDAVG,
    slots=slots("FedProx", weighting=SampleCount(), regulariser=Proximal(mu="0.01")),
    summary="FedAvg with a penalty on the squared distance to the received model.",
    source="Li et al. 2020, loss CE + mu/2 ||theta - theta_t||^2 over trainable parameters; methods reference, 6.2",
)
