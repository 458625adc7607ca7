"""Data sections: where images and labels come from, and which of them a site uses."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from anchorage.api.base import CLASS_COUNTS_PATTERN, MASK_VALUE_PATTERN, PATH_PATTERN, Document, Name, PositiveDecimal
from anchorage.api.piece import PIECES, Piece
from anchorage.api.slot import Kind


def _stays_below(path: str) -> str:
    if ".." in path.split("/"):
        raise ValueError(f'found "{path}", allowed is a path that stays below its folder')
    return path


def _is_value(value: str) -> str:
    if int(value) > 65535:
        raise ValueError(f"found {value}, allowed are values of pixels from 0 to 65535")
    return value


PathBelow = Annotated[
    str,
    StringConstraints(strict=True, max_length=1024, pattern=PATH_PATTERN),
    AfterValidator(_stays_below),
]
"""A relative path without ``..``."""

HEADER_GROUPS = ("PatientID", "StudyInstanceUID", "SeriesInstanceUID", "AccessionNumber")
"""Attributes of DICOM by which images can be grouped."""

Column = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=256)]
Label = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=256)]
MaskValue = Annotated[
    str, StringConstraints(strict=True, pattern=MASK_VALUE_PATTERN, max_length=5), AfterValidator(_is_value)
]
"""Value of a mask's pixels, 0 to 65535."""


class Partition(Document):
    """Recipe that divides a pool of images among silos."""

    recipe: Literal[
        "Iid",
        "PerClient",
        "PerClass",
        "PerClassCapped",
        "Shards",
        "DistinctShards",
        "ClassQuota",
        "BatchIid",
        "BatchNonIid",
        "File",
    ] = Field(
        description="How the pool is divided among silos. Iid: at random. PerClient: parts of equal size, the class shares of each drawn "
        "from a Dirichlet distribution. PerClass: each class divided by a Dirichlet distribution. PerClassCapped: likewise, "
        "but a part that has its equal share gets nothing of the following classes. Shards: pieces of one class each. "
        "DistinctShards: likewise, no two pieces of a part of the same class. ClassQuota: a fixed number of classes per part "
        "(Metis). BatchIid, BatchNonIid: divisions of FedMatch. File: as a partition file lists it."
    )
    parts: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="Number of parts of the pool. Needed by every recipe but File."
    )
    part: Annotated[int, Field(ge=0, le=99_999)] | None = Field(
        None, description="Index of this silo's part, from 0. Needed by every recipe but File."
    )
    alpha: PositiveDecimal = Field(
        "0.5",
        description="Concentration of the Dirichlet distribution of PerClient, PerClass and PerClassCapped: 0.1 gives uneven parts, 1000 "
        "nearly even ones.",
    )
    sizes: Literal["Uniform", "PowerLaw", "Skewed"] = Field(
        "Uniform",
        description="Sizes of the parts for Iid and ClassQuota. Uniform: equal. PowerLaw: proportional to the rank of the part to the "
        "power of -1.5. Skewed: falling linearly with the rank. Part 0 is the largest.",
    )
    classes_per_part: Annotated[str, StringConstraints(strict=True, max_length=256, pattern=CLASS_COUNTS_PATTERN)] = (
        Field(
            "2",
            description="Number of classes per part for Shards, DistinctShards and ClassQuota. One number such as 5 is for every part; 8x1,5x9 "
            "gives one part 8 classes and nine parts 5.",
        )
    )
    labelled_per_class: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0,
        description="Number of images per class and part that keep their labels. 0: all.",
    )
    imbalance_factor: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        1,
        description=(
            "Ratio of the size of the first class to that of the last, for every recipe but File: images are left out at random, so "
            "that class sizes fall exponentially (a long tail). 1: all images are divided."
        ),
    )
    min_size: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        10,
        description="Minimum number of images per part for PerClass and PerClassCapped, which draw again until every part has so many.",
    )
    file: PathBelow | None = Field(
        None,
        description="Partition file for the recipe File, relative to the section's folder: CSV, JSON, or text with an image or row number "
        "per line.",
    )
    silo: Label | None = Field(None, description="Name in the partition file of the silo whose images are used.")

    @property
    def class_counts(self) -> tuple[int, ...]:
        """Number of classes of each part, parsed from `classes_per_part`.

        Raises
        ------
        ValueError
            The text is not a list of numbers, or does not cover all parts.
        """
        groups = [tuple(map(int, group.split("x"))) for group in self.classes_per_part.split(",")]
        if [len(group) for group in groups] == [1]:
            return groups[0] * (self.parts or 1)
        if sum(parts for _, parts in groups) != self.parts or not all(classes for classes, _ in groups):
            raise ValueError
        return tuple(classes for classes, parts in groups for _ in range(parts))

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.recipe == "File":
            if self.file is None:
                raise ValueError("found the recipe File without file; name the list below the section's folder")
        elif self.parts is None:
            raise ValueError(f"found the recipe {self.recipe} without parts; set the number of parts")
        elif self.part is not None and self.part >= self.parts:
            raise ValueError(f"found part {self.part}, allowed are 0 to {self.parts - 1}")
        else:
            self._check_classes()
        return self

    def _check_classes(self) -> None:
        try:
            _ = self.class_counts
        except ValueError as error:
            detail = f'found classesPerPart "{self.classes_per_part}" for {self.parts} parts'
            raise ValueError(
                f"{detail}; write one number of classes, or such as 8x1,5x9 with {self.parts} parts in all"
            ) from error


