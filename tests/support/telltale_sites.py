"""Sites whose files, folders, tables and tags hold words that must not leave them, each word once in the world.

A further format is a function more in `SITES` (and in `TRAINABLE`, where images are left): it draws images below a folder with words from `Words`,
and returns the data section that reads them.
"""

import os
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import numpy as np
from drawn_images import draw, write_table
from drawn_scans import REPORT, dataset
from nibabel import Nifti1Image, save
from nibabel.nifti1 import Nifti1Extension
from PIL import Image, PngImagePlugin, TiffImagePlugin
from pydicom import dcmread

from anchorage.api.data import Partition, SiloData

CLAIM = "site"
CLASSES = ("0", "1")


class Words:
    """Makes words such as ``Meierq3fa91c07be`` and remembers them."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self.made: list[str] = []

    def __call__(self, kind: str) -> str:
        """Return a word that begins with `kind`."""
        self.made.append(f"{kind}q{sha256(f'{self._seed} {len(self.made)}'.encode()).hexdigest()[:12]}")
        return self.made[-1]

    def short(self, kind: str, most: int) -> str:
        """Return one of so many characters at most, for fields that hold no more."""
        self.made.append(self(kind)[:most])
        del self.made[-2]
        return self.made[-1]

    def number(self, kind: str) -> str:
        """Return one that ends in digits alone, as names of patients do: ``patient 270316748813``."""
        self.made.append(
            f"{kind}{10**11 + int(sha256(f'{self._seed} {len(self.made)}'.encode()).hexdigest(), 16) % (9 * 10**11)}"
        )
        return self.made[-1]

    def found_in(self, text: str | bytes) -> list[str]:
        """Return the words that a text holds, in any case."""
        plain = (text if isinstance(text, str) else text.decode("latin-1")).casefold()
        return [word for word in self.made if word.casefold() in plain]


Site = Callable[[Path, Words], SiloData]


def png(file: Path, words: Words, seed: int) -> Path:
    """Write an image with texts beside its pixels."""
    file.parent.mkdir(parents=True, exist_ok=True)
    texts = PngImagePlugin.PngInfo()
    texts.add_text("Author", words("author"))
    texts.add_itxt("Comment", words("comment"))
    draw("L", seed=seed).save(file, pnginfo=texts)
    return file


def tagged(folder: Path, words: Words, seed: int) -> None:
    """Write a JPEG and a TIFF with names in their tags, which Pillow writes into its log."""
    exif = Image.Exif()
    exif[0x010E], exif[0x013B] = words("description"), words("artist")
    draw("RGB", seed=seed).save(folder / f"{words('exif')}.jpg", exif=exif)
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[0x010E], tags[0x013C] = words("description"), words("host")
    draw("L", seed=seed + 1).save(folder / f"{words('tiff')}.tif", tiffinfo=tags)


def damaged(folder: Path, words: Words) -> None:
    """Write files that cannot be used, for every reason that a folder has."""
    cut = png(folder / f"{words('cut')}.png", words, 90)
    cut.write_bytes(cut.read_bytes()[:-60])
    exif = Image.Exif()
    exif[0x010E] = words("description")
    jpeg = folder / f"{words('jpeg')}.jpg"
    draw("RGB", size=(64, 64), seed=91).save(jpeg, exif=exif)
    jpeg.write_bytes(jpeg.read_bytes()[:-700])
    (folder / f"{words('text')}.png").write_text(f"patient {words('Text')}")
    (folder / f"{words('empty')}.png").touch()
    Image.new("L", (12, 12), 7).save(folder / f"{words('blank')}.png")
    Image.fromarray(np.full((9, 9), -1.5, np.float32)).save(folder / f"{words('float')}.tif")
    outside = png(folder.parents[2] / words("elsewhere") / f"{words('target')}.png", words, 92)
    (folder / f"{words('link')}.png").symlink_to(outside)
    if os.geteuid():  # root may read everything
        png(folder / f"{words('locked')}.png", words, 93).chmod(0)
    (folder / f"{words('scan')}.dcm").write_bytes(b"\0" * 128 + b"DICM" + words("Name").encode())
    (folder / f"{words('volume')}.nii").write_bytes(words("descrip").encode())


def folders(root: Path, words: Words) -> SiloData:
    """Folders of classes with folders of patients, tags, duplicates, masks, and damaged files."""
    below = words("study")
    for label in CLASSES:
        patient = root / CLAIM / below / label / words.number("patient ")
        good = [png(patient / f"{words('image')}.png", words, 10 * int(label) + place) for place in range(4)]
        (patient / f"{words('copy')}.png").write_bytes(good[0].read_bytes())
        Image.new("1", (24, 18)).save(patient / f"{good[1].stem}_mask.png")
        tagged(patient, words, 40 + 2 * int(label))
    damaged(root / CLAIM / below / "0", words)
    (root / CLAIM / below / "1" / f"{words('conflict')}.png").write_bytes(good[0].read_bytes())
    return SiloData(format="ImageFolder", claim_name=CLAIM, path=below)


def foreign_folders(root: Path, words: Words) -> SiloData:
    """Folders beside those of classes whose names are none."""
    section = folders(root, words)
    for place in range(3):
        png(root / CLAIM / section.path / f"{words('Diagnosis')} {place}" / f"{words('image')}.png", words, 60 + place)
    return section


def table(root: Path, words: Words) -> SiloData:
    """A table with names of patients, free text as labels, and every fault that a row can have."""
    below, claim = words("study"), root / CLAIM
    rows: list[tuple[str, str, str]] = []
    for place in range(8):
        file = png(claim / below / words("folder") / f"{words('image')}.png", words, place)
        rows.append((file.stem, str(place % 2), words("Name")))
    damaged(claim / below / "0", words)
    rows += [(file.name, "1", words("Name")) for file in sorted((claim / below / "0").iterdir())]
    for place in range(2):
        png(claim / below / f"{place}" / "twice.png", words, 70 + place)
    rows += [("twice", "0", words("Name")), (rows[0][0], "1", rows[0][2]), (words("missing"), "0", words("Name"))]
    rows += [(rows[1][0], "1", rows[1][2])]
    free = png(claim / below / f"{words('image')}.png", words, 80)
    rows.append((free.name, f"patient {words('Label')}, born {words('date')}", words("Name")))
    png(claim / below / f"{words('unlisted')}.png", words, 81)
    write_table(claim / below / f"{words('table')}.csv", ["image", "label", f"patients of Dr {words('Doctor')}"], rows)
    (file,) = (claim / below).glob("table*.csv")
    return SiloData(format="CsvManifest", claim_name=CLAIM, path=below, manifest=file.name)


def _with_table(root: Path, words: Words, *rows: str, **fields: object) -> SiloData:
    """Draw two images and a table of these rows, in which ``%`` is a further word and ``@`` and ``#`` are the images."""
    below = words("study")
    names = [png(root / CLAIM / below / f"{words('image')}.png", words, place).stem for place in range(2)]
    file = root / CLAIM / below / f"{words('table')}.csv"
    text = "\n".join(rows).replace("@", names[0]).replace("#", names[1])
    while "%" in text:
        text = text.replace("%", words("Cell"), 1)
    file.write_bytes(text.replace("£", "\xff").encode("latin-1"))
    return SiloData(format="CsvManifest", claim_name=CLAIM, path=below, manifest=file.name, **fields)


