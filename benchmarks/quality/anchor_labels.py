"""What FedAnchor's silos would label before round 1: the share of images that is accepted, and how many of those labels are right.

python benchmarks/quality/anchor_labels.py -f STUDY.yaml --data-root DIR

For every method and seed of a study that labels by anchors, the server's model is made as the study makes it; the silos' own labels, which no
method sees, say what is right.
"""

import argparse
import statistics
import sys
from pathlib import Path

import numpy as np
import torch

from anchorage.api.files import Study
from anchorage.api.single import read_document
from anchorage.learning.data import read
from anchorage.learning.learners import build_server_learner
from anchorage.learning.method import TrainingMethod
from anchorage.learning.model_hooks import augmentation_of
from anchorage.learning.models import build_model
from anchorage.learning.views import Views
from anchorage.learning.weights import load
from anchorage.methods import resolve
from anchorage.pieces.anchor_head import anchor_outputs
from anchorage.pieces.pseudo_labels.anchor_similarity import AnchorSimilarity, accept, anchor_scores
from fedctl.research.study import StudyFile, cells_of


def labelled(study: Study, root: Path) -> tuple[float, float] | None:
    """Return the accepted share of all silos' images and the share of right labels among them; None for other pseudo-labels."""
    spec, seed = study.federation.spec, study.federation.spec.seed
    method, described = resolve(spec.method), spec.model_description
    if not isinstance(method.pseudo_labels, AnchorSimilarity) or spec.anchor_data is None:
        return None
    anchors, _ = read(spec.anchor_data, root, described, seed)
    server = build_server_learner(model=described, method=method, seed=seed, anchors=anchors)
    model = server.initialise()
    network = build_model(described, TrainingMethod.of(method), seed)
    load(network, server.down, model.buffer())
    prototypes = torch.from_numpy(np.array(server.auxiliary_data(model, 1)["prototypes"]))
    present = ~prototypes.isnan().any(1)
    accepted = right = count = 0
    for silo in study.silos:
        assert silo.spec.managed is not None, "a study's silos are managed"
        images, _ = read(silo.spec.managed.data, root, described, seed)
        views = Views(images.images, augmentation_of(spec.model.augmentation), torch.device("cpu"))
        scores = views.map_batches(
            np.arange(len(images.labels)),
            lambda i, views=views: anchor_scores(
                anchor_outputs(network, views.plain(i)), prototypes.nan_to_num(), present
            ),
        )
        labels, mask = accept(scores, float(method.pseudo_labels.threshold))
        accepted += int(mask.sum())
        right += int((labels.numpy() == images.labels)[mask.numpy()].sum())
        count += len(images.labels)
    return accepted / count, right / max(accepted, 1)


def main() -> int:
    """Print a line per method."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("-f", "--file", type=Path, required=True, help="the study")
    parser.add_argument("--data-root", type=Path, required=True, help="folder that claims name folders of")
    arguments = parser.parse_args()
    file, root = arguments.file, arguments.data_root
    for cell in cells_of(read_document(file, StudyFile), file, Path(), root, "cpu"):
        counts = [labelled(study, root) for study in cell.wanted.studies()]
        shares, right = ([100 * value[part] for value in counts if value is not None] for part in (0, 1))
        if shares:
            spreads = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in (shares, right)]
            acceptance = f"accepted {statistics.mean(shares):.1f} ± {spreads[0]:.1f} %"
            print(f"{cell.title}: {acceptance}, right {statistics.mean(right):.1f} ± {spreads[1]:.1f} %", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
