"""The sender's share of the processor: a small one while rounds are played, that of others afterwards."""

import os
import time
from contextlib import suppress
from pathlib import Path

NICENESS = 10
AUTOGROUP = Path("/proc/self/autogroup")
"""Where Linux shares the processor between sessions first, the weight of this process's one."""
_WEIGHINGS, _WEIGHING_SECONDS = 20, 0.11


def yield_to_rounds() -> None:
    """Take about a tenth of a processor that others want: results may come late, rounds may not, and on a busy machine both come.

    Linux shares the processor between sessions first (autogroup) and then inside each, so the process takes a session of its own and
    makes that one modest too.
    """
    with suppress(PermissionError):  # it leads its session already
        os.setsid()
    _weigh_session(NICENESS)
    os.nice(NICENESS)


def catch_up() -> None:
    """Take the share of any other session: the rounds are over, and somebody waits for the results.

    Inside its session the process is alone, so that its own niceness, which only root may take back, counts for nothing there.
    """
    _weigh_session(0)


def _weigh_session(niceness: int) -> None:
    for _ in range(_WEIGHINGS):
        try:
            AUTOGROUP.write_text(str(niceness))
        except BlockingIOError:  # Linux lets ordinary users write one in a tenth of a second
            time.sleep(_WEIGHING_SECONDS)
        except OSError:  # a kernel without autogroups
            return
        else:
            return
