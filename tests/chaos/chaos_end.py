"""What must hold of a federation when its run is over."""

from typing import TYPE_CHECKING

from federation_in_process import null_digests

if TYPE_CHECKING:
    from chaos_federation import Federation

PATIENCE_SECONDS = 900.0
"""Time in which a federation must be at work again, or further on the way there, or at its end, however busy the machine."""


def check_end(federation: "Federation", rounds: int) -> None:
    """Compare a run with one that nothing disturbed, and see that MLflow has all of it and that nothing is left behind."""
    findings, broken = federation.findings, federation.broken
    findings["rounds"] += rounds
    for number, digest in enumerate(null_digests(federation.study, rounds)):
        if federation.digests.get(number) != digest:
            findings["wrong_digests"] += 1
            broken.append(f"round {number} has another digest than undisturbed")
    if federation.tracking is not None:
        lost, runs = set(range(rounds + 1)) - federation.tracking.rounds().keys(), federation.tracking.runs()
        findings["lost_results"] += len(lost)
        if lost or runs != ["FINISHED"]:
            broken.append(f"MLflow has the runs {runs} and lacks rounds {sorted(lost)}")
        check_repeated(federation)
    _check_left_over(federation)


def check_sent(federation: "Federation", committed: int) -> None:
    """See that MLflow gets every round up to this one."""
    tracking = federation.tracking
    assert tracking is not None
    sent = set(range(committed + 1))
    federation.until(lambda: sent <= tracking.rounds().keys(), PATIENCE_SECONDS, "MLflow has all", tracking.rounds)
    check_repeated(federation)


def check_repeated(federation: "Federation") -> None:
    """See that MLflow has nothing twice."""
    assert federation.tracking is not None
    twice = [number for number, times in federation.tracking.rounds().items() if times > 1]
    federation.findings["repeated_results"] += len(twice)
    federation.broken += [f"MLflow has round {number} more than once" for number in twice]


def _check_left_over(federation: "Federation") -> None:
    if not federation.holds(lambda: not list(federation.left_over()), PATIENCE_SECONDS):
        federation.findings["stray_processes"] += 1
        federation.broken.append(f"still there: {[' '.join(each.cmdline()) for each in federation.left_over()]}")
    stray = [path for path in federation.workdir.root.rglob("*") if ".partial" in path.name or path.name[0] == "."]
    stray += list(federation.scratch.iterdir())
    if stray:
        federation.findings["stray_files"] += len(stray)
        federation.broken.append(f"left behind: {[str(path.relative_to(federation.folder)) for path in stray]}")