def _with_list(root: Path, words: Words, text: str, suffix: str, silo: str | None = None) -> SiloData:
    """Draw a folder and a partition file of this text, in which ``%`` is a further word."""
    for label in CLASSES:
        png(root / CLAIM / label / f"{words('image')}.png", words, int(label))
    while "%" in text:
        text = text.replace("%", words("Listed"), 1)
    (root / CLAIM / f"{(name := words('list'))}{suffix}").write_text(text)
    partition = Partition(recipe="File", file=f"{name}{suffix}", silo=silo or words("Part"))
    return SiloData(format="ImageFolder", claim_name=CLAIM, use="Part", partition=partition)


def no_image(root: Path, words: Words) -> SiloData:
    """Files of suffixes that nobody knows."""
    folder = root / CLAIM / words("study")
    folder.mkdir(parents=True)
    (folder / f"scan.{words('Suffix')}").touch()
    return SiloData(format="ImageFolder", claim_name=CLAIM, path=folder.name)


def damaged_only(root: Path, words: Words) -> SiloData:
    """Nothing that can be used."""
    (root / CLAIM / "x" / "0").mkdir(parents=True)
    damaged(root / CLAIM / "x" / "0", words)
    return SiloData(format="ImageFolder", claim_name=CLAIM, path="x")


