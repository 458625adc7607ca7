"""Failures of images and labels: 12xx."""

from anchorage.api.errors.catalogue import failure

DATA_MISSING = failure(
    "ANC-1201",
    "DataMissing",
    "A folder or file of a data section does not exist or cannot be read.",
    "Check claimName, path and manifest of the section, the data root, and the permissions.",
    3,
)
MANIFEST_WRONG = failure(
    "ANC-1202",
    "ManifestWrong",
    "A CSV manifest or partition file cannot be understood.",
    "Save it as UTF-8 CSV with a header line, and name its columns in the data section (imageColumn, labelColumn, groupBy).",
    3,
)
BAD_IMAGES = failure(
    "ANC-1203",
    "BadImages",
    "Images are missing, unreadable, truncated or too large, or their labels are.",
    "Run `fedctl data check`, repair or remove what it lists, or set onBadImage: Skip to leave such images out.",
    3,
)
CLASSES_DIFFER = failure(
    "ANC-1204",
    "ClassesDiffer",
    "The classes found in a folder or manifest are not those of the federation.",
    "List the federation's classes in the section's `classes`, in the order of the model's outputs, "
    "the same at every site, and check model.numClasses.",
    3,
)
NO_IMAGES = failure(
    "ANC-1205",
    "NoImages",
    "A data section has no image.",
    "Check path, manifest and partition of the section; a silo without images cannot join.",
    3,
)
PARTITION_IMPOSSIBLE = failure(
    "ANC-1206",
    "PartitionImpossible",
    "The images cannot be divided as asked.",
    "Ask for fewer parts, a smaller minSize or other sizes, give the part that is named more classes, or raise alpha.",
    3,
)
TOO_FEW_ANCHORS = failure(
    "ANC-1207",
    "TooFewAnchors",
    "A class has fewer labelled images than the anchors that it shall give, or none.",
    "Lower `anchors`, lower testPercent, or add labelled images of the class.",
    3,
)
PARTITION_FILE_DIFFERS = failure(
    "ANC-1208",
    "PartitionFileDiffers",
    "A partition file names images or a silo that are not there.",
    "Use the partition file that belongs to these images, and one of the silos that it names.",
    3,
)
IMAGES_EXCEED_MEMORY = failure(
    "ANC-1209",
    "ImagesExceedMemory",
    "The decoded images do not fit into memory.",
    "Lower model.imageSize or divide the images, or run on a machine with more memory.",
    3,
)
