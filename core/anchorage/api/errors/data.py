"""Failures of images and labels: 12xx."""

from functools import partial

from anchorage.api.errors.catalogue import failure as add

failure = partial(add, 3)

DATA_MISSING = failure(
    "ANC-1201 DataMissing",
    "A folder or file that the documents name does not exist or cannot be read.",
    "Check claimName, path, manifest, spec.model.initial, the data root and the permissions.",
)
MANIFEST_WRONG = failure(
    "ANC-1202 ManifestWrong",
    "A CSV manifest or partition file is malformed.",
    "Save it as UTF-8 CSV with a header line, and name its columns (imageColumn, labelColumn, groupBy).",
)
BAD_IMAGES = failure(
    "ANC-1203 BadImages",
    "Images are missing, unreadable or too large, or labels are missing or invalid.",
    "Repair or remove what `fedctl data check` lists, or set onBadImage: Skip. For `image 17 of 812 (3f2a91c0)` in a message, `anchorage-silo "
    "images 3f2a91c0` at the hospital names the file.",
)
CLASSES_DIFFER = failure(
    "ANC-1204 ClassesDiffer",
    "Folders, labels or columns have names that are no classes of the federation.",
    "Rename them, or name their classes in the data section: `classMap: {naevus: NV}`.",
)
NO_IMAGES = failure(
    "ANC-1205 NoImages",
    "A data section has no images, or only files that are not read.",
    "Check its path, manifest, partition and image format.",
)
PARTITION_IMPOSSIBLE = failure(
    "ANC-1206 PartitionImpossible",
    "The images cannot be divided as requested.",
    "Use fewer parts, a smaller minSize, other sizes, more classes per part, or a larger alpha.",
)
TOO_FEW_ANCHORS = failure(
    "ANC-1207 TooFewAnchors",
    "A class has fewer labelled images than anchors.",
    "Lower `anchors` or testPercent, or label more images of the class.",
)
PARTITION_FILE_DIFFERS = failure(
    "ANC-1208 PartitionFileDiffers",
    "A partition file names images or silos that do not exist.",
    "Use the partition file of these images, and a partition.silo that is in it.",
)
IMAGES_EXCEED_MEMORY = failure(
    "ANC-1209 ImagesExceedMemory",
    "The decoded images do not fit into memory.",
    "Lower model.imageSize, or use fewer images per silo or more memory.",
)
HELD_OUT_TRAINED = failure(
    "ANC-1211 HeldOutTrained",
    "Images of spec.evaluation would be trained on, too.",
    "Remove them from anchors and silos, or set spec.evaluation.onLeakage to Skip or Allow.",
)
IMAGES_CHANGED = failure(
    "ANC-1212 ImagesChanged",
    "Images or labels are not those that training began with.",
    "Restore them, begin a new run or, for a silo's images, set onChange: Allow in its data section.",
)
WEIGHTS_UNUSABLE = failure(
    "ANC-1213 WeightsUnusable",
    "Pretrained weights cannot be fetched, are missing or damaged.",
    "Run the command in the message where their source can be reached, and copy the data root's `weights` to other sites.",
)
TASK_UNSUPPORTED = failure(
    "ANC-1214 TaskUnsupported",
    "Images have several findings or masks, but the task has one class per image.",
    "Findings: set the task multiLabel, give each image one label, or set onBadImage: Skip. Masks: set the task segmentation, or name the "
    "folder of the images alone.",
)
DATASET_UNUSABLE = failure(
    "ANC-1215 DatasetUnusable",
    "A public data set cannot be downloaded, or its archive is not the published one.",
    "Download the archive in the message elsewhere, and run `fedctl data fetch` with --archive.",
)
OUTSIDE_FOLDER = failure(
    "ANC-1210 OutsideFolder",
    "A folder, table or partition file lies behind a link that leads out of its claim's folder.",
    "Copy the files into the claim's folder, or make that folder itself a link.",
)
GROUP_UNKNOWN = failure(
    "ANC-1217 GroupUnknown",
    "Images lack the DICOM attribute by which the data section groups them (groupBy).",
    "Omit groupBy, or name the patients in a column of a table.",
)
SPLIT_IGNORED = failure(
    "ANC-1216 SplitIgnored",
    "A table's column names images for validation or test, and the data section does not mention it.",
    "Name the column (splitColumn), or set splitColumn: None to use all images alike.",
)
