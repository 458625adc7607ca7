"""RSCFed (methods reference, 6.10)."""

from anchorage.api.method import Local, UnlabelledWork
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.mean_teacher import MeanTeacher
from anchorage.pieces.weighting.sub_consensus import SubConsensus

RSCFED = Preset(
    slots=slots(
        "RSCFed",
        pseudo_labels=MeanTeacher(temperature="0.5", weight="0.02", divisor="BatchSize"),
        weighting=SubConsensus(groups=3, group_size=5, labelled_factor="6", scale="10000", labelled_scale="100"),
        local=Local(
            epochs=1,
            batch_size=64,
            optimiser=Sgd(learning_rate="0.03", momentum="0.9", weight_decay="0.0005", clip_norm="5", state="Persist"),
            unlabelled=UnlabelledWork(learning_rate="0.021"),
        ),
    ),
    summary="Mean of the models of random groups of silos; within a group, distant updates count less.",
    setting="labels at some silos, or partially at all",
    labels=("None", "All", "Partial"),
    reveals_to_server="individual updates and their distances, and the numbers of labelled and of all images",
    reveals_to_silos="nothing beyond the global model",
    source="Liang et al. 2022 (RSCFed), as read in its public code; methods reference, 6.10",
)
