"""Volumes whose channels are files of their own, such as the sequences of an MR examination: in folders, tables, and as a model sees them."""

import nibabel
import numpy as np
import pytest
from drawn_images import write_table
from drawn_scans import write_nifti, write_series
from read_sections import section

from anchorage.api.errors import AnchorageError
from anchorage.api.model import ModelDescription
from anchorage.learning.data import Pools, read, volume_store
from anchorage.learning.data.cases import read_scan
from anchorage.learning.data.decoding import RefusedImageError
from anchorage.learning.data.listing import REASONS
from anchorage.learning.data.sources import Channels, Series
from anchorage.pieces.task.segmentation import Segmentation

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # pydicom's, which the product never shows

TASK = Segmentation(classes=("background", "lesion"))
RNG = np.random.default_rng(0)
T1, T2, FLAIR = (RNG.integers(0, 1000 * (place + 1), (6, 5, 4)).astype(np.int16) for place in range(3))
MASK = (T1 > 500).astype(np.uint8)


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "root" / "site"
    folder.mkdir(parents=True)
    return folder


def listed(site, kind="ImageFolder", **fields):
    return Pools(volumes=True).choose(section(kind, **fields), site.parent, TASK, 1).listing


def parts(listing):
    """Return for each volume what its channels' files are called, and the name of its mask."""
    masks = listing.masks.files if listing.masks is not None else [None] * len(listing)
    return {
        name: (
            None
            if source is None
            else [len(part.files) if isinstance(part, Series) else part.name for part in source.parts],
            mask and mask.name,
        )
        for name, source, mask in zip(listing.ids, listing.sources, masks, strict=True)
    }


def reasons(listing):
    assert all(bad.reason in REASONS for bad in listing.bad.values())
    return {listing.ids[row]: (bad.reason, bad.detail) for row, bad in listing.bad.items()}


@pytest.mark.parametrize(
    ("image", "mask", "endings"),
    [
        ("imagesTr/{}{}.nii.gz", "labelsTr/{}.nii.gz", ("_0000", "_0001")),
        ("images/{}{}.nii", "masks/{}.nii", ("_T1", "_T2")),
        ("{0}/{0}{1}.nii.gz", "{0}/{0}_seg.nii.gz", ("_t1", "_t1ce")),
        ("{0}/{0}{1}.nii.gz", "{0}/{0}_t1_mask.nii.gz", ("_t2", "_t1")),
    ],
)
def test_files_of_a_folder_are_channels_by_the_endings_of_their_names(site, image, mask, endings):
    for case in ("a", "b"):
        for ending, values in zip(endings, (T1, T2), strict=True):
            write_nifti(site / image.format(case, ending), values)
    write_nifti(site / mask.format("a"), MASK)
    listing = listed(site, channel_files=endings)
    names = {case: [image.format(case, ending).rpartition("/")[2] for ending in endings] for case in ("a", "b")}
    assert parts(listing) == {
        image.format("a", endings[0]): (names["a"], mask.format("a").rpartition("/")[2]),
        image.format("b", endings[0]): (names["b"], None),
    }
    assert not listing.bad and listing.labels.tolist() == [0, -1] and not listing.left_out


def test_a_volume_without_a_channel_is_bad_and_files_of_no_channel_are_left_out(site):
    for case, endings in (("a", "t1 t2"), ("b", "t2"), ("c", "t1 t2 flair")):
        for ending in endings.split():
            write_nifti(site / case / f"{case}_{ending}.nii.gz", T1)
    write_nifti(site / "c" / "c_T2.nii", T2)
    listing = listed(site, channel_files=("_t1", "_t2"))
    assert parts(listing)["a/a_t1.nii.gz"][0] == ["a_t1.nii.gz", "a_t2.nii.gz"]
    assert reasons(listing) == {
        "b/b_t2.nii.gz": ("ChannelMissing", "no file of its name ends in _t1"),
        "c/c_t1.nii.gz": ("Ambiguous", "several files: c/c_T2.nii, c/c_t2.nii.gz"),
    }
    assert listing.left_out == {"none of the channels": ("c/c_flair.nii.gz",)}


def test_a_table_names_the_channels_by_columns(site):
    write_nifti(site / "a" / "t1.nii.gz", T1)
    write_series(site / "a" / "t2", T2, uid="1.2.3", PatientID="p1")
    write_series(site / "b" / "t1", T1, uid="1.2.4", PatientID="p2")
    write_nifti(site / "b" / "t2.nii.gz", T2)
    write_nifti(site / "m" / "a.nii.gz", MASK)
    rows = [
        ("a/t1.nii.gz", "a/t2", "m/a.nii.gz"),
        ("b/t1", "b/t2.nii.gz", ""),
        ("b/t1", "", ""),
        ("a/t1.nii.gz", "a/t9.nii", ""),
    ]
    write_table(site / "table.csv", ["first", "second", "mask"], rows)
    listing = listed(site, "CsvManifest", channel_files=("first", "second"))
    assert listing.ids == ("a/t1.nii.gz", "b/t1", "b/t1", "a/t1.nii.gz")
    assert [source and [type(part).__name__ for part in source.parts] for source in listing.sources] == [
        ["PosixPath", "Series"],
        ["Series", "PosixPath"],
        None,
        None,
    ]
    assert {row: bad.reason for row, bad in listing.bad.items()} == {2: "ChannelMissing", 3: "Missing"}
    assert listing.groups[1] == "p2" and listing.labels.tolist() == [0, -1, -1, -1] and not listing.not_listed


