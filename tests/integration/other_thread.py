"""A signal that a process hears in another thread than its main one, as the system may choose to do."""

import os
from pathlib import Path


def signal_other_thread(pid: int, number: int) -> None:
    """Send a signal to a process; its oldest thread beside the main one is asked first."""
    threads = sorted(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
    os.kill(threads[1], number)
