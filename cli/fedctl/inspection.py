"""``fedctl status``, ``silos``, ``rounds`` and ``logs``: what a run is doing, and what it did."""

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from anchorage.errors import AnchorageError, commands
from anchorage.spec.files import as_mapping, load_federation
from fedctl.observation import Observation, observe, read_journal, require_run
from fedctl.output import Format, amount, duration, plain_table, show
from fedctl.view import FIRST_METRICS, metrics_line, moved
from fedctl.workdir import DEFAULT_PARENT, Workdir

FOLLOW_SECONDS = 0.5


def find_run(name: str | None, workdir: Path | None) -> Workdir:
    """Return the folder that the user means.

    Parameters
    ----------
    name : str or None
        A federation that was run here, in ``.anchorage/<name>``.
    workdir : Path or None
        The folder itself. With neither, the only run below ``.anchorage``.

    Raises
    ------
    AnchorageError
        There is no such run, or several.
    """
    if workdir is not None or name is not None:
        run = Workdir((workdir or DEFAULT_PARENT / str(name)).resolve())
        require_run(run)
        return run
    runs = sorted(path.parent for path in DEFAULT_PARENT.glob("*/federation.yaml"))
    if len(runs) != 1:
        found = ", ".join(path.name for path in runs) or "no run"
        raise AnchorageError(
            commands.NO_RUN_HERE, f"found {found} in {DEFAULT_PARENT.resolve()}; name one, or a folder with --workdir"
        )
    return Workdir(runs[0].resolve())


def show_status(run: Workdir, output: Format, watch: bool) -> None:
    """Print the federation with its status."""

    def document() -> Any:
        seen = observe(run)
        federation = load_federation(run.federation).federation
        return as_mapping(federation.model_copy(update={"status": seen.status}))

    if output.for_people:
        show(lambda: observe(run), lambda seen: _status_table(run, seen, output is Format.WIDE), output, watch=watch)
    else:
        show(document, str, output, watch=watch)


def _status_table(run: Workdir, seen: Observation, wide: bool) -> RenderableType:
    status = seen.status
    true = next((c for c in status.conditions if c.type in ("Succeeded", "Failed") and c.status == "True"), None)
    ready = next((c for c in status.conditions if c.type == "Ready"), None)
    waiting = next((c for c in status.conditions if c.type == "QuorumMet" and c.status == "False"), None)
    state = true or (waiting if seen.live else None) or ready
    federation = load_federation(run.federation).federation
    columns = ["federation", "state", "reason", "round", "silos", "method"]
    cells = [
        federation.metadata.name,
        f"{state.type}={state.status}" if state else "Unknown",
        state.reason if state else "",
        f"{status.round}/{status.rounds or federation.spec.rounds}",
        f"{status.connected_silos}/{len(status.silos)}",
        federation.spec.method.name,
    ]
    if wide:
        columns += ["step", "moved", "model", "tracking run"]
        cells += [status.step, moved(status), status.model.path if status.model else "", status.tracking.run_id]
    table = plain_table(*columns)
    table.add_row(*cells)
    lines: list[RenderableType] = [table]
    if state and state.message:
        lines.append(Text(state.message, style="yellow"))
    if status.metrics:
        lines.append(Text(metrics_line(status)))
    return Group(*lines)


def show_silos(run: Workdir, output: Format, watch: bool) -> None:
    """Print one line per silo."""

    def silos() -> list[Any]:
        values = observe(run).status.model_dump(mode="json", by_alias=True)["silos"]
        return list(values)

    show(silos, lambda values: _silos_table(values, output is Format.WIDE), output, watch=watch)


def _silos_table(silos: Sequence[Any], wide: bool) -> RenderableType:
    columns = ["silo", "connected", "state", "progress", "images", "weight"] + (["last seen"] if wide else [])
    table = plain_table(*columns, "failure", right=("images", "weight"))
    for silo in silos:
        cells = [
            silo["name"],
            "yes" if silo["connected"] else "no",
            silo["state"],
            f"{silo['progress']} %" if silo["task"] else "",
            str(silo["samples"]),
            f"{float(silo['weight']):.3f}",
        ]
        cells += [silo["lastSeenTime"] or ""] if wide else []
        table.add_row(*cells, f"{silo['code']} {silo['message']}".strip())
    return table


