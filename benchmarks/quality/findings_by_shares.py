"""Would class shares help where an image has several findings? A trial outside the product, of the parts that SharesHead is made of.

python benchmarks/quality/findings_by_shares.py --weights DIR [--images 5000] [--draws 5] [--data DIR]

DIR is what `prepare_encoder.py --out` made; features are kept there. Six findings of HAM10000's images (concepts.csv), 256 principal components of
EfficientNet-Lite0's features at 96 pixels. About 60 images at the server have labels, with ten or more of each finding; silos have none, and are the
four real sites, or five that a Dirichlet distribution of concentration 0.5 draws for every combination of findings. Each finding has a linear
discriminant of its own, made of the labels first (shrinkage 0.9), then ten times of soft guesses of all images (0.1), which each silo corrects to the
share of images that have the finding: as it states, as it measures with 200 validation images, or as it estimates of densities. Printed is macro
AUROC on the test images: mean and deviation over the draws, and of the paired gains over the labels alone. *Chosen* takes for each finding the way
whose AUROC on the validation images is the best by more than its standard error, else the labels alone.
"""

import argparse
import csv
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import timm
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score
from torch import Tensor

from anchorage.algorithms.guesses import confusion, correct_logits, measured_shares
from anchorage.algorithms.moments import Moments, discriminant

SIDE, COMPONENTS, AT_ONCE = 96, 256, 64
LABELLED, FEWEST, VALIDATION, ROUNDS = 60, 10, 200, 10
"""Labelled images, of them at least so many with each finding; validation images; rounds of guesses."""
SMALLEST_SILO, CONCENTRATION, SILOS = 20, 0.5, 5
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WAYS = [(shares, temperature) for shares in ("stated", "measured", "estimated") for temperature in (1.0, 2.0, 3.0)]

Heads = list[tuple[Tensor, float]]
"""Weight [d] and bias of each finding."""


def features_of(data: Path, weights: Path, count: int) -> Mapping[str, NDArray[np.generic]]:
    """Return features [n, d], findings [n, L], sites and parts of so many images; kept beside the weights."""
    kept_file = weights / f"findings-{count}.npz"
    if not kept_file.exists():
        with (data / "isic18" / "concepts.csv").open(newline="", encoding="utf-8") as text:
            rows = list(csv.DictReader(text))
        rows = [rows[index] for index in np.random.default_rng(0).permutation(len(rows))[:count]]
        encoder = timm.create_model("tf_efficientnet_lite0", num_classes=0).eval()
        file = next((weights / "weights").glob("*.safetensors"))
        encoder.load_state_dict({n: t for n, t in load_file(file).items() if not n.startswith("classifier")})
        with np.load(data / "isic18" / "train_200x150.npz") as archive:
            content, offsets = archive["jpeg_bytes"], archive["offsets"]
            place = {name: index for index, name in enumerate(archive["image_id"].tolist())}
        features = []
        for start in range(0, len(rows), AT_ONCE):
            batch = [place[row["image_id"]] for row in rows[start : start + AT_ONCE]]
            images = torch.stack([_pixels(content[offsets[i] : offsets[i + 1]].tobytes()) for i in batch])
            with torch.no_grad():
                features.append(encoder(images).numpy())
        names = [name for name in rows[0] if name not in ("image_id", "lesion_id", "site", "part")]
        np.savez(
            kept_file,
            features=np.concatenate(features),
            findings=np.array([[int(row[name]) for name in names] for row in rows]),
            names=names,
            sites=[row["site"] for row in rows],
            parts=[row["part"] for row in rows],
        )
    with np.load(kept_file) as archive:
        return dict(archive)


def _pixels(jpeg: bytes) -> Tensor:
    image = Image.open(io.BytesIO(jpeg)).convert("RGB")
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((left, top, left + side, top + side)).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return torch.from_numpy((np.asarray(square, np.float32) / 255 - MEAN) / DEVIATION).permute(2, 0, 1).float()


