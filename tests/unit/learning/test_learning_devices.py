"""Training on several devices: which methods divide their batches, and what comes of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from devices_double import ALONE, CASES, CLOSE, train

from anchorage.api.errors import AnchorageError
from anchorage.learning import device_group
from anchorage.learning.device_group import DeviceGroup, device_of
from anchorage.learning.network import Network

WAIT_SECONDS = 600
DOUBLE = Path(__file__).with_name("devices_double.py")


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What two processes make of every case: updates as bytes and announcements."""
    folder = tmp_path_factory.mktemp("together")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(DOUBLE.parent), *sys.path])}
    commands = [(sys.executable, DOUBLE, str(rank), "2", folder) for rank in range(2)]
    with (folder / "log").open("w") as log:
        processes = [subprocess.Popen(each, env=environment, stdout=log, stderr=log) for each in commands]
        try:
            codes = [process.wait(WAIT_SECONDS) for process in processes]
        finally:
            for process in processes:
                process.kill()
    log_text = (folder / "log").read_text()
    assert codes == [0, 0], log_text
    results = {
        case: (np.load(folder / f"{case}.npy"), json.loads((folder / f"{case}.json").read_text())) for case in CASES
    }
    return results, log_text


@pytest.mark.parametrize("case", CLOSE)
def test_two_devices_give_the_model_of_one_but_for_its_last_digits(tmp_path, together, case):
    (update, announced), (alone, expected) = together[0][case], train(tmp_path, case, DeviceGroup())
    assert not np.array_equal(update, alone), "batches were divided"
    parallel, wanted = update.view(np.float32), alone.view(np.float32)
    assert (np.abs(parallel - wanted) <= np.maximum(2e-3 * np.abs(wanted), 1e-3)).all()
    assert announced["samples"] == expected["samples"]
    assert announced["metrics"] == pytest.approx(expected["metrics"], rel=1e-4)


@pytest.mark.parametrize("case", ALONE)
def test_a_method_that_compares_images_of_a_batch_trains_on_one_device(tmp_path, together, case):
    (update, announced), (alone, expected) = together[0][case], train(tmp_path, case, DeviceGroup())
    assert np.array_equal(update, alone) and announced == expected
    assert together[1].count("trains on one device") == len(ALONE), "the first process says so"


def divided(rank, count):
    group = DeviceGroup(rank, count)
    group._divides = True
    return group


@pytest.mark.parametrize(
    ("size", "smallest", "count", "expected"),
    [
        (8, 1, 2, [(4, 1.0), (4, 1.0)]),
        (7, 1, 2, [(3, 6 / 7), (4, 8 / 7)]),
        (7, 2, 4, [(2, 3 * 8 / 21), (2, 3 * 8 / 21), (3, 12 / 7), (2, 0.0)]),
        (1, 1, 2, [(1, 2.0), (1, 0.0)]),
        (3, 2, 2, [(3, 2.0), (3, 0.0)]),
    ],
)
def test_every_image_of_a_batch_counts_once(size, smallest, count, expected):
    parts = [divided(rank, count).part(size, smallest) for rank in range(count)]
    parts_found = [(len(range(size)[part.images]), part.share) for part in parts]
    assert parts_found == [(images, pytest.approx(share)) for images, share in expected]
    covered = [image for part in parts if part.share for image in range(size)[part.images]]
    assert covered == list(range(size))
    losses = torch.arange(size, dtype=torch.float64)
    means = [part.weigh(part.of(losses)[0].mean()) for part in parts]
    assert float(sum(means)) / count == pytest.approx(float(losses.mean()))


def test_devices_that_would_take_other_steps_end(monkeypatch):
    def gather(results, own_values):
        for number, each in enumerate(results):
            each.copy_(own_values + number)

    monkeypatch.setattr(device_group.dist, "all_gather", gather)
    network = Network(torch.nn.Identity(), 1, torch.nn.Linear(1, 1))
    with pytest.raises(RuntimeError, match="disagree on their steps"):
        DeviceGroup(0, 2).begin(network, divides=True, steps=5, done=0)


def test_more_devices_than_gpus_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [str(device_of("auto", rank, 2)) for rank in range(2)] == ["cuda:0", "cuda:1"]
    with pytest.raises(AnchorageError, match="ANC-1304.*devices is 3, but torch sees 2 GPUs"):
        device_of("cuda", 0, 3)