def show_rounds(run: Workdir, output: Format, watch: bool) -> None:
    """Print one line per committed round."""
    require_run(run)
    show(
        lambda: list(read_journal(run)),
        lambda rounds: _rounds_table(rounds, output is Format.WIDE),
        output,
        watch=watch,
    )


def _rounds_table(rounds: Sequence[Any], wide: bool) -> RenderableType:
    names = list(dict.fromkeys(name for record in rounds for name in record["metrics"]))
    if not wide:
        names = [name for name in names if name in FIRST_METRICS] or names[:4]
    table = plain_table(
        "round",
        "committed",
        "took",
        "silos",
        "up",
        "down",
        *(n.replace("_", " ") for n in names),
        right=("round", "up", "down"),
    )
    for record in rounds:
        counted = sum(silo["state"] == "Counted" for silo in record["silos"])
        took = sum(value or 0.0 for value in record["seconds"].values())
        values = [record["metrics"].get(name) for name in names]
        table.add_row(
            str(record["round"]),
            datetime.fromtimestamp(record["time"], UTC).astimezone().strftime("%H:%M:%S"),
            duration(took) if record["seconds"] else "",
            f"{counted}/{len(record['silos'])}" if record["silos"] else "",
            amount(record["bytesUp"]),
            amount(record["bytesDown"]),
            *("" if value is None else f"{value:.4g}" for value in values),
        )
        for silo in record["silos"] if wide else ():
            if silo["code"]:
                table.add_row("", "", "", f"{silo['name']}: {silo['code']} {silo['message']}")
    return table


def show_logs(run: Workdir, process: str | None, lines: int, follow: bool) -> None:
    """Print the end of one process's log, or of all of them.

    Parameters
    ----------
    run : Workdir
        The run.
    process : str or None
        ``server`` or a silo's name; None takes every log.
    lines : int
        Lines from the end of each log.
    follow : bool
        Go on with what is added, until Ctrl-C.

    Raises
    ------
    AnchorageError
        There is no such log.
    """
    logs = sorted((run.root / "logs").glob("*.log"))
    chosen = [path for path in logs if process in (None, path.stem)]
    if not chosen:
        found = ", ".join(path.stem for path in logs) or "none"
        raise AnchorageError(
            commands.NO_RUN_HERE, f"{run.root} has no log of {process or 'any process'}; there are: {found}"
        )
    offsets = {path: path.stat().st_size for path in chosen}
    for path in chosen:
        for line in path.read_bytes()[: offsets[path]].decode(errors="replace").splitlines()[-lines:]:
            typer.echo(_readable(line, path.stem if len(chosen) > 1 else ""))
    while follow:
        sys.stdout.flush()
        sleep(FOLLOW_SECONDS)
        for path in chosen:
            for line in _added(path, offsets):
                typer.echo(_readable(line, path.stem if len(chosen) > 1 else ""))


def _added(path: Path, offsets: dict[Path, int]) -> Iterator[str]:
    with path.open("rb") as file:
        file.seek(offsets[path])
        for line in file:
            if not line.endswith(b"\n"):
                break
            offsets[path] += len(line)
            yield line.decode(errors="replace").rstrip("\n")


def _readable(line: str, process: str) -> str:
    """Write a JSON log line for people; other lines stay as they are."""
    prefix = f"{process}: " if process else ""
    try:
        values = json.loads(line)
        head = f"{values.pop('time')} {values.pop('level')} {values.pop('message')}"
    except (ValueError, KeyError, AttributeError, TypeError):
        return prefix + line
    values.pop("logger", None)
    return " ".join([prefix + head, *(f"{name}={value}" for name, value in values.items())])