def heads_of(z: Tensor, members: Sequence[Tensor], shrinkage: float) -> Heads:
    """Return each finding's discriminant; `members` [n, 2] say how much of an image is without it, and with it."""
    heads, seconds = Heads(), dict[bytes, Tensor]()
    for each in members:
        used = each.any(1)
        if used.numpy().tobytes() not in seconds:
            seconds[used.numpy().tobytes()] = z[used].T @ z[used]
        counts = torch.cat([each, each.new_zeros(len(each), 1)], 1)
        moments = Moments(counts.sum(0), counts.T @ z, seconds[used.numpy().tobytes()], "Pooled")
        weight, bias = discriminant(moments.means(), moments.within(), torch.zeros(2).double(), shrinkage)
        heads.append((weight[1] - weight[0], float(bias[1] - bias[0])))
    return heads


def guess(
    z: Tensor, head: tuple[Tensor, float], temperature: float, share: float | None, confused: Tensor | None
) -> Tensor:
    """Return how much of each image is guessed to be without a finding, and with it, float64 [n, 2]."""
    score = z @ head[0] + head[1]
    two = torch.stack([torch.zeros_like(score), score], 1)
    if confused is not None:
        shares = measured_shares(two.argmax(1), confused)
    else:
        shares = None if share is None else torch.tensor([1 - share, share]).double()
    return correct_logits(two, temperature, shares).softmax(1)


def dealt(kind: str, rows: NDArray[np.int64], draw: Mapping[str, NDArray], rng: np.random.Generator) -> list[NDArray]:
    """Return the rows of each silo."""
    if kind == "sites":
        every = [rows[draw["sites"][rows] == site] for site in np.unique(draw["sites"])]
    else:
        parts: list[list[NDArray]] = [[] for _ in range(SILOS)]
        combinations = np.unique(draw["findings"][rows].clip(0), axis=0, return_inverse=True)[1].ravel()
        for combination in np.unique(combinations):
            alike = rng.permutation(rows[combinations == combination])
            ends = (np.cumsum(rng.dirichlet([CONCENTRATION] * SILOS))[:-1] * len(alike)).astype(int)
            for part, some in zip(parts, np.split(alike, ends), strict=True):
                part.append(some)
        every = [np.concatenate(part) for part in parts]
    return [silo for silo in every if len(silo) > SMALLEST_SILO]


def play(kind: str, number: int, images: Mapping[str, NDArray]) -> Mapping[str, NDArray]:
    """Return AUROC on the test images by way and finding."""
    rng = np.random.default_rng([number, kind == "sites"])
    truth, parts = images["findings"], images["parts"]
    rows = np.flatnonzero(parts == "train")
    labelled = rng.choice(rows, LABELLED, replace=False)
    for finding in truth.T:
        more = rng.permutation(np.setdiff1d(rows[finding[rows] == 1], labelled))
        labelled = np.concatenate([labelled, more[: max(0, FEWEST - int((finding[labelled] == 1).sum()))]])
    validation = rng.choice(np.flatnonzero(parts == "val"), VALIDATION, replace=False)
    silos = dealt(kind, np.setdiff1d(rows, labelled), images, rng)
    z = torch.from_numpy(images["components"])
    every_row = np.concatenate([labelled, *silos])
    known = [_known(finding[labelled]) for finding in truth.T]

    def heads(guesses: Sequence[Sequence[Tensor]], shrinkage: float) -> Heads:
        members = [torch.cat([labels, *(silo[f] for silo in guesses)]) for f, labels in enumerate(known)]
        return heads_of(z[every_row if guesses else labelled], members, shrinkage)

    alone = heads((), 0.9)
    ways = {
        "labels alone": alone,
        "all labels": heads([[_known(finding[s]) for finding in truth.T] for s in silos], 0.1),
    }
    for shares, temperature in WAYS:
        current = alone
        for _ in range(ROUNDS):
            confused = [_confusion(z[validation], head, truth[validation, f]) for f, head in enumerate(current)]
            guesses = []
            for silo in silos:
                stated = [_share(finding[silo]) if shares == "stated" else None for finding in truth.T]
                measured = [each if shares == "measured" else None for each in confused]
                by_finding = zip(current, stated, measured, strict=True)
                guesses.append([guess(z[silo], head, temperature, share, often) for head, share, often in by_finding])
            current = heads(guesses, 0.1)
        ways[f"{shares}, temperature {temperature:.0f}"] = current
    counted = [way for way in ways if way != "all labels"]
    ways["chosen, told counts"] = _choice(ways, counted, z[validation], truth[validation])
    ways["chosen, told nothing"] = _choice(
        ways, [way for way in counted if "stated" not in way], z[validation], truth[validation]
    )
    test = np.flatnonzero(parts == "test")
    return {way: np.array([_auroc(z[test], head, truth[test, f]) for f, head in enumerate(ways[way])]) for way in ways}


