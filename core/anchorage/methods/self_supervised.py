"""Methods that learn an encoder from images without labels: FedBarlow, FedCLR, FedSimSiam and Orchestra (methods reference, 6.13; N8)."""

from anchorage.api.method import Local
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.self_supervised.barlow import Barlow
from anchorage.pieces.self_supervised.clusters import Clusters
from anchorage.pieces.self_supervised.simsiam import SimSiam
from anchorage.pieces.weighting.sample_count import SampleCount
from anchorage.pieces.weighting.step_count import StepCount

_BARLOW = Local(
    epochs=1,
    batch_size=64,
    optimiser=Sgd(learning_rate="0.008", momentum="0.9", weight_decay="0.0005", schedule="WarmUpCosine"),
)

FEDBARLOW = Preset(
    slots=slots(
        "FedBarlow", self_supervised=Barlow(scale="0.01", off_diagonal="0.0051"), weighting=SampleCount(), local=_BARLOW
    ),
    summary="Silos learn features that two views of an image share, and no two features say the same; no label is looked at.",
    setting="no labels",
    labels=("None", "All", "Partial"),
    protocols=("Synchronous", "Asynchronous"),
    reveals_to_server="the number of images",
    reveals_to_silos="nothing beyond the global model",
    source="SemiAnAgg paper, appendix A (FedBarlow), after Barlow Twins; methods reference, 6.13",
    results="",
)

FEDCLR = Preset(
    slots=slots(
        "FedCLR",
        self_supervised=Barlow(scale="0.01", off_diagonal="0.0051", online_classifier="Enabled"),
        weighting=SampleCount(),
        local=_BARLOW,
    ),
    summary="FedBarlow with a linear classifier beside it, which the silos with labels train on features that it does not change.",
    setting="labels at some silos, or partially at all",
    labels=("None", "All", "Partial"),
    protocols=("Synchronous",),
    reveals_to_server="the number of images, and of labelled ones; the classifier's change carries label information",
    reveals_to_silos="nothing beyond the global model",
    source="SemiAnAgg paper, appendix A (FedCLR, online classifier); methods reference, 6.13",
    results="",
)

ORCHESTRA = Preset(
    slots=slots(
        "Orchestra",
        self_supervised=Clusters(),
        weighting=StepCount(),
        local=Local(
            epochs=10, batch_size=16, optimiser=Sgd(learning_rate="0.003", momentum="0.9", weight_decay="0.0001")
        ),
    ),
    summary="Silos learn to put two views of an image into the same of 128 clusters that the server finds among theirs.",
    setting="no labels",
    labels=("None", "All", "Partial"),
    protocols=("Synchronous",),
    reveals_to_server="the number of steps, and 16 cluster means of features: with few images, nearly features of images",
    reveals_to_silos="128 cluster means of the federation's features",
    source="Lubana et al. 2022 (Orchestra), as read in its public code; methods reference, 6.13",
    results="",
)

FEDSIMSIAM = Preset(
    slots=slots(
        "FedSimSiam",
        self_supervised=SimSiam(),
        weighting=SampleCount(),
        local=Local(
            epochs=5,
            batch_size=128,
            optimiser=Sgd(learning_rate="0.032", momentum="0.9", weight_decay="0.0005", schedule="Cosine"),
        ),
    ),
    summary="Silos learn features by which each of two views of an image predicts the other; no label is looked at.",
    setting="no labels",
    labels=("None", "All", "Partial"),
    protocols=("Synchronous", "Asynchronous"),
    reveals_to_server="the number of images, and how widely their projections are spread",
    reveals_to_silos="nothing beyond the global model",
    source="SimSiam with FedAvg, as read in EasyFL's public code; newer methods reference, N8",
    results="",
)
