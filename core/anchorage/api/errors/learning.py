"""Failures of methods and models: 13xx."""

from functools import partial

from anchorage.api.errors.catalogue import failure as add

failure = partial(add, 8)

LOSS_NOT_FINITE = failure(
    "ANC-1301 LossNotFinite",
    "A training loss or a model's output is NaN or infinite.",
    "Lower the learning rate or clip the gradient (optimiser.learningRate, optimiser.clipNorm).",
)
MODEL_MISMATCH = failure(
    "ANC-1302 ModelMismatch",
    "A model's tensors do not match the federation's model.",
    "Use one version of Anchorage everywhere, and for spec.model.initial a file of the same network, classes and heads (docs/networks.md).",
)
RANDOM_ANCHOR_DIFFERS = failure(
    "ANC-1303 RandomAnchorDiffers",
    "SemiAnAgg's random anchor encoder differs between silo and server.",
    "Use the same versions of Anchorage and numpy everywhere.",
)
DEVICE_UNAVAILABLE = failure(
    "ANC-1304 DeviceUnavailable",
    "The configured device is not available.",
    "Set it to cpu or auto, or install a driver and torch for the GPU.",
)
OUT_OF_MEMORY = failure(
    "ANC-1305 OutOfMemory",
    "The machine or its GPU has too little memory for the model and its batches.",
    "Lower batch or image size, or use a smaller model or larger machine.",
)
ANCHORS_MISSING = failure(
    "ANC-1306 AnchorsMissing",
    "A class has no labelled anchors at the server.",
    "Give spec.anchorData a labelled image of every class (two for the contrastive loss).",
)
LEARNER_STATE_UNWRITABLE = failure(
    "ANC-1307 LearnerStateUnwritable",
    "A silo's training state cannot be written or read.",
    "Check free space and permissions of the agent's state folder, then start the agent again.",
)
AUXILIARY_DATA_MISSING = failure(
    "ANC-1308 AuxiliaryDataMissing",
    "A task lacks the auxiliary data that its method needs.",
    "Use the same version of Anchorage at server and silo.",
)
MEANS_TOO_LARGE = failure(
    "ANC-1309 MeansTooLarge",
    "The images that silos share for mixing exceed maximumPoolMiB.",
    "Raise maximumPoolMiB or groupSize of spec.method.inputMixing, or lower spec.model.imageSize, in a new run.",
)
NETWORK_UNUSABLE = failure(
    "ANC-1310 NetworkUnusable",
    "A network is unknown, cannot take images of this size, or lacks a module that the file names.",
    "Correct spec.model.network, imageSize or trainable, or spec.evaluation.embeddings.layer (docs/networks.md).",
)
MOMENTS_UNUSABLE = failure(
    "ANC-1311 MomentsUnusable",
    "The moments of features give no classifier.",
    "Give labelled images of at least two classes, lower minimumCount or raise shrinkage of spec.method.serverTraining.moments, or start from "
    "pretrained weights (spec.model.weights).",
)
PIECE_WRONG = failure(
    "ANC-1312 PieceWrong",
    "A piece of the method raised an exception, or its hook returned an invalid value.",
    "Correct it at the file and line in the message (report a piece of Anchorage), then start the run again. The log, at a silo trainer.log "
    "in the state folder, has the traceback (docs/writing-a-method.md).",
)
