"""FedMatch with labels at the silos, and with labels at the server (methods reference, 6.6)."""

from dataclasses import replace

from anchorage.api.method import Local, UnlabelledWork
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.helpers import Helpers
from anchorage.pieces.server_training.anchors import Anchors
from anchorage.pieces.weighting.uniform import Uniform

_PLAIN = Sgd(learning_rate="0.001", momentum="0", weight_decay="0")
_LOCAL = Local(epochs=1, batch_size=10, optimiser=_PLAIN, unlabelled=UnlabelledWork(batch_size=100))

FEDMATCH = Preset(
    slots=slots("FedMatch", pseudo_labels=Helpers(threshold="0.75"), weighting=Uniform(), local=_LOCAL),
    summary="Labels train one part of every weight; agreement with similar silos' models on unlabelled images trains a sparse second part.",
    setting="some labels at every silo",
    labels=("All", "Partial", "None"),
    reveals_to_server="every silo's answer to an image of noise, and which of its weights hardly changed",
    reveals_to_silos="the unsupervised parts of other silos' models: with the shared part known, single silos' models",
    source="Jeong et al. 2021 (FedMatch), Algorithm 1; methods reference, 6.6 (KAT-K1)",
)

FEDMATCH_SERVER = replace(
    FEDMATCH,
    slots=slots(
        "FedMatchServer",
        pseudo_labels=Helpers(threshold="0.75", sparsity="0.00001", smallest="0.00001", smallest_change="0.00001"),
        server_training=Anchors(
            pretrain_epochs=5,
            pretrain_learning_rate="0.001",
            optimiser=Sgd(learning_rate="0.001", momentum="0", weight_decay="0"),
        ),
        weighting=Uniform(),
        local=_LOCAL,
    ),
    summary="FedMatch where the labels are at the server: it trains the first part of every weight, the silos the second.",
    setting="labels at the server only",
    labels=("None",),
    source="Jeong et al. 2021 (FedMatch), Algorithm 2; methods reference, 6.6 (KAT-K1)",
)
