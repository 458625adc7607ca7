"""FedAvg with an optimiser at the server: FedAvgM, FedAdagrad, FedAdam, FedYogi (methods reference, 6.2)."""

from anchorage.methods.preset import Preset, slots
from anchorage.pieces.server_step.adagrad import Adagrad
from anchorage.pieces.server_step.adam import Adam
from anchorage.pieces.server_step.momentum import Momentum
from anchorage.pieces.server_step.yogi import Yogi
from anchorage.pieces.slots import ServerStep
from anchorage.pieces.weighting.sample_count import SampleCount


def _fedopt(name: str, step: ServerStep, summary: str, source: str) -> Preset:
    return Preset(
        slots=slots(name, weighting=SampleCount(), server_step=step),
        summary=summary,
        setting="labels at every silo that trains",
        labels=("All", "Partial"),
        reveals_to_server="the number of training images",
        reveals_to_silos="nothing beyond the global model",
        source=f"{source}; methods reference, 6.2",
    )


_REDDI = "Reddi et al. 2021, Algorithm 2 (v0 = 0)"

FEDAVGM = _fedopt(
    "FedAvgM",
    Momentum(learning_rate="0.1", momentum="0.9"),
    "FedAvg with momentum at the server.",
    "Hsu et al. 2019",
)
FEDADAGRAD = _fedopt(
    "FedAdagrad",
    Adagrad(learning_rate="0.1", momentum="0"),
    "FedAvg with Adagrad at the server.",
    _REDDI,
)
FEDADAM = _fedopt(
    "FedAdam",
    Adam(learning_rate="0.1", momentum="0.9", second_momentum="0.99"),
    "FedAvg with Adam at the server, without bias correction as in the paper.",
    _REDDI,
)
FEDYOGI = _fedopt(
    "FedYogi",
    Yogi(learning_rate="0.1", momentum="0.9", second_momentum="0.99"),
    "FedAvg with Yogi at the server, whose second moment grows slowly.",
    _REDDI,
)
