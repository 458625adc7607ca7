"""``python -m fedctl.prepared IMPORTED MODULE ...``: imports a module, waits for a line, and becomes ``python -m MODULE ...``.

So an agent's imports pass while the server still starts, which decides what the agent's configuration says.
"""

import runpy
import signal
import sys
from contextlib import suppress

from anchorage.api.imports import import_large


def main() -> None:
    """Import, wait, and become the program; end where whoever started this is gone before the line came."""
    imported, module, *arguments = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the program has not begun: there is nothing to say about its end
    with suppress(ImportError):  # the program will say it better
        import_large(imported)
    if sys.stdin.readline():
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