def test_a_table_names_the_channels_by_series(site):
    write_series(site / "x", T1, uid="1.2.3")
    write_series(site / "y", T2, uid="1.2.4")
    write_table(site / "table.csv", ["t1", "t2"], [("1.2.3", "1.2.4"), ("1.2.3", "1.2.9")])
    listing = listed(site, "CsvManifest", channel_files=("t1", "t2"), match="SeriesInstanceUID")
    assert [source and [len(part.files) for part in source.parts] for source in listing.sources] == [[4, 4], None]
    assert [bad.reason for bad in listing.bad.values()] == ["Missing"]


def test_a_column_that_is_not_there_is_named(site):
    write_table(site / "table.csv", ["t1"], [("a.nii",)])
    with pytest.raises(AnchorageError, match='no column "t2"'):
        listed(site, "CsvManifest", channel_files=("t1", "t2"))


def scan(*sources):
    return read_scan(Channels(sources), len(sources))


def test_channels_are_those_of_one_file_in_their_order_however_they_are_stored(tmp_path):
    affine = np.diag([0.9, 1.1, 2.5, 1])
    together = read_scan(write_nifti(tmp_path / "all.nii", np.stack([T1, T2, FLAIR], 3), affine), 3)
    t1, t2 = (write_nifti(tmp_path / f"{name}.nii", values, affine) for name, values in (("t1", T1), ("t2", T2)))
    to = nibabel.orientations.axcodes2ornt(tuple("PSR"))
    nibabel.save(nibabel.Nifti1Image(FLAIR, affine).as_reoriented(to), tmp_path / "flair.nii")
    apart = scan(t1, t2, tmp_path / "flair.nii")
    np.testing.assert_array_equal(apart.values, together.values)
    assert apart.grid.is_near(together.grid) and (apart.low, apart.high) == (together.low, together.high)
    assert len({scan(*order).digest for order in ((t1, t2), (t2, t1), (t1, t1))} | {apart.digest}) == 4


def test_channels_that_lie_elsewhere_are_refused(tmp_path):
    t1 = write_nifti(tmp_path / "t1.nii", T1)
    moved = np.eye(4)
    moved[2, 3] = 3
    with pytest.raises(RefusedImageError, match="channel 2 lies elsewhere than channel 1.* 3 mm") as refused:
        scan(t1, write_nifti(tmp_path / "moved.nii", T2, moved))
    assert refused.value.reason == "ChannelsDiffer"
    with pytest.raises(RefusedImageError, match="channel 3 has 6×5×3 voxels, channel 1 6×5×4"):
        scan(t1, t1, write_nifti(tmp_path / "small.nii", T2[..., :3]))
    with pytest.raises(RefusedImageError, match="2 channels, but 4 are needed"):
        read_scan(Channels((t1, t1)), 4)
    with pytest.raises(RefusedImageError, match="1 channels, but 2 are needed; name .* by channelFiles"):
        read_scan(t1, 2)


MODEL = ModelDescription.model_validate(
    {
        "network": "SmallUNet",
        "task": TASK,
        "channels": 2,
        "volume": {"spacing": ("1", "1", "1"), "patch": (8, 8, 8)},
        "intensity": {"zScore": {}},
    }
)


@pytest.fixture
def pairs(site):
    """Give a section of two volumes with two channels and a mask."""
    for case in ("a", "b"):
        for ending, values in (("t1", T1), ("t2", T2)):
            write_nifti(site / "images" / f"{case}_{ending}.nii.gz", values + ord(case))
        write_nifti(site / "masks" / f"{case}.nii.gz", MASK)
    return section(channel_files=("_t1", "_t2"))


def test_a_model_sees_every_channel_by_its_own_statistics(site, pairs):
    images, report = read(pairs, site.parent, MODEL, 1)
    assert report.usable == 2 and images.images.shape == (2, 2, 8, 8, 8)
    levels = images.images.volume(0).patch((0, 0, 0), (6, 5, 4))[0] / 65535
    for channel, values in enumerate((T1, T2)):
        scaled = 0.5 + (values - values.mean()) / values.std() / 10
        np.testing.assert_allclose(levels[channel], scaled.clip(0, 1), atol=1e-4)


def test_a_volume_is_decoded_anew_only_when_one_of_its_channels_changed(site, pairs, tmp_path, monkeypatch):
    def decoded():
        rows = []
        real = volume_store.read_case
        with monkeypatch.context() as patched:
            patched.setattr(
                volume_store, "read_case", lambda listing, row, model: rows.append(row) or real(listing, row, model)
            )
            listing = Pools(volumes=True).choose(pairs, site.parent, TASK, 1).listing
            volume_store.VolumeStore(tmp_path / "store").read("pairs", listing, MODEL)
        return rows

    assert decoded() == [0, 1] and decoded() == []
    write_nifti(site / "images" / "b_t2.nii.gz", T2 + 1)
    assert decoded() == [1]


def test_flat_images_have_no_channels_in_files_of_their_own(site):
    write_nifti(site / "a_t1.nii.gz", T1)
    with pytest.raises(AnchorageError, match="channelFiles for 2 channels, but the model takes flat images"):
        Pools().choose(section(channel_files=("_t1", "_t2")), site.parent, TASK, 1)
    with pytest.raises(ValueError, match="DicomFolder, which does not tell channels apart"):
        section("DicomFolder", channel_files=("_t1", "_t2"))
    with pytest.raises(ValueError, match="name one channel twice"):
        section(channel_files=("_t1", "_t1"))
