"""``fedctl doctor``: checks whether a cluster and the connection to a federation are ready for an installation."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.text import Text

from anchorage.api.errors import AnchorageError, cluster
from fedctl.address_checks import Expectation, address_checks, read_expectation
from fedctl.arguments import Site
from fedctl.checkup import Check, Level, guard
from fedctl.choice import Place, connect
from fedctl.output import Format, emit, people, plain_table

_STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


def examine(
    site: Site, place: Place, addresses: Sequence[str], authority: Path | None, proxy: str | None, output: Format
) -> None:
    """Run all checks and print the findings.

    Parameters
    ----------
    site : Site
        What the cluster is to become.
    place : Place
        The cluster and the namespace of the install.
    addresses : sequence of str
        Addresses of the federation, beside those in the enrolment file.
    authority : Path or None
        The federation's ca.pem, or an enrolment.yaml.
    proxy : str or None
        HTTP proxy through which the agent will dial.
    output : Format
        How to print.

    Raises
    ------
    AnchorageError
        A finding has the level FAIL.
    """
    expected = read_expectation(authority) if authority else Expectation()
    checks = [*_of_cluster(place, site)]
    for address in dict.fromkeys([*expected.addresses, *addresses]):
        checks += address_checks(address, expected, proxy)
    if output.for_people:
        _print(checks)
    else:
        emit([asdict(check) for check in checks], output)
    failed = [check.name for check in checks if check.level is Level.FAIL]
    if failed:
        raise AnchorageError(
            cluster.CHECKS_FAILED, f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}"
        )


def _of_cluster(place: Place, site: Site) -> Iterator[Check]:
    from fedctl.cluster_checks import cluster_checks

    def look() -> Iterator[Check]:
        api = connect(place)
        yield Check("context", Level.OK, f"{api.access.context}, {api.access.server}, namespace {api.namespace}")
        yield from cluster_checks(api, site)

    return guard("context", look)


def _print(checks: Sequence[Check]) -> None:
    table = plain_table("", "check", "found")
    for check in checks:
        table.add_row(Text(check.level.value, style=_STYLES[check.level]), check.name, check.found)
        if check.remedy:
            table.add_row("", "", Text(f"→ {check.remedy}", style="bold"))
    people().print(table)