class DataFormat(Piece):
    """What documents need to know of a format of images and labels."""

    needs_claim: ClassVar[bool] = True
    """Whether a data section must name a volume claim."""

    needs_manifest: ClassVar[bool] = False
    """Whether a data section must name a table."""

    tells_channels: ClassVar[bool] = False
    """Whether a volume's channels may be files of their own (`channelFiles`)."""

    divided: ClassVar[bool] = False
    """Whether its publisher divided the images into training, validation and test."""


class DataSection(Document):
    """Images and labels of one site: a folder, or a part of one.

    Sections that share one pool of images (`use`) need the same testPercent, validationPercent, anchors, groupBy and partition. The test part is
    drawn first, then the validation part, the anchors, and the parts of the silos, each from the run's seed.
    """

    format: Annotated[str, Kind("reader")] = Field(
        description="Format of images and labels. ImageFolder: a folder per class. CsvManifest: a CSV table. DicomFolder: DICOM files as a "
        "PACS exports them, in folders of any depth, also without suffixes. MedMnist: an .npz file of MedMNIST. Digits: "
        "scikit-learn's digits."
    )
    claim_name: Name | None = Field(
        None,
        description="Name of the PersistentVolumeClaim with the images; outside a cluster, of a folder below the data root. Digits needs "
        "none.",
    )
    path: PathBelow = Field(".", description="Folder of the images, relative to the claim.")
    manifest: PathBelow | None = Field(
        None,
        description="Table of images and labels for CsvManifest, relative to `path`; for MedMnist the file, which may be absent where the "
        "folder has but one.",
    )
    image_column: Column | None = Field(
        None,
        description="Column with the file names of images. Absent: the first of image, image_id, id, isic_id, file, filename and path that "
        "exists, else the first column.",
    )
    label_column: Column | None = Field(
        None,
        description="Column with the labels. Absent: one-hot columns named after classes, else the first of label, class, target, "
        "diagnosis and dx that exists.",
    )
    label_columns: Annotated[tuple[Column, ...], Field(max_length=1000)] = Field(
        (),
        description="Columns of findings, for the task multiLabel: cells are 1, 0, -1 for uncertain, or empty. Beside `labelColumn`: the "
        "findings that its lists tell of; one that no row names is absent. Absent: the columns that are called as findings.",
    )
    label_separator: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=8)] = Field(
        "|", description="Separator of findings in one cell or name of a folder, for the task multiLabel."
    )
    no_finding: Annotated[tuple[Label, ...], Field(max_length=1000)] = Field(
        ("No Finding",),
        description="Words in lists of findings that are none of the federation's, in any case, for the task multiLabel. An image with no other "
        "word has none of the findings.",
    )
    blank: Literal["Unknown", "Negative"] = Field(
        "Unknown",
        description="Meaning of an empty cell, for the task multiLabel. Unknown: nobody said whether the finding is there, and the image "
        "teaches and tests nothing of it. Negative: the finding is absent, as in tables of only what was seen.",
    )
    group_by: Column | None = Field(
        None,
        description="Column that names the group of an image, such as the patient or lesion. Images of a group stay together when test and "
        "validation part are drawn. Absent: the column that is named as patient, subject, case, study or lesion, such as "
        "PatientID, else the patient of a DICOM file (issuer and PatientID, else its study), else the folder of an image that "
        "is named so, such as patient07. PatientID, StudyInstanceUID, SeriesInstanceUID, AccessionNumber: that attribute of "
        "DICOM files, where the table has no such column. None: every image is a group.",
    )
    match: Literal["Path", "SOPInstanceUID", "SeriesInstanceUID", "StudyInstanceUID", "AccessionNumber"] = Field(
        "Path",
        description=(
            "What the column of images holds, for CsvManifest. Path: paths or names of files. Otherwise that attribute of DICOM "
            "files below the folder; each file that has it is an image with the row's label."
        ),
    )
    frames: Literal["First", "Middle", "All"] = Field(
        "First",
        description="Which frames of a DICOM file, or slices of a NIfTI volume, are images. First: the first one, or lowest slice. Middle: "
        "the one in the middle. All: each, in one group.",
    )
    burned_in_text: Literal["Refuse", "Use"] = Field(
        "Refuse",
        description="Treatment of DICOM files whose header says that text, such as a patient's name, is burned into the pixels. Refuse: "
        "they are bad images. Use: they are images like others, after somebody has looked at them.",
    )
    for_processing: Literal["Refuse", "Use"] = Field(
        "Refuse",
        description="Treatment of radiographs with the detector's raw values, not meant for reading. Refuse: they are bad images. Use: "
        "they are images like others.",
    )
    split_column: Column | None = Field(
        None,
        description="Column that says which images are for training, validation and test (train, val, test and the like). `use: Test` and "
        "`use: Validation` take theirs, every other use the training images. Absent: a table with such a column is refused, "
        "and MedMnist's division counts. None: the images are one pool.",
    )
    mask_files: Literal["Ignore", "Use"] = Field(
        "Ignore",
        description="Treatment of files of an ImageFolder that look like masks or thumbnails of other images, by their names or few "
        "colours. Ignore: they are left out and named. Use: they are images like others.",
    )
    mask_column: Column | None = Field(
        None,
        description=(
            "Column with the file names of masks, for a segmentation; an image with an empty cell has none. Absent: the first of "
            "mask, masks, mask_path, mask_file and segmentation that exists."
        ),
    )
    channel_files: Annotated[tuple[Column, ...], Field(max_length=64)] = Field(
        (),
        description="What tells the files of a volume's channels apart, in the order of the model's channels. For ImageFolder: how their "
        "names end before the suffix, such as _0000 and _0001, or _t1 and _flair. For CsvManifest: the columns with their "
        "files, folders or series, in place of `imageColumn`. Absent: a volume is one file or series.",
    )
    mask_values: Annotated[dict[MaskValue, Label], Field(max_length=1000)] = Field(
        {},
        description='Class of each pixel value of masks, such as {"255": lesion}; 0 is the first class, the background, unless it is '
        "named, too. Absent: value 0 is the first class, 1 the second, and so on.",
    )
    ignored_value: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        None,
        description="Pixel value of masks that no loss and no score counts, such as where nobody looked. Absent: every pixel counts.",
    )
    unannotated: Annotated[tuple[Label, ...], Field(max_length=1000)] = Field(
        (),
        description="Foreground classes of a segmentation that nobody drew in the site's masks. There the loss counts the probability of "
        "these classes as background, and no score counts them. Absent: a class that a mask does not have is not in the image.",
    )
    class_map: Annotated[dict[Label, Label], Field(max_length=1000)] = Field(
        {},
        description="Class of the federation for each of the site's names of folders, labels or columns. A name that is not here is the "
        "class of the same name.",
    )
    on_bad_image: Literal["Refuse", "Skip"] = Field(
        "Refuse",
        description="Treatment of images that are unreadable or have no valid label. Refuse: the process ends and names them. Skip: they "
        "are left out.",
    )
    test_percent: Annotated[int, Field(ge=0, le=90)] = Field(
        0, description="Percentage of each class's images in the pool that is held out as the test part."
    )
    validation_percent: Annotated[int, Field(ge=0, le=90)] = Field(
        0,
        description="Percentage of each class's images outside the test part that is held out as the validation part.",
    )
    anchors: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0,
        description="Number of labelled images of the pool that are the server's anchors. Silos of the same pool state it, too, so that "
        "they do not train on them.",
    )
    anchor_draw: Literal["Balanced", "Random"] = Field(
        "Balanced",
        description="How the anchors are drawn. Balanced: the same number of each class. Random: uniformly; a class may have none.",
    )

    @property
    def split(self) -> bool:
        """Whether the images come divided into training, validation and test."""
        reader = PIECES["reader", self.format]
        divided = self.split_column is None and issubclass(reader, DataFormat) and reader.divided
        return divided or self.split_column not in (None, "None")

    @property
    def taken(self) -> str:
        """Which images of the pool are used: ``All``, ``Test``, ``Validation``, ``Anchors`` or ``Part``."""
        raise NotImplementedError

    @property
    def division(self) -> Partition | None:
        """How the pool is divided, where the section says so."""
        return None

    @property
    def kept_labels(self) -> int:
        """Percentage of each class that keeps its labels."""
        return 100

    @property
    def stated_counts(self) -> Mapping[str, int]:
        """Images of each class, where records tell."""
        return {}

    @model_validator(mode="after")
    def _readable(self) -> Self:
        if PIECES.apart("reader", self.format):  # checked where images are read
            return self
        reader = PIECES["reader", self.format]
        if not issubclass(reader, DataFormat):
            raise ValueError(f"found {self.format}, whose class {reader.__name__} is no Reader; mend its package")
        if reader.needs_claim and self.claim_name is None:
            raise ValueError(f"found the format {self.format} without claimName; name the folder below the data root")
        if self.split_column not in (None, "None") and not reader.needs_manifest:
            raise ValueError(f"found splitColumn of the format {self.format}, which has no table; leave it out")
        if self.split and (self.test_percent or self.validation_percent):
            raise ValueError(
                "found testPercent or validationPercent of images that are divided already; set them to 0, or splitColumn: None"
            )
        if reader.needs_manifest and self.manifest is None:
            raise ValueError(f"found the format {self.format} without manifest; name the CSV file below the folder")
        if self.channel_files and not reader.tells_channels:
            raise ValueError(
                f"found channelFiles of the format {self.format}, which does not tell channels apart; name the files or series of each in a table"
            )
        if len(set(self.channel_files)) < len(self.channel_files):
            raise ValueError(
                "found channelFiles that name one channel twice; name each once, in the order of the model's channels"
            )
        return self


