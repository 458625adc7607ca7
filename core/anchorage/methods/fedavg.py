"""FedAvg, synchronous or asynchronous, and FedProx (METHODS.md 6.1, 6.2, 6.14)."""

from anchorage.methods.preset import Preset, slots
from anchorage.spec.method import Regulariser, Weighting

FEDAVG = Preset(
    slots=slots("FedAvg", weighting=Weighting(type="SampleCount")),
    summary="Average of the silos' models, weighted by their number of images.",
    setting="labels at every silo that trains",
    labels=("All", "Partial"),
    protocols=("Synchronous", "Asynchronous"),
    down=(),
    up=(),
    reveals_to_server="the number of training images",
    reveals_to_silos="nothing beyond the community model",
    source="McMahan et al. 2017, Algorithm 1; asynchronous: Stripelis et al. (Metis), community cache; METHODS.md 6.1 and 6.14",
    results="METHODS.md 8.8",
)

FEDPROX = Preset(
    slots=slots(
        "FedProx", weighting=Weighting(type="SampleCount"), regulariser=Regulariser(type="Proximal", mu="0.01")
    ),
    summary="FedAvg with a pull of every silo towards the model it received.",
    setting="labels at every silo that trains",
    labels=("All", "Partial"),
    protocols=("Synchronous", "Asynchronous"),
    down=(),
    up=(),
    reveals_to_server="the number of training images",
    reveals_to_silos="nothing beyond the community model",
    source="Li et al. 2020, loss CE + mu/2 ||theta - theta_t||^2 over trainable parameters; METHODS.md 6.2",
    results="METHODS.md 8.5",
)
