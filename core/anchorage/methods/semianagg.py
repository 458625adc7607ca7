"""FedAvg-Semi and SemiAnAgg: labels at some silos or partially at all (methods reference, 6.9)."""

from anchorage.api.method import Local, UnlabelledWork
from anchorage.methods.preset import OF_FINDINGS, Preset, slots
from anchorage.pieces.local_loss.balanced_binary import BalancedBinary
from anchorage.pieces.local_loss.balanced_softmax import BalancedSoftmax
from anchorage.pieces.local_loss.task_loss import TaskLoss
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.fixmatch import FixMatch
from anchorage.pieces.pseudo_labels.flexmatch import FlexMatch
from anchorage.pieces.pseudo_labels.per_finding import PerFinding
from anchorage.pieces.weighting.fedavg_semi import FedAvgSemi
from anchorage.pieces.weighting.semianagg import SemiAnAgg

_SUPERVISED = BalancedSoftmax()
_FLEXMATCH = FlexMatch(threshold="0.95", curriculum="Persist")
_LOCAL = Local(
    epochs=1,
    batch_size=64,
    optimiser=Sgd(learning_rate="0.03", momentum="0.9", weight_decay="0.0005", state="Persist"),
    unlabelled=UnlabelledWork(learning_rate="0.02", clip_norm="5"),
)

FEDAVG_SEMI = Preset(
    slots=slots(
        "FedAvgSemi",
        local_loss=_SUPERVISED,
        pseudo_labels=_FLEXMATCH,
        weighting=FedAvgSemi(labelled_share="0.5"),
        local=_LOCAL,
    ),
    summary="One half of the weight by labelled images, the other half by accepted pseudo-labels.",
    setting="labels at some silos, or partially at all",
    labels=("None", "All", "Partial"),
    reveals_to_server=f"the number of labelled images and of accepted pseudo-labels{OF_FINDINGS}",
    reveals_to_silos=f"nothing beyond the global model{OF_FINDINGS}",
    source="SemiAnAgg paper, baseline FedAvg-Semi; methods reference, 6.9",
    by_task={
        "multiLabel": {"local_loss": BalancedBinary(), "pseudo_labels": PerFinding()},
        "segmentation": {"local_loss": TaskLoss(), "pseudo_labels": FixMatch(threshold="0.95")},
    },
)

SEMIANAGG = Preset(
    slots=slots(
        "SemiAnAgg",
        local_loss=_SUPERVISED,
        pseudo_labels=_FLEXMATCH,
        weighting=SemiAnAgg(order="Paper", labelled_share="0.5"),
        local=_LOCAL,
    ),
    summary="FedAvg-Semi whose unlabelled half weighs silos by the distance of their features from those of a shared random anchor model.",
    setting="labels at some silos, or partially at all",
    labels=("None", "All", "Partial"),
    reveals_to_server=(
        "C similarity means; an absent class reveals that the silo has no confident image of it, or fewer than "
        "`weighting.semiAnAgg.minimumPerClass`"
    ),
    reveals_to_silos="nothing beyond the global model",
    source="SemiAnAgg, section 4.2 (r = 1 - w before normalising); methods reference, 6.9",
)