def _known(finding: NDArray) -> Tensor:
    return torch.from_numpy(np.stack([finding == 0, finding == 1], 1)).double()


def _share(finding: NDArray) -> float:
    return float(np.clip((finding == 1).sum() / max(1, (finding >= 0).sum()), 1e-3, 1 - 1e-3))


def _confusion(z: Tensor, head: tuple[Tensor, float], finding: NDArray) -> Tensor:
    sure = torch.from_numpy(finding >= 0)
    return confusion((z[sure] @ head[0] + head[1] > 0).long(), torch.from_numpy(finding)[sure].long(), 2)


def _auroc(z: Tensor, head: tuple[Tensor, float], finding: NDArray) -> float:
    sure = finding >= 0
    return float(roc_auc_score(finding[sure], (z[sure] @ head[0]).numpy()))


def _choice(ways: Mapping[str, Heads], counted: Sequence[str], z: Tensor, truth: NDArray) -> Heads:
    """Return the best way of each finding, by its AUROC less that of the first way beside the standard error of DeLong et al. (1988)."""
    chosen = Heads()
    for f, finding in enumerate(truth.T):
        if min((finding == 0).sum(), (finding == 1).sum()) < 2:
            chosen.append(ways[counted[0]][f])
            continue
        placements = []
        for way in counted:
            score = (z @ ways[way][f][0]).numpy()
            above = (score[finding == 1][:, None] > score[finding == 0]).astype(float)
            placements.append((above.mean(1), above.mean(0)))
        best = int(np.argmax([with_finding.mean() for with_finding, _ in placements]))
        apart = [one - other for one, other in zip(placements[best], placements[0], strict=True)]
        error = np.sqrt(sum(each.var(ddof=1) / len(each) for each in apart))
        chosen.append(ways[counted[best if apart[0].mean() > error else 0]][f])
    return chosen


def main() -> int:
    """Play all draws."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--weights", type=Path, required=True, help="folder that prepare_encoder.py made")
    parser.add_argument("--images", type=int, default=5000, help="images; default: 5000")
    parser.add_argument("--draws", type=int, default=5, help="draws of labels and silos; default: 5")
    parser.add_argument("--data", type=Path, default=os.environ.get("ANCHORAGE_DATA"), help="folder with isic18/")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("no images: set ANCHORAGE_DATA or --data to the folder that holds isic18/")
    images = dict(features_of(arguments.data, arguments.weights, arguments.images))
    features = images["features"].astype(np.float64)
    training = features[images["parts"] == "train"]
    axes = np.linalg.svd(training - training.mean(0), full_matrices=False)[2][:COMPONENTS]
    images["components"] = (features - training.mean(0)) @ axes.T
    for kind in ("sites", "drawn silos"):
        every = [play(kind, number, images) for number in range(arguments.draws)]
        print(f"{kind}: macro AUROC, gain, gain by finding ({', '.join(images['names'].tolist())})")
        for way in every[0]:
            scores = np.array([each[way] for each in every])
            gains = scores - np.array([each["labels alone"] for each in every])
            macro = gains.mean(1)
            by_finding = " ".join(f"{gain:+.3f}" for gain in gains.mean(0))
            print(f"  {way:26} {scores.mean():.3f}  {macro.mean():+.3f} ± {macro.std(ddof=1):.3f}  {by_finding}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
