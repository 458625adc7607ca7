"""Failures of images and labels: 12xx."""

from functools import partial

from anchorage.api.errors.catalogue import failure as add

failure = partial(add, 3)

DATA_MISSING = failure(
    "ANC-1201 DataMissing",
    "A folder or file that the documents name, such as of a data section, does not exist or cannot be read.",
    "Check claimName, path and manifest of the data section, spec.model.initial, the data root, and the file permissions.",
)
MANIFEST_WRONG = failure(
    "ANC-1202 ManifestWrong",
    "A CSV manifest or partition file is malformed.",
    "Save the file as UTF-8 CSV with a header line, and name its columns in the data section (imageColumn, labelColumn, groupBy).",
)
BAD_IMAGES = failure(
    "ANC-1203 BadImages",
    "Images are missing, unreadable, truncated or too large, or labels are missing or invalid.",
    "Run `fedctl data check` and repair or remove the images it lists, or set onBadImage: Skip. An agent names images as in `image 17 of 812 "
    "(3f2a91c0)`: at the hospital `anchorage-silo images 3f2a91c0` shows which file that is.",
)
CLASSES_DIFFER = failure(
    "ANC-1204 ClassesDiffer",
    "Folders, labels or columns of a site have names that are no classes of the federation.",
    "Say in the section's `classMap` which class each of them is, such as `classMap: {naevus: NV}`, or rename them.",
)
NO_IMAGES = failure(
    "ANC-1205 NoImages",
    "A data section contains no images, or only files that are not read.",
    "Check path, manifest and partition of the section, and save the images in a format that is read; a silo without images cannot join.",
)
PARTITION_IMPOSSIBLE = failure(
    "ANC-1206 PartitionImpossible",
    "The requested partition of the images is impossible.",
    "Use fewer parts, a smaller minSize or other sizes, give the part named in the message more classes, or raise alpha.",
)
TOO_FEW_ANCHORS = failure(
    "ANC-1207 TooFewAnchors",
    "A class has fewer labelled images than anchors are to be drawn from it.",
    "Lower `anchors`, lower testPercent, or add labelled images of the class.",
)
PARTITION_FILE_DIFFERS = failure(
    "ANC-1208 PartitionFileDiffers",
    "A partition file names images or silos that do not exist.",
    "Use the partition file of these images, and set partition.silo to one of the silos in it.",
)
IMAGES_EXCEED_MEMORY = failure(
    "ANC-1209 ImagesExceedMemory",
    "The decoded images do not fit into memory.",
    "Lower model.imageSize, use fewer images per silo, or run on a machine with more memory.",
)
HELD_OUT_TRAINED = failure(
    "ANC-1211 HeldOutTrained",
    "Images that the federation is scored on (spec.evaluation) would be trained on, too.",
    "Remove them from the anchors or the silo's images, or set spec.evaluation.onLeakage: Skip to leave them out of training, or Allow.",
)
IMAGES_CHANGED = failure(
    "ANC-1212 ImagesChanged",
    "A site's images or labels are not those that training began with.",
    "Restore them, begin a new run, or set onChange: Allow in the silo's data section; the server's own images cannot change within a run.",
)
WEIGHTS_UNUSABLE = failure(
    "ANC-1213 WeightsUnusable",
    "Pretrained weights cannot be fetched, are no safetensors file, are not in the data root's folder `weights`, or are damaged there.",
    "Run the `fedctl weights` command in the message at the coordinating site, on a machine that reaches their source; copy the folder "
    "`weights` to a site that reaches nothing.",
)
TASK_UNSUPPORTED = failure(
    "ANC-1214 TaskUnsupported",
    "Images have several findings each, or masks, which is not of the task: classification is of one class per image.",
    "Several findings per image: set `task: {multiLabel: {labels: [...]}}`, give each image one label, or set onBadImage: Skip. Images with "
    "masks: set the task segmentation, or name the folder of the images alone.",
)
DATASET_UNUSABLE = failure(
    "ANC-1215 DatasetUnusable",
    "A public data set cannot be downloaded, or its archive is not the published one.",
    "Fetch the archive that the message names on a machine that reaches its address, copy it here, and run `fedctl data fetch` with --archive.",
)
OUTSIDE_FOLDER = failure(
    "ANC-1210 OutsideFolder",
    "A section's folder, table or partition file is, or lies below, a link that leads out of its claim's folder.",
    "Copy the files into the claim's folder, or make that folder itself a link: what lies outside of it is never read.",
)
GROUP_UNKNOWN = failure(
    "ANC-1217 GroupUnknown",
    "A data section groups images by an attribute of DICOM (groupBy), and images lack it.",
    "Leave groupBy out: images without a patient are grouped by study. Or name the patients in a table's column.",
)
SPLIT_IGNORED = failure(
    "ANC-1216 SplitIgnored",
    "A table has a column that says which images are for validation or test, and the data section does not say whether that counts.",
    "Name the column in the section (splitColumn), or set splitColumn: None to use all images alike.",
)
