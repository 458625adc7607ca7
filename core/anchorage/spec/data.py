"""Where images and labels come from, and which of them are meant."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from anchorage.spec.base import PATH_PATTERN, Document, Name, PositiveDecimal

AugmentationName = Literal["Digits", "Natural", "Dermoscopy"]
"""Normalisation and augmentation that fit a kind of image (`anchorage.data.augmentation`)."""


def _stays_below(path: str) -> str:
    if ".." in path.split("/"):
        raise ValueError(f'found "{path}", allowed is a path that stays below its folder')
    return path


PathBelow = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=1024, pattern=PATH_PATTERN),
    AfterValidator(_stays_below),
]
"""A relative path without ``..``."""

Column = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=256)]
Label = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=256)]


class Partition(Document):
    """How one pool of images is divided among silos (METHODS.md 4.2, 4.3)."""

    recipe: Literal["Iid", "PerClient", "PerClass", "PerClassCapped", "File"] = Field(
        description="Iid: at random. PerClient, PerClass, PerClassCapped: Dirichlet recipes D1, D2, D3. File: a published list."
    )
    parts: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="Number of silos; needed by every recipe but File."
    )
    part: Annotated[int, Field(ge=0, le=99_999)] | None = Field(None, description="This silo's part, from 0.")
    alpha: PositiveDecimal = Field("0.5", description="Dirichlet concentration: small is uneven, 1000 is nearly even.")
    sizes: Literal["Uniform", "PowerLaw", "Skewed"] = Field("Uniform", description="Iid: how large the parts are.")
    min_size: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        10, description="PerClass, PerClassCapped: draw again until every part has so many images."
    )
    file: PathBelow | None = Field(
        None,
        description="File: a CSV file with an image column and columns silo and (optionally) part, "
        "or a text file with one image or row number a line; below the section's folder.",
    )
    silo: Label | None = Field(None, description="File: whose rows of the CSV file are meant.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.recipe == "File":
            if self.file is None:
                raise ValueError("found the recipe File without file; name the list below the section's folder")
        elif self.parts is None:
            raise ValueError(f"found the recipe {self.recipe} without parts; say among how many silos the images go")
        elif self.part is not None and self.part >= self.parts:
            raise ValueError(f"found part {self.part}, allowed are 0 to {self.parts - 1}")
        return self


class DataSection(Document):
    """A folder of images, or a part of one.

    Sections that share one pool of images (`use`) agree on testPercent, anchors, groupBy and partition: they draw the test part first,
    then the anchors, then the parts of the silos, each from the run's seed.
    """

    format: Literal["Digits", "ImageFolder", "CsvManifest"] = Field(
        description="Digits: scikit-learn's bundled digits. ImageFolder: one folder per class, or a flat one without labels. "
        "CsvManifest: a table of images, with a label column or one-hot columns."
    )
    claim_name: Name | None = Field(None, description="Volume claim, or folder below the data root; Digits needs none.")
    path: PathBelow = Field(".", description="Folder of the images below the claim.")
    manifest: PathBelow | None = Field(None, description="CsvManifest: the CSV file, below the folder.")
    image_column: Column | None = Field(
        None, description="CsvManifest: absent: image, image_id, id, isic_id, file, filename or path, else the first."
    )
    label_column: Column | None = Field(
        None, description="CsvManifest: absent: label, class, target, diagnosis or dx, else one-hot columns."
    )
    group_by: Column | None = Field(
        None,
        description="CsvManifest: images with the same value never go to both sides of the test split; "
        "absent: patient_id or lesion_id where there is one.",
    )
    classes: Annotated[tuple[Label, ...], Field(max_length=10_000)] = Field(
        (), description="Names of the classes in the order of the model's outputs; absent: as found."
    )
    on_bad_image: Literal["Refuse", "Skip"] = Field(
        "Refuse",
        description="What an unreadable or mislabelled image does: end the run before round 1, or be left out.",
    )
    use: Literal["All", "Test", "Anchors", "Part"] = Field("All", description="Which images of the pool are meant.")
    test_percent: Annotated[int, Field(ge=0, le=90)] = Field(0, description="Share of the pool held out for the test.")
    anchors: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Images of the pool that the server has with labels, the same number of each class."
    )
    labelled_percent: Annotated[int, Field(ge=0, le=100)] = Field(
        100, description="Share of the images meant that keep their labels, of each class."
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
