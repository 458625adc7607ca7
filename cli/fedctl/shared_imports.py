"""``python -m fedctl.shared_imports NUMBER MODULE ...``: the fork server of a run on this machine, for its trainers and for the comparison.

Where one process imports torch for all of them, a run of three silos begins seconds earlier.
"""

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue

from anchorage.api.fork_server import serve, without_secrets
from fedctl.processes import Child, ProcessEvent, end_all
from fedctl.workdir import Workdir

NAME = "imports"
MODULES: Sequence[str] = (
    "anchorage.learning.learners",
    "anchorage.learning.data.held_out",
    "anchorage.learning.label_checks",
    "anchorage.engine.stages",
    "anchorage.methods",
    "anchorage_silo.confinement",
    "anchorage_silo.known_images",
    "anchorage_silo.policy",
    "anchorage_silo.trainer",
)
"""What trainers import before they read images; what is missing here, each of them imports for itself."""


@contextmanager
def shared_imports(run: Workdir, *, wanted: bool = True) -> Iterator[int | None]:
    """Start a fork server and give the file number of the socket by which it is asked, until the block ends.

    None where it is not wanted, and where systems other than Linux make forks of such processes unsafe.

    Raises
    ------
    AnchorageError
        Its log cannot be written.
    """
    if not wanted or sys.platform != "linux":
        yield None
        return
    asks, answers = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with asks:
        with answers:
            number = answers.fileno()
            events: SimpleQueue[ProcessEvent] = SimpleQueue()
            arguments = ["-m", "fedctl.shared_imports", str(number), *MODULES]
            child = Child(
                NAME,
                arguments,
                run.root,
                run.log(NAME),
                events,
                inherited=(number,),
                environment=without_secrets(os.environ),
            )
            child.start()
        try:
            yield asks.fileno()
        finally:
            end_all([child], grace_seconds=0.0)


def main() -> None:
    """Serve until nobody can ask any more."""
    serve(int(sys.argv[1]), sys.argv[2:])


if __name__ == "__main__":
    main()
