"""Where images and labels come from, and which of them are meant."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from anchorage.api.base import CLASS_COUNTS_PATTERN, PATH_PATTERN, Document, Name, PositiveDecimal

AugmentationName = Literal[
    "Digits",
    "Natural",
    "Cifar100",
    "Svhn",
    "Dermoscopy",
    "ResizedNatural",
    "ResizedCifar100",
    "ResizedSvhn",
    "ResizedDermoscopy",
    "CroppedNatural",
]
"""Normalisation and augmentation that fit a kind of image (`anchorage.learning.data.augmentation`)."""


def _stays_below(path: str) -> str:
    if ".." in path.split("/"):
        raise ValueError(f'found "{path}", allowed is a path that stays below its folder')
    return path


PathBelow = Annotated[
    str,
    StringConstraints(strict=True, max_length=1024, pattern=PATH_PATTERN),
    AfterValidator(_stays_below),
]
"""A relative path without ``..``."""

Column = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=256)]
Label = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=256)]


class Partition(Document):
    """How the rest of the pool is divided among silos."""

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
        description="Iid: at random. Per…: Dirichlet. …Shards: pieces of one class. ClassQuota: Metis. Batch…: FedMatch. File: a list."
    )
    parts: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="Number of silos; needed by every recipe but File."
    )
    part: Annotated[int, Field(ge=0, le=99_999)] | None = Field(None, description="This silo's part, from 0.")
    alpha: PositiveDecimal = Field("0.5", description="Per…: small is uneven, 1000 is nearly even.")
    sizes: Literal["Uniform", "PowerLaw", "Skewed"] = Field("Uniform", description="Iid, ClassQuota.")
    classes_per_part: Annotated[str, StringConstraints(strict=True, max_length=256, pattern=CLASS_COUNTS_PATTERN)] = (
        Field("2", description="…Shards, ClassQuota: such as 5, or 8x1,5x9: 8 for one part, 5 for nine.")
    )
    labelled_per_class: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Images of each class that each part gets first; the others lose their labels."
    )
    min_size: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        10, description="PerClass…: draw again until every part has so many images."
    )
    file: PathBelow | None = Field(
        None, description="File: CSV, JSON, or text with one image or row number a line; below the section's folder."
    )
    silo: Label | None = Field(None, description="File: whose images are meant.")

    @property
    def class_counts(self) -> tuple[int, ...]:
        """Classes of each part, as `classes_per_part` says.

        Raises
        ------
        ValueError
            It says no numbers, or not as many as there are parts.
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
            raise ValueError(f"found the recipe {self.recipe} without parts; say among how many silos the images go")
        elif self.part is not None and self.part >= self.parts:
            raise ValueError(f"found part {self.part}, allowed are 0 to {self.parts - 1}")
        else:
            self._says_classes()
        return self

    def _says_classes(self) -> None:
        try:
            _ = self.class_counts
        except ValueError as error:
            found = f'found classesPerPart "{self.classes_per_part}" for {self.parts} parts'
            raise ValueError(
                f"{found}; write one number of classes, or such as 8x1,5x9 with {self.parts} parts in all"
            ) from error


class DataSection(Document):
    """A folder of images, or a part of one.

    Sections that share one pool of images (`use`) agree on testPercent, anchors, groupBy and partition: they draw the test part first,
    then the anchors, then the parts of the silos, each from the run's seed.
    """

    format: Literal["Digits", "ImageFolder", "CsvManifest"] = Field(
        description="Digits: scikit-learn's. ImageFolder: one folder per class, or a flat one without labels. CsvManifest: a table."
    )
    claim_name: Name | None = Field(None, description="Volume claim, or folder below the data root; Digits needs none.")
    path: PathBelow = Field(".", description="Folder of the images below the claim.")
    manifest: PathBelow | None = Field(None, description="CsvManifest: the CSV file, below the folder.")
    image_column: Column | None = Field(
        None, description="CsvManifest: absent: by a usual name such as image_id, else the first."
    )
    label_column: Column | None = Field(
        None, description="CsvManifest: absent: by a usual name such as dx, else one-hot columns."
    )
    group_by: Column | None = Field(
        None,
        description="CsvManifest: what is on one side of the test split as a whole; absent: patient_id or lesion_id.",
    )
    classes: Annotated[tuple[Label, ...], Field(max_length=10_000)] = Field(
        (), description="Classes in the order of the model's outputs; absent: as found."
    )
    on_bad_image: Literal["Refuse", "Skip"] = Field(
        "Refuse",
        description="What an unreadable or mislabelled image does: end the run, or be left out.",
    )
    use: Literal["All", "Test", "Anchors", "Part"] = Field("All", description="Which images of the pool are meant.")
    test_percent: Annotated[int, Field(ge=0, le=90)] = Field(0, description="Share of the pool held out for the test.")
    anchors: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Images of the pool that the server has with labels."
    )
    anchor_draw: Literal["Balanced", "Random"] = Field("Balanced", description="Balanced: as many of each class.")
    labelled_percent: Annotated[int, Field(ge=0, le=100)] = Field(
        100, description="Share of each class that keeps its labels."
    )
    partition: Partition | None = Field(None, description="How the rest of the pool is divided among silos.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        from_file = self.partition is not None and self.partition.recipe == "File"
        if self.format != "Digits" and self.claim_name is None:
            raise ValueError(f"found the format {self.format} without claimName; name the folder below the data root")
        if self.format == "CsvManifest" and self.manifest is None:
            raise ValueError("found the format CsvManifest without manifest; name the CSV file below the folder")
        if self.use == "Test" and not self.test_percent and not from_file:
            raise ValueError("found use Test without testPercent; say which share of the images is the test part")
        if self.use == "Anchors" and not self.anchors and not from_file:
            raise ValueError("found use Anchors without anchors; say how many images the server has")
        if self.use == "Part":
            self._names_its_part()
        return self

    def _names_its_part(self) -> None:
        if self.partition is None:
            raise ValueError("found use Part without partition; say how the images are divided")
        if self.partition.recipe != "File" and self.partition.part is None:
            raise ValueError(
                f"found use Part without partition.part; name one of 0 to {(self.partition.parts or 1) - 1}"
            )
