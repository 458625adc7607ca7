"""A filter of system calls, which a Linux process gives itself for good, without any privilege (seccomp(2)).

It leaves no connections, and nothing of other processes, also to every process that this one starts. The filter is classic BPF over a call's
number and arguments. Pointers are not looked into: what is refused are kinds of sockets, not addresses.
"""

import ctypes
import errno
import os
import platform
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_ARCHITECTURES = {"x86_64": (0xC000003E, 0, 317), "aarch64": (0xC00000B7, 1, 277)}
"""By machine: what the kernel calls it, the column of `_REFUSED`, and the number of seccomp(2) itself."""
_SOCKET, _SOCKETPAIR, _CONNECT, _BIND, _LISTEN, _CLONE = (
    (41, 198),
    (53, 199),
    (42, 203),
    (49, 200),
    (50, 201),
    (56, 220),
)
_CLONE3 = (435, 435)
_REFUSED = (
    # rings of calls that no filter sees: they make sockets, and connect them
    (425, 425), (426, 426), (427, 427),  # io_uring_setup, io_uring_enter, io_uring_register
    # memory and open files of other processes of this user
    (101, 117), (310, 270), (311, 271), (438, 438), (312, 272),  # ptrace, process_vm_readv, process_vm_writev, pidfd_getfd, kcmp
    (440, 440), (448, 448),  # process_madvise, process_mrelease
    # keys that the kernel keeps for this user
    (248, 217), (249, 218), (250, 219),  # add_key, request_key, keyctl
    # modes, owners and access lists of files, which Landlock does not guard
    (90, None), (91, 52), (268, 53), (452, 452),  # chmod, fchmod, fchmodat, fchmodat2
    (92, None), (93, 55), (94, None), (260, 54),  # chown, fchown, lchown, fchownat
    (188, 5), (189, 6), (190, 7), (463, 463),  # setxattr, lsetxattr, fsetxattr, setxattrat
    # other name spaces and mounted file systems, where rules on files do not hold
    (272, 97), (308, 268), (165, 40), (166, 39), (155, 41), (161, 51),  # unshare, setns, mount, umount2, pivot_root, chroot
    (428, 428), (429, 429), (430, 430), (431, 431),  # open_tree, move_mount, fsopen, fsconfig
    (432, 432), (433, 433), (442, 442), (467, 467),  # fsmount, fspick, mount_setattr, open_tree_attr
    # files by number, past every folder
    (303, 264), (304, 265), (300, 262), (301, 263),  # name_to_handle_at, open_by_handle_at, fanotify_init, fanotify_mark
    # large parts of the kernel that training does not need and that attacks on it like
    (321, 280), (298, 241), (323, 282),  # bpf, perf_event_open, userfaultfd
    # the machine's own settings, of use to root alone
    (246, 104), (320, 294), (175, 105), (313, 273), (176, 106),  # kexec_load, kexec_file_load, init_module, finit_module, delete_module
    (169, 142), (167, 224), (168, 225), (163, 89),  # reboot, swapon, swapoff, acct
    (164, 170), (227, 112), (159, 171), (305, 266),  # settimeofday, clock_settime, adjtimex, clock_adjtime
    (170, 161), (171, 162), (103, 116), (179, 60), (443, 443),  # sethostname, setdomainname, syslog, quotactl, quotactl_fd
    (172, None), (173, None), (154, None),  # iopl, ioperm, modify_ldt
)  # fmt: skip
"""Numbers of refused calls on x86_64 and aarch64; None where there is no such call."""
_LAST_KNOWN = 469
"""Later calls were not looked at; libraries take their lack for an older kernel. Numbers of the x32 interface are above it, too."""
_NAMESPACES = 0x7E020000
"""Flags of clone(2) that make name spaces."""
_TYPE = 0xF
"""Bits of a socket's type that are no flags."""
_PAIRED = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
"""Types that speak to nobody before they are connected; datagrams can be sent to any path, also from a pair of sockets."""
_LOAD, _AND, _EQUAL, _GREATER, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NO_NEW_PRIVILEGES, _SET_FILTER, _GET_AVAILABLE = 38, 1, 2

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class _Condition:
    """That an argument's masked low half is one of some values."""

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF


_Alternatives = Iterable[tuple[_Condition, ...]]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def available() -> bool:
    """Return whether this process can filter its system calls."""
    if not sys.platform.startswith("linux") or platform.machine() not in _ARCHITECTURES or struct.calcsize("P") != 8:
        return False
    action = ctypes.c_uint32(_ERRNO)
    return _seccomp(_GET_AVAILABLE, ctypes.byref(action)) == 0