def no_archive(root: Path, words: Words) -> SiloData:
    """A file that is called as one of MedMNIST is, and is none."""
    (root / CLAIM).mkdir()
    (root / CLAIM / f"{(name := words('archive'))}.npz").write_text(words("content"))
    return SiloData(format="MedMnist", claim_name=CLAIM, manifest=f"{name}.npz")


def dicom(file: Path, words: Words, seed: int, **elements: object) -> Path:
    """Write a DICOM file with words in every element that may name somebody."""
    texts = (
        "PatientName", "PatientID", "IssuerOfPatientID", "OtherPatientNames", "PatientAddress", "AccessionNumber", "StudyID", "InstitutionName",
        "InstitutionAddress", "StationName", "DeviceSerialNumber", "ReferringPhysicianName", "OperatorsName", "StudyDescription",
        "SeriesDescription", "ImageComments", "PatientComments", "ProtocolName", "WindowCenterWidthExplanation",
    )  # fmt: skip
    uids = ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "FrameOfReferenceUID")
    named = {text: words.short(text[:9].lower(), 16) for text in texts}
    pixels = np.random.default_rng(seed).integers(0, 4096, (24, 18)).astype(np.uint16)
    scan = dataset(pixels, bits=12, **{**named, **{uid: words.number("1.2.276.0.") for uid in uids}, **elements})
    scan.private_block(0x0011, words("creator"), create=True).add_new(0x01, "LO", words("private"))
    scan.add_new(0x60000022, "LO", words("overlay"))
    file.parent.mkdir(parents=True, exist_ok=True)
    scan.save_as(file, enforce_file_format=True)
    return file


