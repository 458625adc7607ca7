"""Data sections: where images and labels come from, and which of them a site uses."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from anchorage.api.base import CLASS_COUNTS_PATTERN, PATH_PATTERN, Document, Name, PositiveDecimal
from anchorage.api.piece import PIECES, Piece
from anchorage.api.slot import Kind


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
        description="Iid: at random. PerClient, PerClass…: Dirichlet. …Shards: pieces of one class. "
        "ClassQuota: Metis. Batch…: FedMatch. File: a list."
    )
    parts: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="Number of parts; every recipe but File needs it."
    )
    part: Annotated[int, Field(ge=0, le=99_999)] | None = Field(None, description="Index of this silo's part, from 0.")
    alpha: PositiveDecimal = Field(
        "0.5",
        description="Concentration of the Dirichlet recipes: small is uneven, 1000 nearly even.",
    )
    sizes: Literal["Uniform", "PowerLaw", "Skewed"] = Field(
        "Uniform", description="Sizes of the parts (Iid, ClassQuota)."
    )
    classes_per_part: Annotated[str, StringConstraints(strict=True, max_length=256, pattern=CLASS_COUNTS_PATTERN)] = (
        Field(
            "2",
            description="Classes per part (Shards, DistinctShards, ClassQuota), such as 5, or 8x1,5x9: 8 for one part, 5 for nine.",
        )
    )
    labelled_per_class: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0,
        description="Labelled images per class and part; the others lose their labels. 0: all keep them.",
    )
    imbalance_factor: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        1,
        description="Images of the first class per image of the last (every recipe but File).\n\nAbove 1 so many images are left out at random "
        "that class sizes fall exponentially, in the order of the classes, before the others are divided. 1: all images are divided.",
    )
    min_size: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        10,
        description="Fewest images per part (PerClass, PerClassCapped).",
    )
    file: PathBelow | None = Field(
        None,
        description="Partition file (File), below the folder: CSV, JSON, or an image or row number per line.",
    )
    silo: Label | None = Field(None, description="Silo in the partition file whose images are used (File).")

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
            found = f'found classesPerPart "{self.classes_per_part}" for {self.parts} parts'
            raise ValueError(
                f"{found}; write one number of classes, or such as 8x1,5x9 with {self.parts} parts in all"
            ) from error


class DataFormat(Piece):
    """What documents need to know of a format of images and labels."""

    needs_claim: ClassVar[bool] = True
    """Whether a data section must name a volume claim."""

    needs_manifest: ClassVar[bool] = False
    """Whether a data section must name a table."""


class DataSection(Document):
    """Images and labels of one site: a folder, or a part of one.

    Sections that share one pool of images (`use`) need the same testPercent, validationPercent, anchors, groupBy and partition. The test part is
    drawn first, then the validation part, the anchors, and the parts of the silos, each from the run's seed.
    """

    format: Annotated[str, Kind("reader")] = Field(
        description="ImageFolder: a folder per class. CsvManifest: a CSV table. Digits: scikit-learn's."
    )
    claim_name: Name | None = Field(
        None,
        description="Volume claim; outside a cluster, folder below the data root.\n\nDigits needs none.",
    )
    path: PathBelow = Field(".", description="Folder of the images, relative to the claim.")
    manifest: PathBelow | None = Field(None, description="Table of CsvManifest, below path.")
    image_column: Column | None = Field(
        None,
        description="Column of file names.\n\nDefault: such as image_id, else the first.",
    )
    label_column: Column | None = Field(
        None,
        description="Column of labels.\n\nDefault: one-hot columns, else such as dx.",
    )
    group_by: Column | None = Field(
        None,
        description="Column of what the splits keep together.\n\nDefault: patient_id or lesion_id.",
    )
    class_map: Annotated[dict[Label, Label], Field(max_length=1000)] = Field(
        {},
        description="The federation's class of each folder, label or column of another name.",
    )
    on_bad_image: Literal["Refuse", "Skip"] = Field(
        "Refuse",
        description="What becomes of unreadable or mislabelled images.",
    )
    test_percent: Annotated[int, Field(ge=0, le=90)] = Field(
        0, description="Percentage of the pool held out as the test part."
    )
    validation_percent: Annotated[int, Field(ge=0, le=90)] = Field(
        0, description="Percentage of the others held out as the validation part."
    )
    anchors: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Number of the server's labelled anchors."
    )
    anchor_draw: Literal["Balanced", "Random"] = Field(
        "Balanced",
        description="Draw of the anchors.\n\nBalanced: equally many per class.",
    )

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
        reader = PIECES.of("reader")[self.format]
        if not issubclass(reader, DataFormat):
            raise ValueError(f"found {self.format}, whose class {reader.__name__} is no Reader; mend its package")
        if reader.needs_claim and self.claim_name is None:
            raise ValueError(f"found the format {self.format} without claimName; name the folder below the data root")
        if reader.needs_manifest and self.manifest is None:
            raise ValueError(f"found the format {self.format} without manifest; name the CSV file below the folder")
        return self


class ServerData(DataSection):
    """Labelled images at the server."""

    use: Literal["All", "Test", "Validation", "Anchors"] = Field("All", description="Images of the pool that are used.")
    partition_file: PathBelow | None = Field(
        None, description="Partition file, below the folder, with the images of `use`."
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
    def _drawn(self) -> Self:
        sizes = {
            "Test": ("testPercent", self.test_percent, "the percentage of the images that is the test part"),
            "Validation": ("validationPercent", self.validation_percent, "the percentage that is the validation part"),
            "Anchors": ("anchors", self.anchors, "the number of images that the server has"),
        }
        if self.use in sizes and self.partition_file is None:
            field, value, what = sizes[self.use]
            if not value:
                raise ValueError(f"found use {self.use} without {field}; set {what}")
        return self


class SiloData(DataSection):
    """Images of a silo."""

    use: Literal["All", "Part"] = Field(
        "All",
        description="Images of the pool that are used. Part: this silo's part.",
    )
    labelled_percent: Annotated[int, Field(ge=0, le=100)] = Field(
        100, description="Percentage of each class that keeps its labels."
    )
    partition: Partition | None = Field(None, description="Division of the pool's other images among silos.")
    class_counts: Annotated[dict[Label, Annotated[int, Field(ge=0, le=100_000_000)]], Field(max_length=1000)] = Field(
        {},
        description="How many images of each class there are, where records tell that of images without labels.\n\nPseudo-labels keep to "
        "these shares, and the server is told the counts where the loss needs them. A class that is not named has none.",
    )
    on_change: Literal["Refuse", "Allow"] = Field(
        "Refuse", description="Whether the silo goes on with images that changed since training began."
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
    def _divided(self) -> Self:
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