class ServerData(DataSection):
    """Labelled images at the server."""

    use: Literal["All", "Test", "Validation", "Anchors"] = Field(
        "All",
        description="Which images of the pool are used. All: undivided. Test, Validation: the part that was held out. Anchors: those that "
        "were drawn.",
    )
    partition_file: PathBelow | None = Field(
        None,
        description="Partition file, relative to the section's folder, that lists the images of `use`. Absent: they are drawn from the "
        "run's seed.",
    )

    @property
    def taken(self) -> str:
        """Which images of the pool are used."""
        return self.use

    @property
    def division(self) -> Partition | None:
        """The partition file, if there is one."""
        return None if self.partition_file is None else Partition(recipe="File", file=self.partition_file)

    @model_validator(mode="after")
    def _check_recipe(self) -> Self:
        sizes = {
            "Test": ("testPercent", self.test_percent, "the percentage of the images that is the test part"),
            "Validation": ("validationPercent", self.validation_percent, "the percentage that is the validation part"),
            "Anchors": ("anchors", self.anchors, "the number of images that the server has"),
        }
        if self.use in sizes and self.partition_file is None:
            field, value, what = sizes[self.use]
            if not value and not (self.split and self.use != "Anchors"):
                raise ValueError(f"found use {self.use} without {field}; set {what}")
        return self


