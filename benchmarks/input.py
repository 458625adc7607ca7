"""Images into training steps: ``make bench-input``.

Draws photographs of two sizes as JPEG, 12-bit radiographs as DICOM, and their embeddings, and measures on one processor how many images a second
a trainer gets as its loss sees them: from memory, from the store of pictures (`anchorage.learning.data.picture_store`), and as embeddings of a
frozen encoder. Beside it: PyTorch's DataLoader over the same JPEG files (Pillow; crop, flip, normalise) with 0, 1 and 2 workers, and the training
step alone. A step waits for its input, so the share of waiting is input / (input + step). The least of several times each.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import torch
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataset import FileMetaDataset
from pydicom.uid import ComputedRadiographyImageStorage, ExplicitVRLittleEndian, generate_uid
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from anchorage.api.data import SiloData
from anchorage.api.model import ModelDescription
from anchorage.learning.data import read, reading
from anchorage.learning.data.picture_store import PictureStore
from anchorage.learning.data.stored_pictures import Pictures, StoredPictures
from anchorage.learning.draws import Draws
from anchorage.learning.encoded_views import views_of
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.learning.network import Network
from anchorage.learning.views import Views
from anchorage.methods.preset import slots
from anchorage.pieces.task.classification import Classification

CLASSES = ("benign", "malignant")
BATCH = 16
NETWORK = "torchvision/mobilenet_v3_small"
"""A network whose step on one processor is short, so that its input weighs."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def photograph(rng: np.random.Generator, side: int) -> NDArray[np.uint8]:
    """Draw a smooth picture with some noise, uint8 [side, side, 3]."""
    coarse = Image.fromarray(rng.integers(0, 256, (14, 14, 3), np.uint8)).resize((side, side), Image.Resampling.BICUBIC)
    return (np.asarray(coarse, np.int16) + rng.integers(-8, 9, (side, side, 1))).clip(0, 255).astype(np.uint8)


def write_jpeg(file: Path, pixels: NDArray[np.uint8]) -> None:
    """Write a picture as cameras do."""
    Image.fromarray(pixels).save(file.with_suffix(".jpg"), quality=85)


def write_radiograph(file: Path, pixels: NDArray[np.uint8]) -> None:
    """Write the first channel of a picture as a radiograph of 12 bits without compression."""
    dataset = pydicom.Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.SOPClassUID, dataset.SOPInstanceUID = ComputedRadiographyImageStorage, generate_uid()
    dataset.Rows, dataset.Columns = pixels.shape[:2]
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 12, 11, 0
    dataset.PixelData = (pixels[..., 0].astype(np.uint16) * 16).tobytes()
    dataset.save_as(file.with_suffix(".dcm"), enforce_file_format=True)


def write_site(folder: Path, count: int, side: int, write: Callable[[Path, NDArray[np.uint8]], None]) -> None:
    """Write so many images, in a folder per class."""
    rng = np.random.default_rng(side)
    for number in range(count):
        file = folder / CLASSES[number % 2] / f"{number:05d}"
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, photograph(rng, side))


class Decoded(Dataset[Tensor]):
    """Files as PyTorch's users read them: decoded whenever they are asked for, cropped, flipped, normalised."""

    def __init__(self, files: Sequence[Path], side: int) -> None:
        self._files = files
        steps = [v2.PILToTensor(), v2.Resize(side, antialias=True), v2.RandomCrop(side, padding=side // 8)]
        steps += [v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
        self._transform = v2.Compose(steps)

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, row: int) -> Tensor:
        """Return one image, float32 [3, side, side]."""
        with Image.open(self._files[row]) as image:
            view: Tensor = self._transform(image.convert("RGB"))
        return view


def loader_epoch(files: Sequence[Path], side: int, workers: int) -> None:
    """Read every file once by PyTorch's DataLoader."""
    for _ in DataLoader(Decoded(files, side), BATCH, shuffle=True, num_workers=workers):
        pass


def input_epoch(views: Views, batches: Sequence[Tensor]) -> None:
    """Make every image once as a loss sees it."""
    generator = torch.Generator()
    for batch in batches:
        views.learnt(batch, generator)


def step_epoch(network: Network, views: Views, batches: Sequence[Tensor]) -> None:
    """Take a step on the same batch as often as there are batches."""
    images = views.learnt(batches[0], torch.Generator())
    optimiser = torch.optim.SGD(network.parameters(), lr=1e-6)
    network.train()
    for batch in batches:
        optimiser.zero_grad(set_to_none=True)
        network(images[: len(batch)]).square().mean().backward()
        optimiser.step()


def least(work: Callable[[], None], repeats: int) -> float:
    """Return the least seconds of several times."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def measure(
    images: Pictures, model: ModelDescription, method: str, repeats: int, network: Network | None = None
) -> dict[str, float]:
    """Return milliseconds of a batch's input and of its step, and what of both is input."""
    training = TrainingMethod.of(slots(method))
    network = build_model(model, training, 1) if network is None else network
    views = views_of(images, model, training, torch.device("cpu"), Draws(1))
    views.encoded_by(network)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(images)))
    batches = order.split(BATCH)
    input_epoch(views, batches[:1])  # which encodes all, where an encoder is frozen
    seconds = least(partial(input_epoch, views, batches), repeats) / len(batches)
    step = least(partial(step_epoch, network, views, batches[:4]), repeats) / len(batches[:4])
    return {
        "images_per_second": BATCH / seconds,
        "input_ms": 1e3 * seconds,
        "step_ms": 1e3 * step,
        "waiting": seconds / (seconds + step),
    }


def main() -> None:
    """Print a line per kind of input, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    reading.IN_MEMORY_BYTES = 0  # whatever may lie in the store does
    rows: dict[str, dict[str, Any]] = {}

    def tell(title: str, figures: dict[str, float]) -> None:
        rows[title] = figures
        print(f"{title:>28}: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()), flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sites = {
            "JPEG 224": (224, 3, write_jpeg),
            "JPEG 512": (512, 3, write_jpeg),
            "DICOM 512": (512, 1, write_radiograph),
        }
        for title, (side, channels, write) in sites.items():
            claim = title.lower().replace(" ", "-")
            write_site(folder / claim, arguments.images, side, write)
            model = ModelDescription(
                network=NETWORK, task=Classification(classes=CLASSES), image_size=side, channels=channels
            )
            section = SiloData(format="ImageFolder", claim_name=claim)
            pictures = read(section, folder, model, 1, store=PictureStore(folder / "store"))[0].images
            assert isinstance(pictures, StoredPictures), "they are in the store"
            tell(f"{title}, store", measure(pictures, model, "FedAvg", arguments.repeats))
            tell(f"{title}, memory", measure(pictures.read(slice(None)), model, "FedAvg", arguments.repeats))
            if title == "JPEG 224":
                frozen = model.model_copy(update={"trainable": "Head"})
                tell("embeddings", measure(pictures, frozen, "FedAvg", arguments.repeats))
            if channels == 3:
                files = sorted((folder / claim).rglob("*.jpg"))
                for workers in (0, 1, 2):
                    seconds = least(partial(loader_epoch, files, side, workers), arguments.repeats)
                    tell(f"{title}, DataLoader {workers}", {"images_per_second": len(files) / seconds})
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"benchmark": "input", "images": arguments.images, "rows": rows}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
