"""Prints what a state folder holds, for `fedctl` through the server's pod: ``python -m anchorage_server.read --state DIR WHAT``."""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.model_card import CARD
from anchorage.api.regular_files import open_regular
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.store.durable import storage_errors
from anchorage.engine.store.journal import read_journal
from anchorage.engine.store.records import record_to_json
from anchorage_server.models import describe_models, model_file
from anchorage_server.readers import reading


def main(arguments: Sequence[str] | None = None) -> int:
    """Print rounds (JSON list), models (JSON), one model file (bytes), the model card or the last written status (JSON) to standard output.

    Returns
    -------
    int
        0, or the exit code of the failure, whose line is on standard error.
    """
    parser = argparse.ArgumentParser(prog="anchorage-server-read", description="What a server's state folder holds.")
    parser.add_argument("--state", type=Path, required=True, help="the server's state folder")
    what = parser.add_subparsers(dest="what", required=True)
    what.add_parser("rounds", help="every committed round, JSON")
    what.add_parser("status", help="the status as it was written last, JSON")
    what.add_parser("model", help="which model files there are, JSON")
    what.add_parser("model-file", help="one model file, as it is").add_argument("name")
    what.add_parser("card", help="the model card of a run that is over, JSON")
    options = parser.parse_args(arguments)
    try:
        with reading(options.state):
            _print(options, sys.stdout.buffer)
    except AnchorageError as error:
        sys.stderr.write(f"{error}\n")
        return error.failure.exit_code
    except BrokenPipeError:
        return 0
    return 0


def _print(options: argparse.Namespace, out: BinaryIO) -> None:
    state: Path = options.state
    match options.what:
        case "rounds":
            out.write(json.dumps([record_to_json(record) for record in _records(state)]).encode() + b"\n")
        case "model":
            records = _records(state)
            out.write(json.dumps(describe_models(state, records[-1] if records else None)).encode() + b"\n")
        case "model-file":
            _copy(model_file(state, options.name), options.name, out)
        case "card":
            _copy(state / "model" / CARD, CARD, out)
        case _:
            _copy(state / "status.json", "status.json", out)
    out.flush()


def _records(state: Path) -> list[RoundRecord]:
    return [entry.record for entry in read_journal(state / "journal.jsonl")]


def _copy(path: Path | None, name: str, out: BinaryIO) -> None:
    if path is None or not path.exists():
        raise AnchorageError(commands.NO_MODEL_YET, f"the server's state has no {name} (any more); ask again")
    with storage_errors("read", path), open_regular(path) as file:
        shutil.copyfileobj(file, out, 1 << 20)


if __name__ == "__main__":
    sys.exit(main())
