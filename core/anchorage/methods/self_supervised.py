"""Methods that learn an encoder from images without labels (methods reference, 6.13; methods reference, N8)."""

from dataclasses import replace

from anchorage.api.method import Local
from anchorage.methods.preset import Preset, slots
from anchorage.pieces.aggregation.layer_cosine import LayerCosine
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.self_supervised.barlow import Barlow
from anchorage.pieces.self_supervised.clusters import Clusters
from anchorage.pieces.self_supervised.fed_byol import FedByol
from anchorage.pieces.self_supervised.fed_ema import FedEma
from anchorage.pieces.self_supervised.simsiam import SimSiam
from anchorage.pieces.weighting.sample_count import SampleCount
from anchorage.pieces.weighting.step_count import StepCount
from anchorage.pieces.weighting.uniform import Uniform

_BARLOW = Local(
    epochs=1,
    batch_size=64,
    optimiser=Sgd(learning_rate="0.008", momentum="0.9", weight_decay="0.0005", schedule="WarmUpCosine"),
)

FEDBARLOW = Preset(
    slots=slots(
        "FedBarlow", self_supervised=Barlow(scale="0.01", off_diagonal="0.0051"), weighting=SampleCount(), local=_BARLOW
    ),
    summary="Barlow Twins: silos learn features that agree between two views of an image and are not redundant.",
    setting="no labels",
    labels=("None", "All", "Partial"),
    protocols=("Synchronous", "Asynchronous"),
    reveals_to_server="the number of images",
    reveals_to_silos="nothing beyond the global model",
    source="SemiAnAgg paper, appendix A (FedBarlow), after Barlow Twins; methods reference, 6.13",
)

FEDCLR = Preset(
    slots=slots(
        "FedCLR",
        self_supervised=Barlow(scale="0.01", off_diagonal="0.0051", online_classifier="Enabled"),
        weighting=SampleCount(),
        local=_BARLOW,
    ),
    summary="FedBarlow, and a linear classifier that silos with labels train on its features without changing them.",
    setting="labels at some silos, or partially at all",
    labels=("None", "All", "Partial"),
    reveals_to_server="the number of images, and of labelled ones; the classifier's change carries label information",
    reveals_to_silos="nothing beyond the global model",
    source="SemiAnAgg paper, appendix A (FedCLR, online classifier); methods reference, 6.13",
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
    summary="Silos learn to assign two views of an image to the same of 128 clusters, which the server computes from the silos' own.",
    setting="no labels",
    labels=("None", "All", "Partial"),
    reveals_to_server="the number of steps, and 16 cluster means of features: with few images, nearly features of images",
    reveals_to_silos="128 cluster means of the federation's features",
    source="Lubana et al. 2022 (Orchestra), as read in its public code; methods reference, 6.13",
)

_SIAMESE = Local(
    epochs=5,
    batch_size=128,
    optimiser=Sgd(learning_rate="0.032", momentum="0.9", weight_decay="0.0005", schedule="Cosine"),
)

FEDSIMSIAM = Preset(
    slots=slots("FedSimSiam", self_supervised=SimSiam(), weighting=SampleCount(), local=_SIAMESE),
    summary="SimSiam: silos learn features from which each of two views of an image predicts the other.",
    setting="no labels",
    labels=("None", "All", "Partial"),
    protocols=("Synchronous", "Asynchronous"),
    reveals_to_server="the number of images, and how widely their projections are spread",
    reveals_to_silos="nothing beyond the global model",
    source="SimSiam with FedAvg, as read in EasyFL's public code; methods reference, N8",
)

FEDBYOL = replace(
    FEDSIMSIAM,
    slots=slots("FedBYOL", self_supervised=FedByol(), weighting=SampleCount(), local=_SIAMESE),
    summary="BYOL: silos learn features from which a view of an image predicts a moving-average network's output for another view.",
    source="BYOL with FedAvg, as read in EasyFL's public code; methods reference, N8, equation N38",
)

FEDEMA = replace(
    FEDSIMSIAM,
    slots=slots("FedEMA", self_supervised=FedEma(), weighting=SampleCount(), local=_SIAMESE),
    summary="FedBYOL in which a silo keeps more of its own last model the further that moved in the round before.",
    setting="no labels; silos that differ",
    protocols=("Synchronous",),
    reveals_to_server="the number of images, how widely their projections are spread, and the share of its own model that a silo kept",
    source="Zhuang et al. 2022 (FedEMA), as read in EasyFL's public code; methods reference, N8, equation N40",
)

LDAWA = replace(
    FEDSIMSIAM,
    slots=slots("LDAWA", self_supervised=SimSiam(), weighting=Uniform(), aggregation=LayerCosine(), local=_SIAMESE),
    summary="FedSimSiam in which each tensor of an update is weighted by its cosine to the global model's.",
    setting="no labels; silos that differ",
    protocols=("Synchronous",),
    source="Rehman et al. 2023 (L-DAWA), as read in its public code, over SimSiam; methods reference, N8, equation N41",
)