class SiloData(DataSection):
    """Images of a silo."""

    use: Literal["All", "Part"] = Field(
        "All",
        description="Which images of the pool are used. All: undivided. Part: this silo's part of `partition`.",
    )
    labelled_percent: Annotated[int, Field(ge=0, le=100)] = Field(
        100,
        description="Percentage of each class's labelled images that keep their labels, at least one of each class, to simulate silos with "
        "few labels.",
    )
    partition: Partition | None = Field(
        None,
        description="Division of the images outside test part, validation part and anchors among silos. Needed by `use: Part`.",
    )
    class_counts: Annotated[dict[Label, Annotated[int, Field(ge=0, le=100_000_000)]], Field(max_length=1000)] = Field(
        {},
        description="Number of images of each class, for a silo whose records tell it without saying which image is of which class. "
        "Pseudo-labels are corrected to these shares, and the server learns the counts where the loss needs them. A class that "
        "is not named has none.",
    )
    on_change: Literal["Refuse", "Allow"] = Field(
        "Refuse",
        description="Treatment of images that changed since training began. Refuse: the agent ends and names the change. Allow: it goes on "
        "with the new images.",
    )

    @property
    def taken(self) -> str:
        """Which images of the pool are used."""
        return self.use

    @property
    def division(self) -> Partition | None:
        """How the pool is divided."""
        return self.partition

    @property
    def kept_labels(self) -> int:
        """Percentage of each class that keeps its labels."""
        return self.labelled_percent

    @property
    def stated_counts(self) -> Mapping[str, int]:
        """Images of each class, where records tell."""
        return self.class_counts

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if self.class_counts and not any(self.class_counts.values()):
            raise ValueError("found classCounts of 0 images; remove it, or count the images of each class")
        if self.use == "Part":
            if self.partition is None:
                raise ValueError("found use Part without partition; set how the images are divided")
            if self.partition.recipe != "File" and self.partition.part is None:
                raise ValueError(
                    f"found use Part without partition.part; name one of 0 to {(self.partition.parts or 1) - 1}"
                )
        return self
