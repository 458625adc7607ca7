"""Failures of methods and models: 13xx."""

from anchorage.api.errors.catalogue import failure

LOSS_NOT_FINITE = failure(
    "ANC-1301",
    "LossNotFinite",
    "A training loss or a model's output is NaN or infinite.",
    "Lower the learning rate or clip the gradient (optimiser.learningRate, optimiser.clipNorm of the method's local work or server training).",
    8,
)
MODEL_MISMATCH = failure(
    "ANC-1302",
    "ModelMismatch",
    "The tensors of a model are not those that the federation's model needs.",
    "Use a file of the same architecture, classes and heads for spec.model.initial, and the same version of Anchorage at server and silos.",
    8,
)
RANDOM_ANCHOR_DIFFERS = failure(
    "ANC-1303",
    "RandomAnchorDiffers",
    "The random anchor encoder of SemiAnAgg is not the same at the silo as at the server, so its similarities cannot be compared.",
    "Run the same version of Anchorage and numpy at the server and at every silo.",
    8,
)
DEVICE_UNAVAILABLE = failure(
    "ANC-1304",
    "DeviceUnavailable",
    "The device that was asked for cannot be used.",
    "Set the device to cpu or auto, or install a driver and a torch build that see the GPU.",
    8,
)
OUT_OF_MEMORY = failure(
    "ANC-1305",
    "OutOfMemory",
    "The memory of the machine or of its GPU does not suffice for the model and its batches.",
    "Lower the batch size or the image size, choose a smaller model, or run on a larger machine.",
    8,
)
ANCHORS_MISSING = failure(
    "ANC-1306",
    "AnchorsMissing",
    "The method trains on labelled anchors at the server, and there are none, or a class has none.",
    "Give spec.anchorData at least one labelled image of every class (two for the contrastive loss).",
    8,
)
LEARNER_STATE_UNWRITABLE = failure(
    "ANC-1307",
    "LearnerStateUnwritable",
    "What a silo keeps from round to round cannot be written to its state folder or read from it.",
    "Free disk space, check the permissions of the agent's state folder, and start the agent again.",
    8,
)
SIDE_CHANNEL_MISSING = failure(
    "ANC-1308",
    "SideChannelMissing",
    "A task came without what its method sends beside the model.",
    "Run the same version of Anchorage at the server and at the silo.",
    8,
)
MEANS_TOO_LARGE = failure(
    "ANC-1309",
    "MeansTooLarge",
    "The means of images that a method sends beside the model are larger than a message may be.",
    "Raise groupSize of spec.method.inputMixing (fewer means leave, and less of each image), or lower spec.model.imageSize.",
    8,
)
