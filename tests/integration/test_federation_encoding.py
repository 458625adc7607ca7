"""Rounded updates of real processes: the same model as in one process, from a fraction of the bytes."""

from pathlib import Path

from federation_documents import WEIGHTS, null_study
from federation_in_process import null_digest
from federation_processes import Site


def test_processes_and_one_process_round_updates_alike(tmp_path: Path) -> None:
    study = null_study(tmp_path, method={"name": "FedAvg", "encoding": {"bFloat16": {}}})
    with Site(study) as site:
        site.finish(site.server(), site.null_agent("a"), site.null_agent("b"))
        assert site.digest() == null_digest(study)
        rounded, exact = (sum(a.nbytes for a in WEIGHTS.values() if (a.ndim >= 2) is kind) for kind in (True, False))
        assert [record["bytesUp"] for record in site.records()[1:]] == [2 * (rounded // 2 + exact)] * 2
