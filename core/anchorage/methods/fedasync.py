"""FedAsync: every arriving update is mixed into the model (methods reference, 6.14)."""

from anchorage.methods.dvw import METIS_LOCAL
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.regulariser.proximal import Proximal
from anchorage.pieces.server_step.mix import Mix
from anchorage.pieces.weighting.uniform import Uniform

FEDASYNC = Preset(
    slots=slots(
        "FedAsync",
        regulariser=Proximal(mu="0.005"),
        weighting=Uniform(),
        server_step=Mix(alpha="0.6"),
        local=METIS_LOCAL,
    ),
    summary="Every arriving update is mixed into the server's model with the same weight.",
    setting="labels at every silo that trains",
    labels=("All", "Partial"),
    protocols=("Asynchronous",),
    reveals_to_server="each update by itself, without a round's others to hide among",
    reveals_to_silos="nothing beyond the global model",
    source="Xie et al. 2019, Algorithm 1 with s(t - tau) = 1; methods reference, 6.14",
)
