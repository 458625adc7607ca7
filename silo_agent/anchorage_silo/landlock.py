"""Landlock, by which a Linux process gives up files and connections for good, without any privilege (landlock(7))."""

import ctypes
import os
import stat
from pathlib import Path

READ = 1 << 0 | 1 << 2 | 1 << 3
"""Execute files, read files, list folders."""
WRITE_FILE = 1 << 1
CHANGE = WRITE_FILE | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 13 | 1 << 14
"""Write, remove, make, move and cut files and folders; links, sockets, pipes and devices cannot be made."""
_ON_FILES = 1 << 0 | WRITE_FILE | 1 << 2 | 1 << 14
"""Rights that may be given on what is no folder."""
_SINCE = {13: 2, 14: 3}
"""Rights that came with a later interface: moving to another folder, cutting files."""
NETWORK_ABI, SCOPES_ABI = 4, 6
"""Interfaces that came with rules on TCP, and with scopes of signals and abstract sockets."""
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVILEGES, _DROP_CAPABILITY = 38, 24
_KEPT_CAPABILITIES = {0, 1, 2, 3, 14, 23, 24}
"""Of root, those on owners and modes of files, locked memory, priorities and resources."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def abi() -> int:
    """Return the version of the kernel's Landlock; 0 without it."""
    try:
        return _call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    except OSError:
        return 0


class Ruleset:
    """What the process may still do after `restrict`; what no rule allows is refused.

    Parameters
    ----------
    network : bool
        Whether TCP stays allowed; where the kernel cannot forbid it, it does.
    """

    def __init__(self, *, network: bool) -> None:
        version = abi()
        self._files = sum(1 << bit for bit in range(15) if version >= _SINCE.get(bit, 1))
        attributes = _Attributes(self._files, 0 if network else 3, 3)
        size = 24 if version >= SCOPES_ABI else 16 if version >= NETWORK_ABI else 8
        self._handle = _call(_CREATE, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0))

    def allow(self, path: Path, rights: int) -> None:
        """Allow rights on a file, or on a folder and all below it; links are not followed, and what cannot be opened is left out.

        Raises
        ------
        OSError
            The kernel refuses the rule.
        """
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            mode = os.fstat(handle).st_mode
            if stat.S_ISLNK(mode):
                return
            allowed = rights & self._files
            if not stat.S_ISDIR(mode):
                allowed &= _ON_FILES
            rule = _PathBeneath(allowed, handle)
            _call(_ADD, ctypes.c_int(self._handle), ctypes.c_int(1), ctypes.byref(rule), ctypes.c_uint32(0))
        finally:
            os.close(handle)

    def restrict(self) -> None:
        """Confine the calling thread, and every process and thread that it starts, for good.

        Raises
        ------
        OSError
            The kernel refuses.
        """
        if _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "no_new_privs")
        _call(_RESTRICT, ctypes.c_int(self._handle), ctypes.c_uint32(0))

    def close(self) -> None:
        """Close the kernel's handle; a confinement stays."""
        os.close(self._handle)


def drop_capabilities() -> None:
    """Have root go on without most capabilities in the programs that this process becomes or starts: some look into other processes.

    Who is not root has none to lose.
    """
    for number in set(range(64)) - _KEPT_CAPABILITIES:
        _libc.prctl(_DROP_CAPABILITY, number, 0, 0, 0)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return result
