"""Distributed validation weighting, synchronous or asynchronous (methods reference, 6.14)."""

from dataclasses import replace

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
    reveals_to_server="correct and total on the validation images; with another metric the confusion matrix, so the class histogram",
    reveals_to_silos="each silo's individual model goes to every other silo, which scores it",
    source="Stripelis et al. (Metis), Algorithm 1 and section IV; methods reference, 6.14",
    results="",
    advice=(
        "For labelled hospitals of very different quality: what counts is not how many images a silo has but how "
        "well its model does on everybody's validation images. Every silo's model is sent to every other silo to "
        "be scored, which costs as many further transfers as there are silos and shows each hospital the others' "
        "models: agree on that first. With the default metric the score is pooled accuracy, which separates silos "
        "only a little."
    ),
)

_REVEALS_COUNTS = "a confusion matrix on the validation images per update, so each silo's class histogram"

DVW_GMEAN = replace(
    DVW,
    slots=slots("DVWGMean", weighting=Dvw(metric="GeometricMean"), local=METIS_LOCAL),
    summary="DVW by the geometric mean of the classes' recalls.",
    reveals_to_server=_REVEALS_COUNTS,
    results="",
    advice=(
        "DVW where rare classes must count as much as frequent ones. A model that misses one class altogether counts "
        "nothing, which is common while hospitals hold different classes: where no model counts, a round takes their "
        "plain mean, and an asynchronous federation keeps its model."
    ),
)

DVW_MCC = replace(
    DVW,
    slots=slots("DVWMCC", weighting=Dvw(metric="MCC"), local=METIS_LOCAL),
    summary="DVW by Matthews' correlation of true and predicted classes.",
    reveals_to_server=_REVEALS_COUNTS,
    results="",
    advice=(
        "DVW that does not reward models for guessing the most frequent class: a model without any skill counts "
        "nothing, and one worse than chance no less. Where no model counts, a round takes their plain mean, and an "
        "asynchronous federation keeps its model."
    ),
)
