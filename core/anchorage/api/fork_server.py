"""A process that imports large modules once, and is forked for each Python program that needs them: torch takes seconds to import.

Processes that inherit a socket of the fork server ask it: their command becomes a small process that stands for the forked one. It passes on its
standard streams, folder and environment, ends as the forked process ends, and takes it along however it ends itself.
"""

# the process that stands for a forked one runs this file: it imports little
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

NUMBER = "ANCHORAGE_FORK_SERVER"
"""Environment variable with the file number of the inherited socket, set for processes that may ask."""


def asking(command: Sequence[str], number: int | None) -> Sequence[str]:
    """Return a command that asks the fork server for what `command` would start; it must inherit the socket.

    Parameters
    ----------
    command : sequence of str
        ``python -m MODULE ...``, where MODULE has a function `main`. One whose `main` has an argument `become` is given `begin` in place of
        `os.execve`.
    number : int or None
        File number of the socket; None returns the command as it is.
    """
    return command if number is None else (sys.executable, "-I", "-S", __file__, str(number), *command)


def inherited_socket() -> int | None:
    """Return the file number of this process's socket to the fork server; None without one."""
    number = os.environ.get(NUMBER)
    return int(number) if number else None


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables but those that may be secrets: a forked process could find them in its memory."""
    ends = ("TOKEN", "SECRET", "PASSWORD")
    return {key: text for key, text in environment.items() if not key.startswith("OTEL_") and not key.endswith(ends)}


def ask(number: int, command: list[str]) -> None:
    """Stand for the process that the fork server forks; without a fork server become the command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the forked process decides what becomes of it
    connection, theirs = socket.socketpair()
    try:
        with socket.socket(fileno=number) as server, theirs:
            socket.send_fds(server, [b"\0"], [theirs.fileno(), 0, 1, 2])
    except OSError:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execv(command[0], command)
    environment = {name: text for name, text in without_secrets(os.environ).items() if name != NUMBER}
    folder = os.getcwd()  # noqa: PTH109 - pathlib would take longer to import than all else here
    request = {"command": command, "folder": folder, "environment": environment}
    answer = b""
    with suppress(OSError):  # the fork server has ended
        connection.sendall(json.dumps(request).encode() + b"\n")
        answer = connection.recv(8)
    status = int.from_bytes(answer, "little", signed=True) if answer else -signal.SIGKILL
    if status < 0:
        with suppress(OSError):  # of SIGKILL no process decides
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def serve(number: int, modules: Sequence[str]) -> None:
    """Import modules, and fork for each request until nobody has the other end of the socket any more."""
    from anchorage.api.imports import import_large

    for module in modules:
        import_large(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are forked here
    with socket.socket(fileno=number) as server:
        while (received := socket.recv_fds(server, 1, 4))[0]:
            connected, *streams = received[1]
            if not os.fork():
                server.close()
                _keep(connected, streams)
            for each in received[1]:
                os.close(each)


def begin(_program: str, command: list[str], environment: dict[str, str]) -> None:
    """Do what `os.execve` does with ``python -m MODULE ...``, in this process and with what it has imported."""
    from importlib import import_module
    from inspect import signature

    os.environ.clear()
    os.environ.update(environment)
    module, *arguments = command[2:]
    sys.argv = [module, *arguments]
    main = import_module(module).main
    sys.exit(main(become=begin) if "become" in signature(main).parameters else main())


def _keep(connected: int, streams: Sequence[int]) -> NoReturn:
    """Fork the process that is asked for, and wait for its end or for that of the process which stands for it."""
    _end_with_parent()
    os.setsid()  # Linux shares the processor between sessions first
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection = socket.socket(fileno=connected)
    with connection.makefile("rb") as file:
        request = json.loads(file.readline())
    ended, running = os.pipe()
    process = os.fork()
    if not process:
        connection.close()
        os.close(ended)
        _become(request, streams)
    os.close(running)  # the forked process alone has it now
    for each in streams:
        os.close(each)
    if connected in select.select([ended, connected], [], [])[0]:
        os.kill(process, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with suppress(OSError):
        connection.sendall(status.to_bytes(8, "little", signed=True))
    os._exit(0)


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> NoReturn:
    """Become the process that is asked for."""
    _end_with_parent()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    status: int | None = None
    try:
        os.chdir(request["folder"])
        begin("", request["command"], request["environment"])
    except SystemExit as end:
        status = 1 if isinstance(end.code, str) else end.code or 0
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    finally:
        if status is None:
            sys.excepthook(*sys.exc_info())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if status is None else status)  # nothing of the fork server may go on here


def _end_with_parent() -> None:
    """Have the system kill this process when the one that forked it ends."""
    import ctypes

    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    ask(int(sys.argv[1]), sys.argv[2:])