def restrict(*, unix: bool, tcp: bool) -> None:
    """Filter the system calls of the calling thread, and of every process and thread that it starts, for good.

    Parameters
    ----------
    unix : bool
        Whether sockets by path stay allowed.
    tcp : bool
        Whether TCP, sockets by path, and questions to the kernel about its interfaces stay allowed, as processes of several devices need them.

    Raises
    ------
    OSError
        The kernel refuses.
    """
    if _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    code = b"".join(_instructions(unix=unix or tcp, tcp=tcp))
    if _seccomp(_SET_FILTER, ctypes.byref(_Program(len(code) // 8, code))):
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def _seccomp(operation: int, argument: object) -> int:
    _, _, number = _ARCHITECTURES[platform.machine()]
    return int(_libc.syscall(ctypes.c_long(number), ctypes.c_uint(operation), ctypes.c_uint(0), argument))


def _instructions(*, unix: bool, tcp: bool) -> Iterator[bytes]:
    architecture, column, _ = _ARCHITECTURES[platform.machine()]
    yield _instruction(_LOAD, 4)
    yield _instruction(_EQUAL, architecture, 1, 0)
    yield _instruction(_RETURN, _KILL)  # a call of the 32-bit interface, with other numbers
    yield _instruction(_LOAD, 0)
    yield _instruction(_GREATER, _LAST_KNOWN, 0, 1)
    yield _instruction(_RETURN, _ERRNO | errno.ENOSYS)
    yield from _rule(_SOCKET[column], errno.EACCES, _sockets(unix=unix, tcp=tcp))
    yield from _rule(_SOCKETPAIR[column], errno.EACCES, _sockets(unix=unix, tcp=False))
    if not unix:
        # a CUDA driver asks for a multi-process service so, and does without where there is none
        yield from _rule(_CONNECT[column], errno.ENOENT)
        yield from _rule(_BIND[column], errno.EACCES)
        yield from _rule(_LISTEN[column], errno.EACCES)
    yield from _rule(_CLONE[column], errno.EPERM, [(_Condition(0, (0,), _NAMESPACES),)])
    yield from _rule(_CLONE3[column], errno.ENOSYS)  # its flags are behind a pointer; libraries then use clone
    for numbers in _REFUSED:
        if (number := numbers[column]) is not None:
            yield from _rule(number, errno.EPERM)
    yield _instruction(_RETURN, _ALLOW)


def _sockets(*, unix: bool, tcp: bool) -> Iterator[tuple[_Condition, ...]]:
    """Yield which sockets may be made, by family, type and protocol."""
    local = _Condition(0, (socket.AF_UNIX,))
    yield (local,) if unix else (local, _Condition(1, _PAIRED, _TYPE))
    if tcp:
        internet = _Condition(0, (socket.AF_INET, socket.AF_INET6))
        yield internet, _Condition(1, (socket.SOCK_STREAM,), _TYPE), _Condition(2, (0, socket.IPPROTO_TCP))
        yield _Condition(0, (16,)), _Condition(2, (0,))  # netlink, on interfaces and addresses


def _rule(number: int, refusal: int, allowed: _Alternatives = ()) -> Iterator[bytes]:
    """Yield instructions that refuse a call with an error unless all conditions of an alternative hold; for other calls nothing changes."""
    body = [instruction for conditions in allowed for instruction in _alternative(conditions)]
    body.append(_instruction(_RETURN, _ERRNO | refusal))
    yield _instruction(_EQUAL, number, 0, len(body))
    yield from body


def _alternative(conditions: tuple[_Condition, ...]) -> list[bytes]:
    """Return instructions that allow the call where all conditions hold, and else go on behind them."""
    body = [_instruction(_RETURN, _ALLOW)]
    for condition in reversed(conditions):
        values = [
            _instruction(
                _EQUAL, value, len(condition.values) - place - 1, 0 if place + 1 < len(condition.values) else len(body)
            )
            for place, value in enumerate(condition.values)
        ]
        load = [_instruction(_LOAD, 16 + 8 * condition.argument), _instruction(_AND, condition.mask)]
        body = [*load, *values, *body]
    return body


def _instruction(code: int, value: int, matched: int = 0, otherwise: int = 0) -> bytes:
    """Return an instruction of classic BPF: its code, how many to skip if it matches and if not, and its value."""
    return struct.pack("=HBBI", code, matched, otherwise, value)
