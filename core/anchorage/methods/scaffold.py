"""SCAFFOLD (methods reference, 6.2)."""

from anchorage.api.method import Local
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.server_step.control_variates import ControlVariates
from anchorage.pieces.weighting.uniform import Uniform

SCAFFOLD = Preset(
    slots=slots(
        "SCAFFOLD",
        weighting=Uniform(),
        server_step=ControlVariates(learning_rate="1"),
        local=Local(epochs=10, batch_size=64, optimiser=Sgd(learning_rate="0.01", momentum="0", weight_decay="0")),
    ),
    summary="Control variates correct each silo's gradients by their difference from the federation's.",
    setting="labels at every silo",
    labels=("All", "Partial"),
    reveals_to_server="the silo's mean gradient, a clearer view of its images than the weights are",
    reveals_to_silos="the federation's mean gradient",
    source="Karimireddy et al. 2020, Algorithm 1, option II; methods reference, 6.2",
)
