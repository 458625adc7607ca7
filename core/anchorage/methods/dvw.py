"""Distributed validation weighting, synchronous or asynchronous (methods reference, 6.14)."""

from anchorage.api.method import Local
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.weighting.dvw import Dvw

METIS_LOCAL = Local(epochs=4, batch_size=100, optimiser=Sgd(learning_rate="0.05", momentum="0.75", weight_decay="0"))
"""Metis' local work on CIFAR-10 (methods reference, 5.3)."""

DVW = Preset(
    slots=slots("DVW", weighting=Dvw(metric="MicroF1", validation_percent=5), local=METIS_LOCAL),
    summary="Each silo's model counts by its score on the validation images of all silos.",
    setting="labels at every silo",
    labels=("All", "Partial"),
    protocols=("Synchronous", "Asynchronous"),
    reveals_to_server=(
        "correct and total on the validation images; with another metric the confusion matrix, so the class histogram; of several findings per image "
        "histograms of their probabilities, of a segmentation sums of Dice by class"
    ),
    reveals_to_silos="each silo's individual model goes to every other silo, which scores it",
    source="Stripelis et al. (Metis), Algorithm 1 and section IV; methods reference, 6.14",
    by_task={
        "multiLabel": {"weighting": Dvw(metric="MacroAUROC", validation_percent=5)},
        "segmentation": {"weighting": Dvw(metric="Dice", validation_percent=5)},
    },
)