def export(root: Path, words: Words) -> SiloData:
    """A PACS export: folders of patients and studies, files without suffixes, damaged ones, and objects that are no images."""
    below = root / CLAIM / words("export")
    for patient in range(3):
        study = below / CLASSES[patient % 2] / words.number("patient ") / words("study")
        for place in range(3):
            dicom(
                study / words.number("1.2.276.0."), words, 10 * patient + place, WindowCenter="2000", WindowWidth="3000"
            )
    dicom(study / words("text"), words, 50, BurnedInAnnotation="YES")
    dicom(study / words("raw"), words, 51, PresentationIntentType="FOR PROCESSING")
    dicom(study / words("report"), words, 52, SOPClassUID=REPORT)
    dicom(study / words("tiles"), words, 53, SOPClassUID="1.2.840.10008.5.1.4.1.1.77.1.6")
    (cut := dicom(study / words("cut"), words, 54)).write_bytes(cut.read_bytes()[:-300])
    for name, label, put in (
        ("slope", b"999 ", words.short("S", 4).encode()),
        ("syntax", b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.9.9\0"),
        ("photometric", b"MONOCHROME2 ", words.short("Photo", 12).encode()),
    ):
        file = dicom(study / f"{words(name)}.dcm", words, 55, RescaleSlope="999", RescaleIntercept="0")
        file.write_bytes(file.read_bytes().replace(label, put, 1))
    rng = np.random.default_rng(5)
    for _ in range(12):
        content = np.frombuffer(dicom(study / "x", words, 60).read_bytes(), np.uint8).copy()
        content[rng.integers(132, 1200, 6)] = rng.integers(0, 256, 6)
        (study / "x").rename(study / words("flipped")).write_bytes(content.tobytes())
    (below / "DICOMDIR").write_bytes(words("directory").encode())
    return SiloData(format="DicomFolder", claim_name=CLAIM, path=below.name)


def accessions(root: Path, words: Words) -> SiloData:
    """A table of accession numbers, of which one has no file."""
    section = export(root, words)
    file = root / CLAIM / section.path / f"{words('table')}.csv"
    files = sorted((root / CLAIM / section.path).rglob("1.2.276.0.*"))
    numbers = [str(dcmread(path, stop_before_pixels=True).AccessionNumber) for path in files]
    rows = [(number, str(place % 2)) for place, number in enumerate(numbers)]
    write_table(file, ["accession", "label"], [*rows, (words("gone"), "0")])
    return SiloData(
        format="CsvManifest",
        claim_name=CLAIM,
        path=section.path,
        manifest=file.name,
        image_column="accession",
        match="AccessionNumber",
    )


def no_patient(root: Path, words: Words) -> SiloData:
    """Files that lack what the section groups them by."""
    for place in range(3):
        dicom(root / CLAIM / "x" / words("file"), words, place, PatientID=None if place else words("p"))
    return SiloData(format="DicomFolder", claim_name=CLAIM, path="x", group_by="PatientID")


def volumes(root: Path, words: Words) -> SiloData:
    """NIfTI files with words in every text of their headers and in an extension, damaged ones, too."""
    for label in CLASSES:
        for place in range(5):
            values = np.random.default_rng(place).normal(500, 90, (9, 8, 3)).astype(np.float32)
            image = Nifti1Image(np.rint(values).clip(0).astype(np.int16), np.eye(4))
            for field, most in (("descrip", 80), ("db_name", 18), ("aux_file", 24), ("intent_name", 16)):
                image.header[field] = words.short("n", most).encode()
            image.header.extensions.append(Nifti1Extension("comment", words("extension").encode()))
            file = root / CLAIM / "x" / label / f"{words('sub')}.nii{'.gz' if place % 2 else ''}"
            file.parent.mkdir(parents=True, exist_ok=True)
            save(image, file)
    damage = file.with_name(f"{words('cut')}.nii")
    content = file.with_suffix("").with_suffix(".nii") if file.suffix == ".gz" else file
    damage.write_bytes(content.read_bytes()[:400])
    file.with_name(f"{words('text')}.nii.gz").write_bytes(words("content").encode())
    return SiloData(format="ImageFolder", claim_name=CLAIM, path="x", frames="Middle")


def _nifti(file: Path, values: np.ndarray, words: Words) -> Path:
    """Write a NIfTI file with words in every text of its header and in an extension."""
    image = Nifti1Image(values, np.eye(4))
    for field, most in (("descrip", 80), ("db_name", 18), ("aux_file", 24), ("intent_name", 16)):
        image.header[field] = words.short("n", most).encode()
    image.header.extensions.append(Nifti1Extension("comment", words("extension").encode()))
    file.parent.mkdir(parents=True, exist_ok=True)
    save(image, file)
    return file


def _body(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a volume with a bright box, and the box's mask."""
    mask = np.zeros((12, 11, 10), np.uint8)
    mask[3:8, 3:8, 3:8] = 1
    values = np.random.default_rng(seed).normal(500, 90, mask.shape).clip(0) + 500.0 * mask
    return values.astype(np.int16), mask


def masked_volumes(root: Path, words: Words) -> SiloData:
    """NIfTI files with masks; of some the mask is damaged, of another size, elsewhere, or has other values, and some volumes are damaged."""
    below = root / CLAIM / words("study")
    for place in range(9):
        values, mask = _body(place)
        name = f"{words('sub')}.nii.gz"
        image = _nifti(below / "images" / name, values, words)
        if place == 4:
            mask = mask[:-1]
        drawn = _nifti(below / "masks" / name, mask * (7 if place == 5 else 1), words)
        if place == 6:
            drawn.write_bytes(drawn.read_bytes()[:300])
        if place == 7:
            image.write_bytes(image.read_bytes()[:500])
        if place == 8:
            image.write_bytes(words("content").encode())
    return SiloData(format="ImageFolder", claim_name=CLAIM, path=below.name)


def series(root: Path, words: Words) -> SiloData:
    """A table of folders with a series each, whose files have words in every element; one has a gap, one two series, one is damaged."""
    below, rows = root / CLAIM / words("study"), []
    for place in range(6):
        values, mask = _body(place)
        folder, uid = below / words("patient"), words.number("1.2.276.0.")
        for height in range(10):
            if place == 2 and height == 4:
                continue
            file = dicom(
                folder / words("slice"),
                words,
                place,
                SeriesInstanceUID=words.number("1.2.276.0.") if place == 3 and height > 4 else uid,
                ImagePositionPatient=[0, 0, height],
                ImageOrientationPatient=[1, 0, 0, 0, 1, 0],
                PixelSpacing=[1, 1],
                Rows=11,
                Columns=12,
                PixelData=values[:, :, height].T.astype("<u2").tobytes(),
            )
        if place == 4:
            file.write_bytes(file.read_bytes()[:-100])
        drawn = _nifti(below / words("masks") / f"{words('mask')}.nii.gz", mask, words)
        flipped = Nifti1Image(mask, np.diag([-1.0, -1, 1, 1]))
        save(flipped, drawn)
        rows.append((folder.name, str(drawn.relative_to(below)), words("Name")))
    rows.append((words("missing"), rows[0][1], words("Name")))
    file = below / f"{words('table')}.csv"
    write_table(file, ["image", "mask", f"patients of Dr {words('Doctor')}"], rows)
    return SiloData(format="CsvManifest", claim_name=CLAIM, path=below.name, manifest=file.name)


VOLUME_SITES: Mapping[str, Site] = {"masked volumes": masked_volumes, "series": series}
"""Sites for a model of volumes."""
SITES: Mapping[str, Site] = {
    "export": export,
    "accessions": accessions,
    "no patient": no_patient,
    "volumes": volumes,
    "folders": folders,
    "foreign folders": foreign_folders,
    "table": table,
    "damaged only": damaged_only,
    "no image": no_image,
    "no archive": no_archive,
    "no folder": lambda root, words: SiloData(format="ImageFolder", claim_name=CLAIM, path=words("study")),
    "no table": lambda root, words: _with_table(root, words, "image", "@").model_copy(
        update={"manifest": f"{words('gone')}.csv"}
    ),
    "several findings": lambda root, words: _with_table(root, words, "image,label", "@,%|%", "#,0|1", "%,0", "%,1"),
    "one-hot": lambda root, words: _with_table(root, words, "image,0,1,%", "@,1,1,0", "#,%,0,0"),
    "foreign column": lambda root, words: _with_table(root, words, "image,0,1,%", "@,1,0,0", "#,0,0,1"),
    "column twice": lambda root, words: _with_table(root, words, f"image,{(name := words('Column'))},{name}", "@,0,1"),
    "many cells": lambda root, words: _with_table(root, words, "image,label", "@,0,%"),
    "no text": lambda root, words: _with_table(root, words, "image,label", "@,%£"),
    "no such column": lambda root, words: _with_table(root, words, "image,%", "@,0", label_column=words("Asked")),
    "split": lambda root, words: _with_table(root, words, "image,label,%,is_test", "@,0,%,1", "#,1,%,0"),
    "split by words": lambda root, words: _with_table(
        root, words, "image,label,part", "@,0,%", "#,1,%", split_column="part"
    ),
    "empty table": lambda root, words: _with_table(root, words, "image,label,%"),
    "class map": lambda root, words: _with_table(root, words, "image,label", "@,%", class_map={"x": words("Class")}),
    "class counts": lambda root, words: _with_table(
        root, words, "image,label", "@,0", "#,1", class_counts={words("Class"): 3}
    ),
    "no such part": lambda root, words: _with_list(root, words, '{"%": ["%"]}', ".json"),
    "other images": lambda root, words: _with_list(root, words, '{"a": ["%"]}', ".json", "a"),
    "no list": lambda root, words: _with_list(root, words, '{"a": {"%": 1}}', ".json", "a"),
    "no JSON": lambda root, words: _with_list(root, words, '{"%": [', ".json", "a"),
    "marks": lambda root, words: _with_list(root, words, "image,silo,labelled\n%,a,%", ".csv", "a"),
}
"""Sites by what is wrong with them."""
TRAINABLE = frozenset({"folders", "foreign folders", "table", "export", "accessions", "volumes"})
"""Those of which enough is left to train on without their bad images."""
