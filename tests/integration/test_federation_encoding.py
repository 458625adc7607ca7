"""Rounded updates: the same model over sockets as in one process, from a fraction of the bytes."""

from pathlib import Path

import pytest
from federation_documents import WEIGHTS, digits_study, null_study
from federation_in_process import null_digest
from federation_over_grpc import digest_over_grpc
from federation_processes import SIGKILLED, Site
from safetensors.numpy import save_file

from anchorage.simulation.run import simulate

BLOCKS, PAIRS = 4096 + 4096 + 1184, 131_069 + 131_072 + 37_860
"""Scales for 64, and bytes of two, of the 600,000 numbers in chunks: 262,137 behind steps and bias, 262,144, and 75,719."""
PAGES = 4 + 4 + 2
"""Counts of the changes among 65,536 of them."""
NUMBERS = {"bFloat16": 2 * 600_000, "int4": BLOCKS + PAIRS, "topK": 4 * PAGES + 6 * 6000}
"""Bytes of the encoded numbers of an update, by hand."""


@pytest.mark.parametrize("encoding", NUMBERS)
def test_processes_and_one_process_round_updates_alike(encoding: str, tmp_path: Path) -> None:
    study = null_study(tmp_path, rounds=3, method={"name": "FedAvg", "encoding": {encoding: {}}})
    matrix = WEIGHTS["encoder.weight"].reshape(600, 1000)
    save_file({**WEIGHTS, "encoder.weight": matrix}, tmp_path / "initial.safetensors")
    with Site(study) as site:
        server, steady, doomed = site.server(), site.null_agent("a"), site.null_agent("b", "kept", 2, "SIGKILL")
        assert doomed.end() == SIGKILLED
        site.finish(server, steady, site.null_agent("b"))
        assert site.digest() == null_digest(study)
        exact = sum(array.nbytes for name, array in WEIGHTS.items() if name != "encoder.weight")
        assert [record["bytesUp"] for record in site.records()[1:]] == [2 * (NUMBERS[encoding] + exact)] * 3


@pytest.mark.parametrize("encoding", ["int4", "topK"])
def test_a_simulation_keeps_what_silos_keep(encoding: str, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    study = digits_study(tmp_path, "FedAvg", silos=2, rounds=3, slots={"encoding": {encoding: {}}})
    record, _ = simulate(study, tmp_path, tmp_path / "simulation")
    assert sorted(path.name for path in (tmp_path / "simulation" / "silos").glob("*/feedback")) == ["feedback"] * 2
    assert digest_over_grpc(study, tmp_path / "sockets") == record.digest
