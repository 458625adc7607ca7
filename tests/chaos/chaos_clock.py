"""A clock of a process that is wrong by as much as a file says, while the process runs."""

CLOCK = "ANCHORAGE_CHAOS_CLOCK"
"""Environment variable with the file whose length, less `NOON` bytes, is by how many seconds a process' clock is off."""
NOON = 1 << 20
WRONG_CLOCK = f"""import os, sys, time

if file := os.environ.get({CLOCK!r}):
    right = time.time

    def wrong():
        asks = sys._getframe(1).f_globals.get("__name__", "")
        return right() if asks.startswith("grpc") else right() + os.stat(file).st_size - {NOON}

    time.time = wrong
"""
"""What processes import at their start; gRPC's deadlines go by the right clock, which its library in C has, too."""
