"""A pool of images of more than 30 MiB, over gRPC and in simulation: no message carries it, and no memory holds it."""

from pathlib import Path

import numpy as np
import pytest
from federation_documents import write_documents
from federation_over_grpc import digest_over_grpc
from PIL import Image

from anchorage.api.errors import AnchorageError
from anchorage.api.files import Study
from anchorage.engine.store.journal import read_journal
from anchorage.simulation.run import simulate

MIB = 1 << 20


def study_of(folder: Path, images: int, most: int) -> Study:
    """Three silos that share every image, of 12,296 bytes with its label."""
    draw = np.random.default_rng(0)
    for number in range(images):
        kind = folder / "claim" / str(number % 2)
        kind.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 256, (32, 32, 3), np.uint8)
        Image.fromarray(pixels).save(kind / f"{number}.png", compress_level=0)
    data = {"format": "ImageFolder", "claimName": "claim", "use": "Part"}
    silos = [{**data, "partition": {"recipe": "Iid", "parts": 3, "part": part}} for part in range(3)]
    spec = {
        "rounds": 2,
        "task": {"classification": {"classes": ["0", "1"]}},
        "model": {"network": "MoonCnn", "imageSize": 32},
        "method": {
            "name": "GlobalMixup",
            "inputMixing": {"global": {"maximumPoolMiB": most}},
            "local": {"epochs": 1, "batchSize": 128},
        },
        "protocol": {"minSilos": 3},
    }
    return write_documents(folder, spec, [{"labels": "All", "managed": {"data": silo}} for silo in silos])


def test_a_large_pool_travels_once_and_lies_on_the_server_s_disk(tmp_path: Path) -> None:
    images = 2700
    study = study_of(tmp_path, images, 40)
    last, store = simulate(study, tmp_path, tmp_path / "simulation")
    assert digest_over_grpc(study, tmp_path) == last.digest
    (pool,) = (tmp_path / "server" / "large").iterdir()
    assert pool.stat().st_size == images * 4 * (3 * 32 * 32 + 2) > 30 * MIB
    checkpoints = sum(path.stat().st_size for path in (tmp_path / "server" / "checkpoints").iterdir())
    records = [entry.record for entry in read_journal(tmp_path / "server" / "journal.jsonl")]
    moved = [(record.bytes_up, record.bytes_down) for record in records]
    assert (
        checkpoints < pool.stat().st_size / 10
        and moved[1][0] > pool.stat().st_size
        and moved[1][1] > 3 * pool.stat().st_size
    )
    assert moved[2][1] < 3 * 3 * MIB, "the pool is not sent again"
    assert moved == [(part.bytes_up, part.bytes_down) for part in store.history()]


def test_a_pool_beyond_the_bound_ends_the_run(tmp_path: Path) -> None:
    study = study_of(tmp_path, 100, 1)
    with pytest.raises(AnchorageError, match=r"ANC-1309 .*the pool of 100 images of 3 silos are 1\.2 MiB.*raise it"):
        simulate(study, tmp_path, tmp_path / "simulation")
