"""Rounded global models: the same model over sockets as in one process, from a fraction of the bytes, and nothing is lost by rounding."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federation_documents import WEIGHTS, digits_study, null_study
from federation_in_process import null_digest
from federation_over_grpc import digest_over_grpc
from federation_processes import SIGKILLED, Site
from safetensors.numpy import load_file, save_file

from anchorage.api.files import Study
from anchorage.simulation.run import simulate

NUMBERS = {"BFloat16": 2 * 600_000, "Int8": 600_000 + 1024 + 1024 + 296}
"""Bytes of the encoded numbers of a model, by hand: int8 has a scale for 256 of the 262,137, 262,144 and 75,719 numbers of the chunks."""
EXACT = sum(array.nbytes for name, array in WEIGHTS.items() if name != "encoder.weight")
HEAD: dict[str, Any] = {"network": "SmallCnn", "imageSize": 8, "channels": 1, "augmentation": "Digits"}
LORA = {**HEAD, "trainable": "Head", "lora": {"rank": 2, "alpha": 4}}


def null(folder: Path, encoding: str | None, *, silos: int = 2, **protocol: Any) -> Study:
    rounded = {} if encoding is None else {"modelEncoding": encoding}
    study = null_study(
        folder, silos=silos, rounds=3, protocol={"minSilos": silos, "roundDeadlineSeconds": 600, **rounded, **protocol}
    )
    matrix = WEIGHTS["encoder.weight"].reshape(600, 1000)
    save_file({**WEIGHTS, "encoder.weight": matrix}, folder / "initial.safetensors")
    return study


@pytest.mark.parametrize("encoding", NUMBERS)
def test_processes_and_one_process_reach_the_same_model_though_both_ends_are_killed(
    encoding: str, tmp_path: Path
) -> None:
    study = null(tmp_path / "rounded", encoding)
    with Site(study) as site:
        server, steady, doomed = site.server("commit", 2, "SIGKILL"), site.null_agent("a"), site.null_agent("b")
        assert server.end() == SIGKILLED
        doomed.kill()
        site.finish(site.server(), steady, site.null_agent("b"))
        assert site.digest() == null_digest(study)
        assert null_digest(study) != null_digest(null(tmp_path / "exact", None))
        assert [record["bytesDown"] for record in site.records()[1:2]] == [2 * (NUMBERS[encoding] + EXACT)]


@pytest.mark.parametrize("protocol", [{}, {"secureAggregation": {"fractionalBits": 22}}])
def test_sums_of_updates_are_measured_from_the_rounded_model(protocol: dict[str, Any], tmp_path: Path) -> None:
    """Null trainers add the same to every number: the exact model has it, and none of the rounding."""
    study = null(tmp_path, "BFloat16", silos=3, **protocol)
    with Site(study) as site:
        site.finish(site.server(), *(site.null_agent(silo) for silo in "abc"))
        assert site.digest() == null_digest(study)
        files = tmp_path / "initial.safetensors", site.workdir.server / "checkpoints" / "round-000003.safetensors"
        first, last = (load_file(file)["encoder.weight"] for file in files)
    steps = np.float64(3 * (0.5 * 100 + 1.0 * 200 + 1.5 * 300) / 600)
    assert np.abs(last - (first + steps)).max() < 1e-5


@pytest.mark.parametrize(
    ("method", "slots", "spec"),
    [
        ("FedAvg", {"encoding": {"int8": {}}}, {}),
        ("FedAvg", {}, {"model": LORA}),
        ("FedAnchor", {}, {"model": {**HEAD, "trainable": "encoder.*.3"}}),
        ("FedAvg", {"name": "SCAFFOLD"}, {}),
    ],
)
def test_learning_reaches_the_same_model_in_one_process_and_over_grpc(
    method: str, slots: dict[str, Any], spec: dict[str, Any], tmp_path: Path
) -> None:
    pytest.importorskip("sklearn")
    protocol = {"minSilos": 3, "roundDeadlineSeconds": 600, "modelEncoding": "Int8"}
    study, plain = (
        digits_study(tmp_path / name, method, rounds=3, slots=slots, protocol=each, **spec)
        for name, each in (("rounded", protocol), ("plain", {**protocol, "modelEncoding": None}))
    )
    record, _ = simulate(study, study.file.parent, tmp_path / "simulation")
    exact, _ = simulate(plain, plain.file.parent, tmp_path / "exact")
    assert record.bytes_down < exact.bytes_down and record.digest != exact.digest
    assert digest_over_grpc(study, tmp_path / "sockets") == record.digest


def test_a_simulation_that_is_cut_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    protocol = {"minSilos": 3, "roundDeadlineSeconds": 600, "modelEncoding": "BFloat16"}
    full_bytes, first = (
        digits_study(tmp_path / str(rounds), "FedAvg", rounds=rounds, protocol=protocol) for rounds in (3, 1)
    )
    record, _ = simulate(full_bytes, full_bytes.file.parent, tmp_path / "whole")
    simulate(first, first.file.parent, tmp_path / "cut")
    resumed, _ = simulate(full_bytes, full_bytes.file.parent, tmp_path / "cut")
    assert resumed.digest == record.digest
