"""FedCoPL's class budget over an ordinary network (methods reference, N6)."""

from anchorage.api.method import Local
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.class_budget import ClassBudget
from anchorage.pieces.server_training.anchors import Anchors
from anchorage.pieces.weighting.selected_count import SelectedCount

FEDCOPL_BUDGET = Preset(
    slots=slots(
        "FedCoPLBudget",
        pseudo_labels=ClassBudget(every=5),
        server_training=Anchors(pretrain_epochs=50, pretrain_learning_rate="0.03", epochs=5, views="Weak"),
        weighting=SelectedCount(),
        local=Local(epochs=10, batch_size=32, optimiser=Sgd(learning_rate="0.1", schedule="Cosine")),
    ),
    summary="Silos train on their most confident images of each class, as many as keep class shares equal over all silos together.",
    setting="labels at the server only; classes of even frequency",
    labels=("None",),
    reveals_to_server="each silo's confident guesses per class, every few rounds: nearly its class histogram",
    reveals_to_silos="the confident guesses per class, all silos together",
    source="FedCoPL, as read in its public code, without its prompts and vision-language model; methods reference, N6",
)
