"""What is wrong inside a process while it runs, as files say: its clock, and how long its disk takes."""

CLOCK = "ANCHORAGE_CHAOS_CLOCK"
"""Environment variable with the file whose length, less `NOON` bytes, is by how many seconds a process' clock is off."""
DISK = "ANCHORAGE_CHAOS_DISK"
"""Environment variable with the file whose length is how many milliseconds longer it takes until what a process wrote is on its disk."""
NOON = 1 << 20
WRONG = f"""import os, sys, time

if file := os.environ.get({CLOCK!r}):
    right = time.time

    def wrong():
        asks = sys._getframe(1).f_globals.get("__name__", "")
        return right() if asks.startswith("grpc") else right() + os.stat(file).st_size - {NOON}

    time.time = wrong

if disk := os.environ.get({DISK!r}):
    fast = os.fsync

    def slow(handle):
        time.sleep(os.stat(disk).st_size / 1000)
        fast(handle)

    os.fsync = slow
"""
"""What processes import at their start; gRPC's deadlines go by the right clock, which its library in C has, too."""
