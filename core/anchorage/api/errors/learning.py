"""Failures of methods and models: 13xx."""

from functools import partial

from anchorage.api.errors.catalogue import failure as add

failure = partial(add, 8)

LOSS_NOT_FINITE = failure(
    "ANC-1301 LossNotFinite",
    "A training loss or a model's output is NaN or infinite.",
    "Lower the learning rate or clip the gradient (optimiser.learningRate, optimiser.clipNorm of local or server training).",
)
MODEL_MISMATCH = failure(
    "ANC-1302 ModelMismatch",
    "A model's tensors do not match the federation's model.",
    "Use the same version of Anchorage everywhere, and for spec.model.initial a file of the same network, classes and heads, or of the "
    "network's library (docs/networks.md).",
)
RANDOM_ANCHOR_DIFFERS = failure(
    "ANC-1303 RandomAnchorDiffers",
    "SemiAnAgg's random anchor encoder differs between silo and server.",
    "Use the same versions of Anchorage and numpy everywhere.",
)
DEVICE_UNAVAILABLE = failure(
    "ANC-1304 DeviceUnavailable",
    "The configured device is not available.",
    "Set it to cpu or auto, or install a driver and a torch build that support the GPU.",
)
OUT_OF_MEMORY = failure(
    "ANC-1305 OutOfMemory",
    "The machine or its GPU has too little memory for the model and its batches.",
    "Lower the batch size or the image size, choose a smaller model, or use a larger machine.",
)
ANCHORS_MISSING = failure(
    "ANC-1306 AnchorsMissing",
    "The method trains on labelled anchors at the server, and a class has none.",
    "Give spec.anchorData a labelled image of every class (two for the contrastive loss).",
)
LEARNER_STATE_UNWRITABLE = failure(
    "ANC-1307 LearnerStateUnwritable",
    "A silo's training state cannot be written or read.",
    "Free disk space, check the permissions of the agent's state folder, then start the agent again.",
)
AUXILIARY_DATA_MISSING = failure(
    "ANC-1308 AuxiliaryDataMissing",
    "A task lacks the auxiliary data that its method needs.",
    "Use the same version of Anchorage at the server and at the silo.",
)
MEANS_TOO_LARGE = failure(
    "ANC-1309 MeansTooLarge",
    "The images that silos share for mixing exceed maximumPoolMiB.",
    "Raise maximumPoolMiB or groupSize of spec.method.inputMixing, or lower spec.model.imageSize; then start the run anew.",
)
NETWORK_UNUSABLE = failure(
    "ANC-1310 NetworkUnusable",
    "A library has no such network, or it cannot take images of this size, or lacks a name in spec.model.trainable or "
    "spec.evaluation.embeddings.layer.",
    "Correct the name, or change spec.model.imageSize; docs/networks.md has names and sizes that work.",
)
MOMENTS_UNUSABLE = failure(
    "ANC-1311 MomentsUnusable",
    "The moments of features give no classifier.",
    "Give at least two classes labelled images, at silos or as spec.anchorData; lower minimumCount or raise shrinkage of "
    "spec.method.serverTraining.moments. Where the encoder makes the same of every image, give it weights (spec.model.weights or "
    "initial).",
)
PIECE_WRONG = failure(
    "ANC-1312 PieceWrong",
    "A piece of the method raised an exception, or returned what its hook must not return.",
    "Correct it at the file and line in the message, then start the run again; it resumes. The traceback is in the process's log, at a "
    "silo in trainer.log of the state folder (docs/writing-a-method.md, When something is wrong). A piece of this project: report it.",
)
