"""Memory and time of a silo with CT series: ``make bench-volumes``.

Draws series of SLICES slices of 512 × 512 with masks of a ball into a folder, then starts three processes one after another: the first decodes all
series and trains STEPS steps, the second trains as many from the store, and the third only imports what they import. Prints the seconds until the
first step, and the peak memory of each (resident, from the kernel).
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nibabel
import numpy as np
from pydicom import Dataset
from pydicom.dataset import FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

SIDE = 512
SPACING = (0.8, 0.8, 1.5)
PATCH = (64, 64, 64)


def draw(folder: Path, series: int, slices: int) -> None:
    """Write the series, their masks, and a table."""
    rng = np.random.default_rng(0)
    noise = rng.integers(-50, 50, (SIDE, SIDE), np.int16)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    (folder / "masks").mkdir(parents=True)
    table = ["image,mask,patient"]
    for number in range(series):
        place = folder / f"series-{number:02d}"
        place.mkdir()
        uid = generate_uid()
        centre = rng.integers(150, 350, 2)
        mask = np.zeros((SIDE, SIDE, slices), np.uint8)
        for height in range(slices):
            radius = 60 - abs(height - slices // 2) * 120 // slices
            ball = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 < radius**2
            mask[:, :, height] = ball.T
            _slice(place / f"{height:04d}.dcm", uid, height, noise + np.where(ball, 80, -100).astype(np.int16))
        affine = np.diag([-SPACING[0], -SPACING[1], SPACING[2], 1.0])
        nibabel.save(nibabel.Nifti1Image(mask, affine), folder / "masks" / f"{number:02d}.nii.gz")
        table.append(f"series-{number:02d},masks/{number:02d}.nii.gz,p{number}")
    (folder / "cases.csv").write_text("\n".join(table))


def _slice(file: Path, series: str, height: int, pixels: np.ndarray) -> None:
    dataset = Dataset()
    dataset.SOPClassUID, dataset.SOPInstanceUID, dataset.SeriesInstanceUID = CTImageStorage, generate_uid(), series
    dataset.Modality, dataset.PatientID, dataset.ImageType = "CT", "1", ["ORIGINAL", "PRIMARY", "AXIAL"]
    dataset.ImagePositionPatient = [0, 0, height * SPACING[2]]
    dataset.ImageOrientationPatient, dataset.PixelSpacing = [1, 0, 0, 0, 1, 0], [SPACING[1], SPACING[0]]
    dataset.Rows = dataset.Columns = SIDE
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 16, 15, 1
    dataset.RescaleSlope, dataset.RescaleIntercept = 1, 0
    dataset.PixelData = pixels.astype("<i2").tobytes()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.save_as(file, enforce_file_format=True)


def work(folder: Path, steps: int) -> None:
    """Read, train, and print what it took."""
    import torch

    from anchorage.api.data import SiloData
    from anchorage.api.model import ModelDescription
    from anchorage.learning.data import read
    from anchorage.learning.data.picture_store import PictureStore
    from anchorage.learning.draws import Draws
    from anchorage.learning.encoded_views import views_of
    from anchorage.learning.method import TrainingMethod
    from anchorage.learning.models import build_model
    from anchorage.methods.preset import slots

    def memory() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

    if not steps:
        print(json.dumps({"seconds": 0, "peakMiB": memory()}))
        return
    started = time.perf_counter()
    model = ModelDescription.model_validate(
        {
            "network": "SmallUNet",
            "channels": 1,
            "volume": {"spacing": tuple(map(str, SPACING)), "patch": PATCH},
            "intensity": {"window": {"low": "-160", "high": "240"}},
            "task": {"segmentation": {"classes": ("background", "ball")}},
        }
    )
    section = SiloData(
        format="CsvManifest", claim_name=folder.name, manifest="cases.csv", image_column="image", mask_column="mask"
    )
    images, report = read(section, folder.parent, model, 0, store=PictureStore(folder.parent / "store"))
    assert not report.bad, report.bad
    method = TrainingMethod.of(slots("FedAvg"))
    network = build_model(model, method, 0).train()
    optimiser = torch.optim.AdamW(network.parameters(), 1e-3)
    views, drawn = (
        views_of(images.images, model, method, torch.device("cpu"), Draws(0)),
        torch.Generator().manual_seed(0),
    )
    first, losses = 0.0, []
    for step in range(steps):
        rows = torch.tensor([2 * step % len(images), (2 * step + 1) % len(images)])
        patches, masks = views.with_labels("learnt", rows, torch.empty(0), drawn)
        optimiser.zero_grad()
        loss = model.task.loss(network(patches), masks)  # type: ignore[attr-defined]
        loss.backward()
        optimiser.step()
        losses.append(float(loss))
        first = first or time.perf_counter() - started
    print(json.dumps({"volumes": len(images), "seconds": first, "peakMiB": memory(), "loss": losses[-1]}))


def main() -> None:
    """Draw, start the processes, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=20)
    parser.add_argument("--slices", type=int, default=300)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work is not None:
        work(arguments.work, arguments.steps)
        return
    report: dict[str, object] = {"series": arguments.series, "slices": arguments.slices}
    with tempfile.TemporaryDirectory(prefix="anchorage-bench-volumes-") as folder:
        claim = Path(folder) / "claim"
        draw(claim, arguments.series, arguments.slices)
        for name, steps in (("first start", arguments.steps), ("second start", arguments.steps), ("imports alone", 0)):
            command = [sys.executable, __file__, "--work", str(claim), "--steps", str(steps)]
            output = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ).stdout
            report[name] = json.loads(output.splitlines()[-1])
            print(name, report[name])
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
