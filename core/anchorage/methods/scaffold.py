"""SCAFFOLD (METHODS.md 6.2)."""

from anchorage.api.method import Local, Optimiser, Regulariser, ServerStep, Weighting
from anchorage.methods.preset import Preset, SideChannel, slots

SCAFFOLD = Preset(
    slots=slots(
        "SCAFFOLD",
        regulariser=Regulariser(type="ControlVariates"),
        weighting=Weighting(type="Uniform"),
        server_step=ServerStep(type="ControlVariates", learning_rate="1"),
        local=Local(
            epochs=10, batch_size=64, optimiser=Optimiser(learning_rate="0.01", momentum="0", weight_decay="0")
        ),
    ),
    summary="Every silo's gradients are corrected by how they have differed from the federation's.",
    setting="labels at every silo",
    labels=("All", "Partial"),
    protocols=("Synchronous",),
    down=(
        SideChannel("control.*", "as the trained parameters", "the federation's mean gradient, behind the model"),
        SideChannel("counted_updates", "[1] int64", "how many of the silo's updates counted"),
    ),
    up=(
        SideChannel(
            "control.*", "as the trained parameters", "how the silo's mean gradient changed, behind the update"
        ),
    ),
    reveals_to_server="the silo's mean gradient, a clearer view of its images than the weights are",
    reveals_to_silos="the federation's mean gradient",
    source="Karimireddy et al. 2020, Algorithm 1, option II; METHODS.md 6.2",
    results="",
    advice=(
        "For labelled silos that differ and take many plain steps per round: the correction keeps their models from drifting apart. "
        "It needs plain SGD at the silos (no momentum, no weight decay, no clipping), twice FedAvg's bytes in both directions, and "
        "silos that keep their state; in published comparisons it fails with one local epoch and with very deep models. Updates count "
        "alike, whatever the number of images. An update that came too late is undone at the silo, too."
    ),
)
