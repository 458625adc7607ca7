"""Settings of the C library's allocator for processes that transfer chunks."""

import contextlib
import ctypes

from anchorage.transport.tensors.chunks import CHUNK_BYTES

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_KEPT_BYTES = 16 * CHUNK_BYTES


def keep_chunk_memory() -> None:
    """Make chunks reuse the memory of earlier chunks.

    Each chunk is a fresh bytes object. By default the allocator hands its memory back to the kernel, whose page faults then cost as much
    as a digest (docs/benchmarks.md); and each of many heaps would keep its own. So: one heap, which keeps a few free megabytes.
    """
    with contextlib.suppress(AttributeError):  # another C library than GNU's
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, 2 * CHUNK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
